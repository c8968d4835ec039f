"""Turns: shares out each turn of an event loop, so that no client can hold up the others.

Whoever works on an event loop goes on until it has to wait. A client that always has bytes ready, and always reads, is
never waited for. And some hundred small requests together take as long as a large one. So each loop has a clock
(`Turns`): the processor time that its thread has used since the current turn began. When that is enough, whoever wants
to begin another piece of work waits for a later turn: a task at a gate (`wait`), a callback of asyncio in a queue
(`later`). Both let a few through in each turn, in order of arrival. The clock belongs to the loop and not to a call, so
a new call does not reset it. Health checks are let through first, and so is whoever goes on sending a message.

Beside large messages, small ones come first: a connection reads and sends only so many bytes of a large one in a turn
(`Share`), and all of them have only a part of the turn's time. Where no small ones have come lately, a share is longer:
after each of them the code that goes on has to be brought into the processor's cache again.

A paced source does not do long work at once: it returns `NEED_TURN`. Such pieces run one at a time, in the *lane* of
the loop (`work`). So each turn has one of them: sixteen clients with long work delay a health check no longer than one
does, and each gets a sixteenth of the lane. A new connection needs several turns of the loop before it has its answer.
So after a long piece the lane rests for that many turns. Then a health check waits for one such piece, and not for one
in each turn.

A piece runs on the event loop, unless many compressed bytes wait. These are processed by a thread, because zlib
releases the interpreter's lock. This costs the loop little, but waking a thread is expensive. So the thread does as
many pieces as fit into a fixed time.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import get_clock_info, perf_counter, thread_time
from typing import TYPE_CHECKING, Final, Protocol

import anyio
from anyio.lowlevel import RunVar, checkpoint

from streamcodec.transports.inthread import in_thread

if TYPE_CHECKING:
    import asyncio

_now: Final = thread_time if get_clock_info("thread_time").resolution < 1e-4 else perf_counter  # noqa: PLR2004
"""Others may have the processor, too: their time is not the loop's. On Windows, time of the processor comes in steps of
16 ms; the other clock only makes some wait who need not."""

_TURN_SECONDS: Final = 0.002
"""After so much work in one turn of the loop, what begins anew waits. Fifty small requests take as long."""

_TRIO_TURN_SECONDS: Final = 0.005
"""The same on trio, where requests cost four times as much, to wait costs half of one, and a connection needs fewer
turns. With 2 ms, 64 clients with small requests took 1.4 of the processor time."""

_LARGE_PARTS: Final = 4
"""Beside small messages, large ones have one of so many parts of a turn. On trio they have all: there, nobody is told
when a turn begins."""

_LARGE_PLACES: Final = 2
"""Callbacks of large messages that are called in one turn: so many have the time for their shares."""

_SMALL_SECONDS: Final = 0.05
"""After a small request, others are expected for so long."""

_BEHIND_SECONDS: Final = 0.001
"""Time in each turn for callbacks that have waited, together. The last one may exceed it."""

_GATE_PLACES: Final = 8
"""Tasks that wait at a gate for the next turn of the loop; others wait for them. So at most that many pieces of work,
each of half a millisecond at most, are let through in one turn."""

_CROWD: Final = 64
"""Tasks at a gate for which those that come later wait, even if there is time. For fewer it would only cost time."""

_GATE_ROUNDS: Final = 4
"""Turns after which a task at a gate is let through, even if each was over before it came to it."""

_THREAD_SECONDS: Final = 0.002
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


class Turns:
    """The turns of one event loop, and who waits for one.

    Attributes:
        behind: functions that wait for a later turn, in the order in which they are called; but for urgent ones.
        small: how many small requests have been answered at once; whoever answers them counts.
        lane: held by the long work of this turn.
        threads: of compressed bodies. They are its own, so models that use all other threads do not delay them.
    """

    def __init__(self) -> None:
        """Begin the first turn."""
        self._loop = _loop_of_asyncio()
        self._most = _TRIO_TURN_SECONDS if self._loop is None else _TURN_SECONDS
        self._large_most = self._most if self._loop is None else self._most / _LARGE_PARTS
        self._soon = self._most if self._loop is None else self._large_most / 2
        self._began = _now()
        self._no_sooner = 0.0
        self._no_sooner_for_small = 0.0
        self._is_spent = False
        self._number = 0
        self._is_scheduled = False
        self._waiting = 0
        self._gates = [anyio.Semaphore(_GATE_PLACES, fast_acquire=True) for _ in range(2)]
        self._ahead: deque[Callable[[], None]] = deque()
        self.behind: deque[Callable[[], None]] = deque()
        self._large: deque[Callable[[], None]] = deque()
        self.small: int = 0
        self._small_before = 0
        self._small_until = 0.0
        self.lane = anyio.Lock()
        self.threads = anyio.CapacityLimiter(1)

    def is_over(self, source: object = None) -> bool:
        """Whether this turn has had its time, so that `source` has to wait before it goes on.

        Args:
            source: may have `is_urgent`, which is true for health checks. These wait only if they take as long again.
                And `is_large`, which is true for large messages: beside small ones these have less time.
        """
        if self._is_spent and not getattr(source, "is_urgent", False):
            return True  # without asking the system again, which takes as long as twenty calls
        now = perf_counter()
        is_large = getattr(source, "is_large", False)
        if now < self._no_sooner or (now < self._no_sooner_for_small and not is_large):
            return False
        spent = _now() - self._began
        if spent < self._soon:
            self._no_sooner = now + self._soon - spent  # the time of the processor is never the faster one
            return False
        self.schedule()
        if is_large:
            return spent >= (self._large_most if self.has_small() else self._most)
        if spent <= self._most:
            self._no_sooner_for_small = now + self._most - spent
            return False
        self._is_spent = True
        return spent >= 2 * self._most or not getattr(source, "is_urgent", False)

    def has_small(self) -> bool:
        """Whether there have been small requests lately, so that large messages should leave room for others."""
        now = perf_counter()
        if self.small != self._small_before:
            self._small_before = self.small
            self._small_until = now + _SMALL_SECONDS
        return now < self._small_until

    def must_wait(self, source: object) -> bool:
        """Whether a task has to wait before it goes on with a source: as `is_over`, if there is anything to do.

        Args:
            source: may have `is_light`, too, which is true if what comes next takes no time: nothing has come, or the
                connection only has to be closed.
        """
        return not getattr(source, "is_light", False) and self.is_over(source)

    def is_crowded(self, source: object) -> bool:
        """Whether a task that has waited for bytes has to wait again: a crowd has come before it, or as `must_wait`."""
        if getattr(source, "is_light", False):
            return False
        return (self._waiting > _CROWD and not getattr(source, "is_urgent", False)) or self.is_over(source)

    async def wait(self, source: object = None) -> None:
        """Wait for a later turn."""
        is_urgent = bool(getattr(source, "is_urgent", False))
        number = self._number
        self._waiting += not is_urgent
        try:
            async with self._gates[is_urgent]:
                for _ in range(_GATE_ROUNDS):
                    number = self._number
                    await checkpoint()
                    self._come_back(number)
                    if not self.is_over(source):
                        break
        finally:
            self._waiting -= not is_urgent
            self._come_back(number)

    def later(self, callback: Callable[[], None], source: object = None) -> None:
        """Call a function in a later turn, after those that wait already; on asyncio.

        Args:
            callback: which need not be called if `source` has gone on meanwhile.
            source: as of `is_over`. Those that are urgent take turns with the others, however many these are. Of those
                that are large, a few are called after the others.
        """
        if getattr(source, "is_large", False):
            self._large.append(callback)
        else:
            (self._ahead if getattr(source, "is_urgent", False) else self.behind).append(callback)
        self.schedule()

    def belongs_here(self) -> bool:
        """Whether this is about the running event loop; or about an earlier one of trio, which has the same clock."""
        return self._loop is _loop_of_asyncio()

    def _come_back(self, number: int) -> None:
        """Begin a turn, if nobody has since that one: others have run meanwhile, also if a task comes back to leave."""
        if number == self._number:
            self._begin()

    def _begin(self) -> None:
        self._number += 1
        self._began = _now()
        self._no_sooner = self._no_sooner_for_small = 0.0
        self._is_spent = False

    def schedule(self) -> None:
        """Have asyncio tell when the next turn begins, which costs too much for each. On trio, who waits finds out."""
        if self._loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Begin a turn, and call each function that waits for one, as long as there is time for them."""
        ahead, behind, large = self._ahead, self.behind, self._large
        self._begin()
        end, no_sooner = self._began + _BEHIND_SECONDS, perf_counter() + _BEHIND_SECONDS
        self._is_scheduled = False
        try:
            for _ in range(max(len(ahead), len(behind))):
                if ahead:
                    ahead.popleft()()
                if behind:
                    behind.popleft()()
                if perf_counter() >= no_sooner and _now() >= end:
                    break
            for _ in range(min(len(large), _LARGE_PLACES)):
                large.popleft()()
        finally:
            if ahead or behind or large:
                self.schedule()


class _Large:
    """Whoever goes on with a large message. It has begun, so it does not wait for those who have not."""

    is_urgent: Final = True
    is_large: Final = True


LARGE: Final = _Large()

SHARE_BYTES: Final = 256 << 10
"""Of a large message, as much is read or sent in one turn beside small ones. This takes 0.1 ms."""

LONG_SHARE_BYTES: Final = 2 << 20
"""The same where there have been no small ones lately. It takes 0.5 ms, and to stop and begin again 0.1 ms on a busy
machine."""


class Share:
    """What one connection reads of its large messages, or sends, between two turns of others."""

    def __init__(self, turns: Turns) -> None:
        """Begin with a whole share."""
        self._turns = turns
        self._moved = 0

    @property
    def left(self) -> int:
        """Bytes that may still be moved; 0 or less if there are none."""
        return (SHARE_BYTES if self._turns.has_small() else LONG_SHARE_BYTES) - self._moved

    def is_over(self, nbytes: int) -> bool:
        """Count bytes that have been moved; return whether others should have their turn. Then another share begins."""
        self._moved += nbytes
        if self._moved < SHARE_BYTES or self.left > 0:
            return False
        self._moved = 0
        return True


def _loop_of_asyncio() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop of asyncio; None under trio, and where nobody has imported asyncio."""
    events = sys.modules.get("asyncio.events")
    if events is None:
        return None
    loop: asyncio.AbstractEventLoop | None = events._get_running_loop()  # noqa: SLF001 - the public one raises
    return loop


class _Here(threading.local):
    """The turns of the event loop that runs in this thread. To ask anyio would take ten times as long."""

    def __init__(self) -> None:
        self.turns = Turns()


_loops: Final[RunVar[Turns]] = RunVar("streamcodec_turns")
_here: Final = _Here()


def of_loop() -> Turns:
    """Return the turns of the running event loop."""
    try:
        turns = _loops.get()
    except LookupError:
        _loops.set(turns := Turns())
    _here.turns = turns
    return turns


def is_over(source: object = None) -> bool:
    """Ask `Turns.is_over` of the running event loop."""
    turns = _here.turns
    return (turns if turns.belongs_here() else of_loop()).is_over(source)


def must_wait(source: object) -> bool:
    """Ask `Turns.must_wait` of the running event loop."""
    turns = _here.turns
    return (turns if turns.belongs_here() else of_loop()).must_wait(source)


def is_crowded(source: object) -> bool:
    """Ask `Turns.is_crowded` of the running event loop."""
    turns = _here.turns
    return (turns if turns.belongs_here() else of_loop()).is_crowded(source)


async def wait(source: object = None) -> None:
    """Wait for a later turn of the running event loop."""
    await of_loop().wait(source)


async def work(source: Worker) -> None:
    """Wait for a turn, and do a piece of the work for which a source has returned `NEED_TURN`.

    It may be cancelled by any means. When it has ended, no work on the source is running, nothing is lost, and
    `next_event` of the source says how to continue.

    Raises:
        LocalProtocolError: the source is in use.
    """
    turns = of_loop()
    async with turns.lane:
        if getattr(source, "inflates", False):  # a plain decoder does not have it
            errand = _Errand(source)
            try:
                await in_thread(errand.run, turns.threads)
            finally:
                errand.end()
        else:
            await _piece(source.work)


async def work_off(pieces: Iterator[object]) -> None:
    """Do work that an iterator does piece by piece, each in a turn of its own.

    Raises:
        Exception: any exception of the iterator.
    """
    is_over = False

    def piece() -> None:
        nonlocal is_over
        is_over = next(pieces, pieces) is pieces

    while not is_over:
        async with of_loop().lane:
            await _piece(piece)


async def _piece(do: Callable[[], object]) -> None:
    """Do a piece of work, and leave others their turns, more of them if it was a long one."""
    began = perf_counter()
    do()
    is_long = perf_counter() - began > _LONG_SECONDS
    for _ in range(_TURNS_AFTER_LONG if is_long else 1):
        await checkpoint()


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
        end = perf_counter() + _THREAD_SECONDS
        has_more: object = True
        while has_more and perf_counter() < end:
            with self._piece:
                has_more = not self._is_over and self._source.work()

    def end(self) -> None:
        """Keep the thread from starting another piece."""
        with self._piece:
            self._is_over = True
