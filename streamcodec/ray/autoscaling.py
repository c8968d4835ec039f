"""Autoscaling: how busy a replica is, and how many replicas that takes.

Ray counts the requests that pass through its own handles and proxies. Those of the bundled server do not, so each
replica reports two numbers, and a policy in Ray's controller adds them up:

- `streamcodec_load`: 1 if the replica can do no more, whichever of these is most: the part of the time that its event
  loop computes; the processor time of the whole process, its models in threads included, by the processors that Ray has
  reserved for it; the part of its memory budget that is taken.
- `streamcodec_requests`: connections that have a request in progress. This is what to scale by if models wait, as for a
  GPU or another service, so that neither processor nor memory is busy.

Ray applies its own bounds, factors and delays to what the policy wants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from streamcodec.engine.errors import LocalProtocolError

LOAD: Final = "streamcodec_load"
REQUESTS: Final = "streamcodec_requests"


class Busy(Protocol):
    """What is asked of a server."""

    @property
    def reserved_bytes(self) -> int:
        """Memory of the requests under way."""
        ...

    @property
    def requests_in_progress(self) -> int:
        """Connections that have a request in progress."""
        ...


class Meter:
    """Measures one server, between two calls."""

    def __init__(
        self,
        server: Busy,
        max_memory_bytes: int,
        *,
        processors: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
        process_clock: Callable[[], float] = time.process_time,
    ) -> None:
        """Begin now.

        Args:
            server: is asked.
            max_memory_bytes: its budget.
            processors: that are reserved for it.
            clock: in seconds.
            cpu_clock: CPU time of the thread that calls `measure`, which must be that of the event loop.
            process_clock: CPU time of all threads.
        """
        self._server = server
        self._max_memory_bytes = max_memory_bytes
        self._clock = clock
        self._processors = processors
        self._cpu_clock = cpu_clock
        self._process_clock = process_clock
        self._at = clock()
        self._cpu = cpu_clock()
        self._process = process_clock()

    def measure(self) -> dict[str, float]:
        """Return both numbers: the load since the last call, and the requests of now."""
        now, cpu, process = self._clock(), self._cpu_clock(), self._process_clock()
        seconds = now - self._at
        used = max(cpu - self._cpu, (process - self._process) / self._processors)
        computing = used / seconds if seconds > 0 else 0.0
        self._at, self._cpu, self._process = now, cpu, process
        taken = self._server.reserved_bytes / self._max_memory_bytes
        return {LOAD: max(computing, taken), REQUESTS: float(self._server.requests_in_progress)}


class Context(Protocol):
    """What Ray tells a policy, as far as it is used here: `ray.serve.config.AutoscalingContext`."""

    target_num_replicas: int

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """For each metric, its value for each replica."""
        ...


class LoadPolicy:
    """As many replicas as keep each of them at a load; for `AutoscalingPolicy` as `policy_function`.

    Its arguments are Ray's `policy_kwargs`.
    """

    def __init__(self, target_load: float = 0.6, target_requests: float | None = None) -> None:
        """Prepare.

        Args:
            target_load: of each replica, above 0. New connections go to a new replica, kept ones stay where they are;
                so there should be room for more until they end.
            target_requests: in progress in each replica; None not to count them.

        Raises:
            LocalProtocolError: a target is not above 0.
        """
        self._targets = {LOAD: target_load} | ({} if target_requests is None else {REQUESTS: target_requests})
        if not all(target > 0 for target in self._targets.values()):
            msg = f"targets must be above 0, not {target_load} and {target_requests}"
            raise LocalProtocolError(msg)

    def __call__(self, context: Context) -> tuple[float, dict[str, Any]]:
        """Return how many replicas there should be, and nothing to remember."""
        metrics = context.aggregated_metrics or {}
        wanted = [sum(metrics[name].values()) / target for name, target in self._targets.items() if metrics.get(name)]
        return (max(wanted) if wanted else float(context.target_num_replicas)), {}
