"""Calling: a process whose threads or tasks share one client: `python -m tests.soak.clients.calling KIND PORT SECONDS`.

Prints one line of JSON: how calls have ended, and what is left after all of them.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Final

import anyio
import numpy as np

from streamcodec import MessageError
from streamcodec.client import AsyncClient, Client, InferResult, ServerError, Timeout
from streamcodec.client.connections.connection import Connection
from streamcodec.tritonclient import http as drop_in
from streamcodec.tritonclient.http import aio as drop_in_aio
from tests.processes import resident

THREADS: Final = 16
TASKS: Final = 256
_CONNECTIONS: Final = 12
_TASK_CONNECTIONS: Final = 64
_HANGS: Final = 30.0
"""Seconds after which a call counts as lost."""

_TIMEOUT: Final = 1.0
_PHASES: Final = Timeout(connect=_HANGS, read=_TIMEOUT, write=_TIMEOUT, pool=None)
_CANCELLED: Final = 0.01
_SIZES: Final = [16] * 90 + [1 << 14] * 9 + [1 << 18]
"""Floats of a call."""

_CLEAR = (OSError, MessageError, ServerError, drop_in.InferenceServerException)
"""What a call may raise, as the documentation has it."""

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Seen:
    """How calls have ended."""

    endings: Counter[str] = field(default_factory=Counter)
    right: list[str] = field(default_factory=list)
    """Ids of calls with the right result."""
    broken: list[str] = field(default_factory=list)
    """What should never have happened."""
    begun: int = 0
    longest: float = 0
    left: dict[str, int] = field(default_factory=dict)
    """What there is more of in the end than in the beginning."""


class Calls:
    """Makes calls, and looks at their results."""

    def __init__(self, kind: str, seconds: float) -> None:
        self.seen = Seen()
        self._kind = kind
        self._end = time.monotonic() + seconds
        self._numbers = count()

    @property
    def is_over(self) -> bool:
        """Whether no further call shall begin."""
        return time.monotonic() > self._end

    def next(self) -> tuple[str, Array]:
        """Return the id of the next call, and its tensor."""
        number = next(self._numbers)
        return f"{self._kind} {number}", np.full(random.choice(_SIZES), number, np.float32)  # noqa: S311 - no secret

    def call(self, call: Callable[[str, Array], tuple[str | None, Array]]) -> None:
        """Make a call in this thread."""
        name, tensor = self.next()
        began = self._begin()
        try:
            self._judge(name, tensor, *call(name, tensor))
        except Exception as error:  # noqa: BLE001 - any other one is what is looked for
            self._failed(name, error)
        self._ended(name, began)

    async def call_async(self, call: Callable[[str, Array], Any]) -> None:
        """Make a call in this task; some are cancelled on the way."""
        name, tensor = self.next()
        began = self._begin()
        is_cancelled = random.random() < _CANCELLED  # noqa: S311 - no secret
        with anyio.move_on_after(random.uniform(0, 0.02) if is_cancelled else None) as scope:  # noqa: S311 - as above
            try:
                self._judge(name, tensor, *await call(name, tensor))
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(name, error)
        if scope.cancelled_caught:
            self.seen.endings["cancelled"] += 1
        self._ended(name, began)

    def _begin(self) -> float:
        self.seen.begun += 1
        return time.monotonic()

    def _judge(self, name: str, tensor: Array, found: str | None, array: Array) -> None:
        if found != name or not np.array_equal(array, tensor):
            self.seen.broken.append(f"{name}: the answer of {found}")
        self.seen.right.append(name)
        self.seen.endings["right"] += 1

    def _failed(self, name: str, error: Exception) -> None:
        if not isinstance(error, _CLEAR) or not str(error):
            self.seen.broken.append(f"{name}: {error!r}")
        self.seen.endings[type(error).__name__] += 1

    def _ended(self, name: str, began: float) -> None:
        seconds = time.monotonic() - began
        self.seen.longest = max(self.seen.longest, seconds)
        if seconds > _HANGS:
            self.seen.broken.append(f"{name}: {seconds:.0f} s")


def _ours(result: InferResult) -> tuple[str | None, Array]:
    return result.header.id, result["x"]


def _theirs(result: drop_in.InferResult) -> tuple[str | None, Array]:
    return result.get_response()["id"], result.as_numpy("x")


def _inputs(tensor: Array) -> list[drop_in.InferInput]:
    return [drop_in.InferInput("x", tensor.shape, "FP32").set_data_from_numpy(tensor)]


def _in_threads(calls: Calls, call: Callable[[str, Array], tuple[str | None, Array]]) -> None:
    def run() -> None:
        while not calls.is_over:
            calls.call(call)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _in_tasks(calls: Calls, call: Callable[[str, Array], Any]) -> None:
    async def run() -> None:
        while not calls.is_over:
            await calls.call_async(call)

    async with anyio.create_task_group() as group:
        for _ in range(TASKS):
            group.start_soon(run)


def threads(calls: Calls, address: str) -> None:
    """16 threads on one `Client`."""
    with Client(f"http://{address}", max_connections=_CONNECTIONS, timeout=_PHASES) as client:
        _in_threads(calls, lambda name, x: _ours(client.infer("identity", {"x": x}, request_id=name)))
    _free(calls, client._methods._common.pool._free, _CONNECTIONS)  # noqa: SLF001 - it is what may be left


async def tasks(calls: Calls, address: str) -> None:
    """256 tasks on one `AsyncClient`."""
    async with AsyncClient(f"http://{address}", max_connections=_TASK_CONNECTIONS, timeout=_PHASES) as client:

        async def call(name: str, x: Array) -> tuple[str | None, Array]:
            return _ours(await client.infer("identity", {"x": x}, request_id=name))

        await _in_tasks(calls, call)
    _free(calls, client._common.pool._free, _TASK_CONNECTIONS)  # noqa: SLF001 - as above


def drop_in_threads(calls: Calls, address: str) -> None:
    """16 threads on one client of the drop-in, by `infer` and `async_infer` in turn."""
    with drop_in.InferenceServerClient(address, False, _CONNECTIONS, _HANGS, _TIMEOUT) as client:
        turns = count()

        def call(name: str, x: Array) -> tuple[str | None, Array]:
            if next(turns) % 2:
                return _theirs(client.infer("identity", _inputs(x), request_id=name))
            return _theirs(client.async_infer("identity", _inputs(x), request_id=name).get_result())

        _in_threads(calls, call)


async def drop_in_tasks(calls: Calls, address: str) -> None:
    """256 tasks on one asynchronous client of the drop-in."""
    async with drop_in_aio.InferenceServerClient(address, conn_limit=_TASK_CONNECTIONS, conn_timeout=_HANGS) as client:

        async def call(name: str, x: Array) -> tuple[str | None, Array]:
            return _theirs(await client.infer("identity", _inputs(x), request_id=name))

        await _in_tasks(calls, call)


def _free(calls: Calls, free: int, places: int) -> None:
    calls.seen.left["places"] = places - free


KINDS: Final[dict[str, Callable[[Calls, str], None]]] = {
    "Client, 16 threads": threads,
    "AsyncClient, 256 tasks, asyncio": lambda calls, address: anyio.run(tasks, calls, address),
    "AsyncClient, 256 tasks, trio": lambda calls, address: anyio.run(tasks, calls, address, backend="trio"),
    "drop-in, 16 threads": drop_in_threads,
    "drop-in aio, 256 tasks": lambda calls, address: anyio.run(drop_in_tasks, calls, address),
}


def _had() -> dict[str, int]:
    gc.collect()
    kept = sum(isinstance(thing, Connection) for thing in gc.get_objects())
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(), "connections": kept}  # noqa: PTH208 - names are enough


def main(kind: str, port: str, seconds: str) -> None:
    """Warm up, call, and print."""
    play, address = KINDS[kind], f"127.0.0.1:{port}"
    play(Calls("warm-up", float(seconds) / 6), address)
    before, memory = _had(), resident(os.getpid())
    calls = Calls("call", float(seconds))
    play(calls, address)
    calls.seen.left |= {name: number - before[name] for name, number in _had().items()}
    calls.seen.left["memory"] = resident(os.getpid()) - memory
    print(json.dumps({each.name: getattr(calls.seen, each.name) for each in fields(calls.seen)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
