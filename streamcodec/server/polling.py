"""Polling: an event loop that looks again before it goes to sleep.

To wake a processor that sleeps takes longer than to answer a small request, above all in a virtual machine. A client
that waits for its answer before it asks again is back within that time; so the loop looks for it a little longer, and
only then lets the system put it to sleep. What it costs is bounded by the time it looks, each time it runs out of work:
a server without requests costs nothing.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from time import perf_counter

_Ready = list[tuple[selectors.SelectorKey, int]]


class EagerSelector(selectors.DefaultSelector):
    """A selector that looks for a while before it waits."""

    def __init__(self, seconds: float) -> None:
        """Look for so long."""
        super().__init__()
        self._seconds = seconds

    def select(self, timeout: float | None = None) -> _Ready:
        """Return what is ready, as soon as anything is."""
        look = super().select
        if timeout is None or timeout > self._seconds:
            end = perf_counter() + self._seconds
            while perf_counter() < end:
                if ready := look(0):
                    return ready
        return look(timeout)


def loop_factory(seconds: float) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop of a server that looks for so long before it sleeps; 0 for a usual one."""
    if not seconds:
        return asyncio.new_event_loop
    return lambda: asyncio.SelectorEventLoop(EagerSelector(seconds))
