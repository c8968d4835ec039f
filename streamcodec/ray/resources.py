"""Resources of a replica: what Ray has reserved for it, since a node has several replicas and other programs.

Ray only counts reserved memory when it places replicas; it does not limit it. So a replica that takes more than its
part takes it from others, and the node's monitor kills one of them. The budget of requests keeps this one below.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.runtime.options import ServerOptions

SHUTDOWN_SECONDS = 15.0
"""By default, Ray kills a replica 20 s after it was told to stop. For 2 s it waits for requests of its own,
and the replica takes up to 2 s more to accept those who have connected."""


def replica_options(options: ServerOptions | None, resources: Mapping[str, float] | None = None) -> ServerOptions:
    """Return the options of one replica.

    Args:
        options: as given. None to take half of the memory that Ray has reserved for this replica for its requests; the
            other half is for models and libraries.
        resources: what Ray has reserved, in its words; None to ask Ray.

    Raises:
        LocalProtocolError: there are no options, and Ray has reserved no memory. The default of `ServerOptions` is half
            of the machine, and each replica would take it.
    """
    if options is not None:
        return options
    reserved = int((_assigned() if resources is None else resources).get("memory", 0))
    if reserved < 2:  # noqa: PLR2004 - half of it has to be at least one
        msg = 'give a replica `options`, or reserve memory for it: ray_actor_options={"memory": bytes}'
        raise LocalProtocolError(msg)
    return ServerOptions(max_memory_bytes=reserved // 2, shutdown_timeout=SHUTDOWN_SECONDS)


def processors(resources: Mapping[str, float] | None = None) -> float:
    """Return how many processors Ray has reserved for this replica; 1 if it has reserved none, or less than one.

    Args:
        resources: what Ray has reserved, in its words; None to ask Ray, if there is one.
    """
    try:
        found = _assigned() if resources is None else resources
    except (ImportError, RuntimeError):  # a replica outside of Ray
        return 1.0
    return max(1.0, found.get("CPU", 1.0))


def _assigned() -> Mapping[str, float]:
    import ray  # noqa: PLC0415 - everything else works without it, as its tests do

    found: Mapping[str, float] = ray.get_runtime_context().get_assigned_resources()
    return found
