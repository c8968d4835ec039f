"""Clock: runs a function in an event loop whose time goes on only when nothing is left to do, and then at once.

So a test of hours takes milliseconds, on a busy machine too.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import trio.testing


class _Selector(selectors.DefaultSelector):
    """Passes the time instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, the time that may be waited has passed."""
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the time of the selector."""
        return self._clock.now


def run(main: Callable[[], Awaitable[Any]], *, backend: str) -> Any:  # noqa: ANN401 - what main returns
    """Run a function that waits for nothing but time."""
    options = {"clock": trio.testing.MockClock(autojump_threshold=0)} if backend == "trio" else {"loop_factory": _Loop}
    return anyio.run(main, backend=backend, backend_options=options)
