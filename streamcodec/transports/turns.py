"""Turns: long work that needs no bytes is done piece by piece, with everybody else's business in between.

A source that is paced does not do at once what takes long: it says `NEED_TURN`. Here is what all drivers do then. Each
event loop has one *lane*, and pieces are done in it one at a time, first come first served. So in one turn of the loop
there is one piece of such work, whoever it is for: sixteen clients with long work hold up a health check no longer than
one does, and have a sixteenth of the lane each. A new connection needs some turns before it has its answer; so after a
piece that took long, the lane rests for as many, and a health check waits for one such piece and not for one a turn.

A piece is done on the loop, unless the body is compressed. Then a thread does it, since zlib lets go of the
interpreter's lock; as that costs the loop little, and waking a thread much, it is as many pieces as fit into some time.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Final, Protocol

import anyio
from anyio.lowlevel import RunVar, checkpoint

_SECONDS: Final = 0.002
"""A thread is given so much to do."""

_LONG_SECONDS: Final = 0.002
"""A piece that takes longer is one of those that hostile texts make; usual ones take 0.3 to 1.5 ms."""

_TURNS_AFTER_LONG: Final = 6
"""A connection is accepted, begun, given its transport, read from, and answered: a turn each. One in which nobody has
anything to do takes some microseconds."""


class Worker(Protocol):
    """A source that may have asked for a turn; where bodies may be compressed, it has `inflates`, too."""

    def work(self) -> object:
        """Do a bounded piece of work, if there is any; true if there is certainly more."""
        ...


class _Lane:
    """Of one event loop. The thread is its own, so that models which take all others do not hold it up."""

    def __init__(self) -> None:
        self.turn = anyio.Lock()
        self.threads = anyio.CapacityLimiter(1)


_lanes: Final[RunVar[_Lane]] = RunVar("streamcodec_lane")


async def work(source: Worker) -> None:
    """Wait for a turn, and do a piece of the work that a source has said `NEED_TURN` for.

    If this is cancelled, by whatever means, nothing of the source is being done any more when it ends, nothing is lost,
    and its `next_event` says how to go on.

    Raises:
        LocalProtocolError: the source is in use.
    """
    lane = _lane()
    async with lane.turn:
        if getattr(source, "inflates", False):  # a decoder by itself has no such thing
            await _work_in_thread(source, lane.threads)
        else:
            began = perf_counter()
            source.work()
            is_long = perf_counter() - began > _LONG_SECONDS
            for _ in range(_TURNS_AFTER_LONG if is_long else 1):  # in which all others are served
                await checkpoint()


def _lane() -> _Lane:
    try:
        return _lanes.get()
    except LookupError:
        _lanes.set(lane := _Lane())
        return lane


async def _work_in_thread(source: Worker, threads: anyio.CapacityLimiter) -> None:
    errand = _Errand(source)
    try:
        await anyio.to_thread.run_sync(errand.run, limiter=threads)
    finally:
        errand.end()


class _Errand:
    """What a thread does for a source, until the one who waits for it goes.

    anyio does not let a task go that waits for a thread. asyncio does, if it is cancelled by asyncio's own means: then
    whoever it is waits here, for one piece at most, since a source is not to be used by two threads.
    """

    def __init__(self, source: Worker) -> None:
        self._source = source
        self._piece = threading.Lock()
        self._is_over = False

    def run(self) -> None:
        """Do pieces until there are no more, or some time has passed. Called by the thread."""
        end = perf_counter() + _SECONDS
        has_more: object = True
        while has_more and perf_counter() < end:
            with self._piece:
                has_more = not self._is_over and self._source.work()

    def end(self) -> None:
        """Let the thread begin no other piece."""
        with self._piece:
            self._is_over = True
