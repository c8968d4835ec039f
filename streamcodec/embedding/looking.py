"""Looking: looks at the time beside a wait for a client, which is cancelled only when the time is over.

The wait must not be cancelled and begun again for each look: a framework may then lose the piece that it was about to
hand over. granian does, and the upload is never complete. So a task that waits is left alone until its time is over.
The looks are made by a timer of the event loop. trio has no timers; there, one task looks for all waits, and ends at
the first look for which nobody waits. A task for each wait took 50 us, a third of a small request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import anyio
from anyio.lowlevel import RunVar

from streamcodec.runtime.timeouts import Look


@contextmanager
def looking(look: Look) -> Iterator[None]:
    """Leave a block early if its time is over: a wait within it is cancelled then, and not before.

    Raises:
        TimeoutError: the time is over before the block begins.
    """
    now = anyio.current_time()
    seconds = look(now)
    with anyio.CancelScope() as scope:
        looks = _Looks(look, scope)
        try:
            end = looks.begin_timer(asyncio.get_running_loop(), seconds)
        except RuntimeError:
            end = _looker().add(looks, now + seconds)
        try:
            yield
        finally:
            end()


class _Looks:
    """The looks beside one block."""

    _timer: asyncio.TimerHandle

    def __init__(self, look: Look, scope: anyio.CancelScope) -> None:
        self._look = look
        self._scope = scope

    def begin_timer(self, loop: asyncio.AbstractEventLoop, seconds: float) -> Callable[[], object]:
        """Look in so many seconds, and then whenever it is due; return what ends that."""
        self._timer = loop.call_later(seconds, self._look_by_timer, loop)
        return self._end_timer

    def seconds(self, now: float) -> float | None:
        """Look, and return the seconds until the next look; None if the time is over."""
        try:
            return self._look(now)
        except TimeoutError:
            self._scope.cancel()
            return None

    def _look_by_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if (seconds := self.seconds(loop.time())) is not None:  # anyio tells the time only in a task
            self.begin_timer(loop, seconds)

    def _end_timer(self) -> None:
        self._timer.cancel()


class _Looker:
    """Looks for all waits of an event loop of trio."""

    _sleep: anyio.CancelScope

    def __init__(self) -> None:
        self._due: dict[_Looks, float] = {}
        self._is_running = False

    def add(self, looks: _Looks, due: float) -> Callable[[], object]:
        """Look at this time, and then whenever it is due; return what ends that."""
        self._due[looks] = due
        if not self._is_running:
            self._is_running = True
            self._sleep = anyio.CancelScope(deadline=due)
            sys.modules["trio"].lowlevel.spawn_system_task(self._run)  # it is there, because it runs this
        elif due < self._sleep.deadline:
            self._sleep.deadline = due
        return partial(self._due.pop, looks, None)

    async def _run(self) -> None:
        while self._due:
            with self._sleep:
                await anyio.sleep_forever()
            now = anyio.current_time()
            for looks in [looks for looks, due in self._due.items() if due <= now]:
                if (seconds := looks.seconds(now)) is None:
                    del self._due[looks]
                else:
                    self._due[looks] = now + seconds
            self._sleep = anyio.CancelScope(deadline=min(self._due.values(), default=now))
        self._is_running = False


_LOOKER: Final = RunVar[_Looker]("_LOOKER")


def _looker() -> _Looker:
    """Return that of this event loop."""
    if (looker := _LOOKER.get(None)) is None:
        _LOOKER.set(looker := _Looker())
    return looker
