"""Stalls: how long a server's event loop does nothing else, and because of what.

An event loop runs one callback after the other. While one works, nobody else is served: a *stretch* is one callback of
asyncio or one step of a task of trio. Each is timed twice: by the clock, and by the CPU time of the loop's own thread.
The latter is what is judged, since a machine with other work to do, or a thread that holds the interpreter's lock, adds
to the former only.

    plain asyncio   every stretch, since all of them go through `asyncio.Handle._run`
    trio            every stretch, by an instrument
    uvloop          turns only: it is written in C, and has nothing to hold on to

A *turn* is one round of the loop through all callbacks that are ready, and so what a health check waits for at most
before it has its own. It is measured on all three, by a task that asks to be woken every millisecond: what CPU time has
gone by since it slept is one turn's, or that of several short ones. So it is never too little.

Who is to blame is told by a thread that looks at the loop's stack when a stretch has become long. It only sees what
gives up the interpreter's lock; the name of the callback is known always.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Final
from unittest import mock

import anyio

STALL_SECONDS: Final = 0.010
"""No stretch may take more CPU time."""

_LOOP: Final = 20_000
_LOOP_SECONDS: Final = 0.001
"""What a plain loop takes on a quiet machine of today."""

_BEAT_SECONDS: Final = 0.001
_LOOK_SECONDS: Final = 0.004
_FRAMES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some work without a pause."""

    cpu: float = 0.0
    """Seconds of the loop's thread."""
    wall: float = 0.0
    """Seconds by the clock."""
    name: str = "nothing"
    """The callback, and where in our code it was seen, if it was."""


class Meter:
    """Times what one event loop does. Everything but `watched` happens in the loop's thread.

    Attributes:
        longest: of all stretches since the last report, by CPU time.
        turn: the longest turn, by CPU time.
        stalls: stretches that took more than `STALL_SECONDS`; where no stretches are seen, turns.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._began: tuple[float, float] | None = None
        self._is_excused = False
        self._seen = ""
        self.sees_stretches = False
        self.longest = self.turn = Stretch()
        self.stalls = 0

    def begin(self) -> None:
        """Note that a stretch begins."""
        self._seen = ""
        self._began = time.thread_time(), time.monotonic()

    def end(self, name: Callable[[], str]) -> None:
        """Note that it has ended."""
        if self._began is None:  # the report has come between
            return
        cpu, wall = time.thread_time() - self._began[0], time.monotonic() - self._began[1]
        self._began = None
        self.stalls += cpu > STALL_SECONDS
        if cpu > self.longest.cpu:
            self.longest = Stretch(cpu=cpu, wall=wall, name=f"{name()} {self._seen}".rstrip())

    async def beat(self) -> None:
        """Measure turns, for ever."""
        while True:
            self._is_excused = False
            cpu, wall = time.thread_time(), time.monotonic()
            await anyio.sleep(_BEAT_SECONDS)
            if self._is_excused:
                continue
            turn = Stretch(cpu=time.thread_time() - cpu, wall=time.monotonic() - wall, name=self._seen or "a turn")
            if not self.sees_stretches:
                self._seen, self._began = "", (time.thread_time(), time.monotonic())
                self.stalls += turn.cpu > STALL_SECONDS
            if turn.cpu > self.turn.cpu:
                self.turn = turn

    def report(self) -> dict[str, Any]:
        """Tell what was found since the last report, as JSON values."""
        found = {"longest": asdict(self.longest), "turn": asdict(self.turn), "stalls": self.stalls}
        self.longest = self.turn = Stretch()
        self.stalls = 0
        self.excuse()
        return found

    def excuse(self) -> None:
        """Do not count the stretch and the turn that are under way: this is work for the test alone."""
        self._began = None
        self._is_excused = True

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look, in a thread, what long stretches do, while the block runs."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), daemon=True, name="stalls")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            began = self._began
            if began is not None and time.monotonic() - began[1] > STALL_SECONDS / 2 and not self._seen:
                self._seen = _where(sys._current_frames().get(self._thread))  # noqa: SLF001 - the documented way


def slowness() -> float:
    """Return how many times longer than a quiet machine this one takes now, of CPU time; 1 at least.

    Processors that share a core or a cache with others do less in a second of CPU time.
    """

    def loop() -> float:
        began, total = time.thread_time(), 0
        for number in range(_LOOP):
            total += number & 7
        return time.thread_time() - began

    return max(1.0, sorted(loop() for _ in range(9))[4] / _LOOP_SECONDS)


def _where(frame: FrameType | None) -> str:
    """Tell where in our code a thread is: the innermost functions first."""
    found: list[str] = []
    while frame is not None and len(found) < _FRAMES:
        path = frame.f_code.co_filename
        if "streamcodec" in path.rpartition("/")[0]:
            found.append(f"{path.rpartition('streamcodec/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(found)


def on_asyncio(meter: Meter) -> AbstractContextManager[object]:
    """Have all stretches of plain asyncio timed."""
    run = asyncio.Handle._run  # noqa: SLF001 - there is no public way

    def timed(handle: asyncio.Handle) -> None:
        callback = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001 - it is gone when it has run
        meter.begin()
        try:
            run(handle)
        finally:
            meter.end(lambda: _name_of(callback))

    meter.sees_stretches = True
    return mock.patch.object(asyncio.Handle, "_run", timed)


def _name_of(callback: Any) -> str:  # noqa: ANN401 - whatever asyncio was given
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return str(getattr(callback, "__qualname__", callback))


def trio_instruments(meter: Meter) -> list[Any]:
    """Return what trio needs to have all stretches timed."""
    import trio  # noqa: PLC0415 - not installed where nobody asks for it

    class Instrument(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's interface
            meter.begin()

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            meter.end(lambda: task.name)

    meter.sees_stretches = True
    return [Instrument()]
