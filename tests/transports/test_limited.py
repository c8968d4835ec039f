"""Calls for a limited time: those that return at once, those that wait, and those that wait too long."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator
from typing import Any

import anyio
import pytest

from streamcodec.transports.limited import current_time, within
from tests.asgi.clock import run as run_by_clock

on_both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@on_both
@pytest.mark.parametrize("seconds", [10.0, math.inf])
@pytest.mark.parametrize("waits", [0, 1, 5])
def test_what_a_call_returns_and_raises_is_passed_on(backend: str, seconds: float, waits: int) -> None:
    async def call() -> int:
        for _ in range(waits):
            await anyio.sleep(1.0)
        return waits

    async def fail() -> None:
        await call()
        raise ZeroDivisionError

    async def main() -> None:
        assert await within(seconds, call) == waits
        with pytest.raises(ZeroDivisionError):
            await within(seconds, fail)
        assert current_time() == pytest.approx(anyio.current_time())

    run_by_clock(main, backend=backend)


@on_both
def test_a_call_that_takes_too_long_is_cancelled_once(backend: str) -> None:
    cancelled = 0

    async def call() -> None:
        nonlocal cancelled
        try:
            with anyio.CancelScope():
                await anyio.sleep(math.inf)
        except BaseException:
            cancelled += 1
            raise

    async def main() -> None:
        began = anyio.current_time()
        with pytest.raises(TimeoutError):
            await within(2.0, call)
        assert anyio.current_time() - began == pytest.approx(2.0)
        assert cancelled == 1
        await anyio.sleep(5.0)  # nothing is left that could cancel the task

    run_by_clock(main, backend=backend)


@on_both
def test_who_is_cancelled_by_somebody_else_has_not_run_out_of_time(backend: str) -> None:
    async def main() -> None:
        with anyio.move_on_after(1.0) as scope:
            await within(2.0, anyio.sleep_forever)
        assert scope.cancelled_caught

    run_by_clock(main, backend=backend)


class Foreign:
    """An awaitable of a server that is not written in Python: it has `__next__`, and nothing more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future = loop.create_future()
        loop.call_later(1.0, self._future.set_result, None)
        self._steps = iter(self._future)

    def __await__(self) -> Generator[Any, Any, str]:
        return self  # type: ignore[return-value] # what it is

    def __next__(self) -> object:
        try:
            return next(self._steps)
        except StopIteration:
            raise StopIteration("done") from None


def test_a_call_needs_only_what_a_loop_needs() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert await within(2.0, lambda: Foreign(loop)) == "done"
        with pytest.raises(TimeoutError):
            await within(0.5, lambda: Foreign(loop))

    run_by_clock(main, backend="asyncio")
