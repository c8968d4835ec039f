"""Turns: runs long work that needs no bytes in pieces, so that other tasks can run in between.

A paced source does not do long work at once: it returns `NEED_TURN`. All drivers then use this module. Each event loop
has one *lane*. The pieces in it run one at a time, first come first served. So each turn of the loop has one piece of
such work. Sixteen clients with long work delay a health check no longer than one does, and each gets a sixteenth of the
lane. A new connection needs several turns of the loop before it has its answer. So after a long piece the lane rests
for that many turns. Then a health check waits for one such piece, and not for one in each turn.

A piece runs on the event loop, unless the body is compressed. Compressed bodies are processed by a thread, because zlib
releases the interpreter's lock. This costs the loop little, but waking a thread is expensive. So the thread does as
many pieces as fit into a fixed time.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Final, Protocol

import anyio
from anyio.lowlevel import RunVar, checkpoint

_SECONDS: Final = 0.002
"""How long a thread works before it returns."""

_LONG_SECONDS: Final = 0.002
"""A piece that takes longer comes from a hostile JSON text; usual pieces take 0.3 to 1.5 ms."""

_TURNS_AFTER_LONG: Final = 6
"""A connection is accepted, started, given its transport, read, and answered: one turn each. A turn without work takes
a few microseconds."""


class Worker(Protocol):
    """A source that may have asked for a turn; if bodies may be compressed, it also has `inflates`."""

    def work(self) -> object:
        """Do a bounded piece of work, if there is any; true if there is certainly more."""
        ...


class _Lane:
    """The lane of one event loop. It has its own thread, so models that use all other threads do not delay it."""

    def __init__(self) -> None:
        self.turn = anyio.Lock()
        self.threads = anyio.CapacityLimiter(1)


_lanes: Final[RunVar[_Lane]] = RunVar("streamcodec_lane")


async def work(source: Worker) -> None:
    """Wait for a turn, and do a piece of the work for which a source has returned `NEED_TURN`.

    It may be cancelled by any means. When it has ended, no work on the source is running, nothing is lost, and
    `next_event` of the source says how to continue.

    Raises:
        LocalProtocolError: the source is in use.
    """
    lane = _lane()
    async with lane.turn:
        if getattr(source, "inflates", False):  # a plain decoder does not have it
            await _work_in_thread(source, lane.threads)
        else:
            began = perf_counter()
            source.work()
            is_long = perf_counter() - began > _LONG_SECONDS
            for _ in range(_TURNS_AFTER_LONG if is_long else 1):  # all other tasks run meanwhile
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
    """The work of a thread for a source, until the waiting task leaves.

    With anyio's cancellation, a task that waits for a thread cannot leave. With asyncio's own cancellation it can. Then
    `end` waits for at most one piece, because two threads must not use one source.
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
        """Keep the thread from starting another piece."""
        with self._piece:
            self._is_over = True
