"""One client in a process of its own: `python -m tests.benchmarks.dropin_program CLIENT HOST:PORT`.

CLIENT is a name of `client_program.CLIENTS`. Each line of standard input is an order, as JSON: the way, the size of the
FP32 tensor that goes to `identity` and back, how many threads or tasks, and for how many seconds. The answer is a line
of JSON: how many calls were made, and the seconds and the processor's seconds that they took together.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import numpy as np

from tests.benchmarks.client_program import CLIENTS, MOST_CONNECTIONS

_Array = np.ndarray[Any, Any]
_Call = Callable[[_Array], _Array]
_AsyncCall = Callable[[_Array], Coroutine[Any, Any, _Array]]


def _ours_async(address: str) -> _AsyncCall:
    from streamcodec.client import AsyncClient  # noqa: PLC0415 - as above

    client = AsyncClient(f"http://{address}", max_connections=MOST_CONNECTIONS)

    async def call(x: _Array) -> _Array:
        return (await client.infer("identity", {"x": x}))["x"]

    return call


def _theirs_async(package: str, address: str) -> _AsyncCall:
    http = importlib.import_module(f"{package}.http.aio")
    client = http.InferenceServerClient(address, conn_limit=MOST_CONNECTIONS)

    async def call(x: _Array) -> _Array:
        given = http.InferInput("x", x.shape, "FP32").set_data_from_numpy(x)
        array: _Array = (await client.infer("identity", [given])).as_numpy("x")
        return array

    return call


_ASYNC: Final[dict[str, Callable[[str], _AsyncCall]]] = {
    "streamcodec": _ours_async,
    "drop-in": partial(_theirs_async, "streamcodec.tritonclient"),
    "tritonclient": partial(_theirs_async, "tritonclient"),
}
_NOT_SHARED: Final = "tritonclient"
"""Whose client belongs to one thread."""


class Program:
    """Obeys orders."""

    def __init__(self, name: str, address: str) -> None:
        self._make = partial(CLIENTS[name], address)
        self._make_async = partial(_ASYNC[name], address)
        self._pool = ThreadPoolExecutor(MOST_CONNECTIONS)
        self._own = threading.local()
        self._runner = asyncio.Runner()
        self._call = None if name == _NOT_SHARED else self._make()
        self._async_call = self._runner.run(self._made())

    def obey(self, way: str, nbytes: int, width: int, seconds: float) -> dict[str, float]:
        """Make calls for some seconds, and return how many there were and what they took."""
        x = np.full(nbytes // 4, 1.5, np.float32)
        cpu, wall = time.process_time(), time.perf_counter()
        end = wall + seconds
        if way == "sync":
            futures = [self._pool.submit(self._repeat, x, end) for _ in range(width)]
            calls = sum(future.result() for future in futures)
        else:
            calls = self._runner.run(self._repeat_async(x, end, width))
        return {"calls": calls, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}

    async def _made(self) -> _AsyncCall:
        return self._make_async()  # aiohttp wants a loop that runs

    def _repeat(self, x: _Array, end: float) -> int:
        call = self._call or self._mine()
        calls = 0
        while not calls or time.perf_counter() < end:
            _check(call(x), x)
            calls += 1
        return calls

    def _mine(self) -> _Call:
        if not hasattr(self._own, "call"):
            self._own.call = self._make()
        call: _Call = self._own.call
        return call

    async def _repeat_async(self, x: _Array, end: float, width: int) -> int:
        async def repeat() -> int:
            calls = 0
            while not calls or time.perf_counter() < end:
                _check(await self._async_call(x), x)
                calls += 1
            return calls

        return sum(await asyncio.gather(*(repeat() for _ in range(width))))


def _check(answer: _Array, x: _Array) -> None:
    if answer.shape != x.shape or answer[0] != x[0] or answer[-1] != x[-1]:
        sys.exit("the tensor came back changed")


def main(name: str, address: str) -> None:
    """Obey until there are no more orders."""
    program = Program(name, address)
    for line in sys.stdin:
        print(json.dumps(program.obey(**json.loads(line))), flush=True)
    os._exit(0)  # with open connections, about which aiohttp would complain


if __name__ == "__main__":
    main(*sys.argv[1:])
