"""Workers: the threads in which models run, a limited number at once.

The thread of a model that does not return cannot be stopped. If its time is over, or its connection has to end, the
work is *abandoned* and counted. Its thread keeps its place among the threads, and the request's memory, until it
returns. Otherwise a client with a request that never returns could occupy one thread after the other.

A thread that waits for a window of its request does no work, and its client decides for how long. So it gives up its
place meanwhile, and takes one again when the window has arrived: slow clients keep nobody from working. The number of
all threads is limited by the number of requests that may have such a thread. When those are over, the threads end. trio
ends its own threads that have had nothing to do for 10 s. anyio, on asyncio, looks for such threads whenever it
provides one, so one is requested when that time has passed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Final, NoReturn, TypeVar, cast

import anyio

from streamcodec.server.tasks import Tasks
from streamcodec.service.budget import Reservation

_T = TypeVar("_T")

_WATCH_SECONDS: Final = 0.05
"""Interval for checking whether an abandoned thread has ended: long enough to cost nothing."""

_IDLE_SECONDS: Final = 10.5
"""Time after which an idle thread can be ended. trio and anyio use 10 s."""

logger: Final = logging.getLogger(__name__)


class NoThreadError(Exception):
    """The system cannot start another thread."""


class Workers:
    """Worker threads; one set for all connections of a server.

    Attributes:
        writing: lets one thread at a time write JSON answers, piece by piece. More of them at once would only keep the
            event loop from the interpreter.
        abandoned: number of calls that had not ended in time, or when their connections had to end.
        watchers: tasks that wait for abandoned threads, as long as the server serves. Without them, abandoned work is
            checked while another call waits for a place.
    """

    def __init__(self, max_workers: int, max_windowed: int) -> None:
        """Limit the threads that work at once, and the requests that take windows."""
        self._max_windowed = max_windowed
        self._windowed: set[Hashable] = set()
        self._places = anyio.CapacityLimiter(max_workers)
        self.writing: anyio.CapacityLimiter = anyio.CapacityLimiter(1)
        self._threads = anyio.CapacityLimiter(math.inf)  # anyio's own gives a place back while the thread still runs
        self._max_workers = max_workers
        self._run_count = 0
        self._is_tidying = False
        self._abandoned: set[Work] = set()
        self.abandoned: int = 0
        self.watchers: Tasks | None = None

    @property
    def unfinished(self) -> int:
        """Number of abandoned calls that still run."""
        return sum(not work.has_ended for work in [*self._abandoned])

    @property
    def busy(self) -> int:
        """Number of threads that work, or were given up and still run."""
        return int(self._places.borrowed_tokens)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a thread."""
        return self._places.statistics().tasks_waiting

    async def run(self, work: Work, function: Callable[[], _T]) -> _T:
        """Run a function in a thread, when one is free. If this is cancelled meanwhile, the work is abandoned.

        Raises:
            NoThreadError: no thread can be started; the function has not been called.
            Exception: any exception of the function.
        """
        await self._take_place(work)
        self._run_count += 1
        try:
            self._tidy_later()
            run = partial(work.run, function)
            await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)
            return cast("_T", work.take())
        except RuntimeError as error:
            if work.has_begun:
                raise
            logger.warning("cannot start a thread: %s", error)
            raise NoThreadError("no thread for the model can be started") from error
        finally:
            if work.give_up():
                self._abandon(work)
            else:
                self._give_place_back(work)

    def wait(self, work: Work, event: Callable[[], Awaitable[_T]]) -> _T:
        """Wait for something that this thread needs to continue; other threads may work meanwhile."""
        return cast("_T", _taken(anyio.from_thread.run(self._wait, work, event)))

    def enter(self, who: Hashable) -> None:
        """Allow a request to have a thread that may wait for windows.

        Raises:
            NoThreadError: the maximum number of such requests is reached.
        """
        if len(self._windowed) >= self._max_windowed:
            raise NoThreadError("the maximum number of requests that send windows is reached")
        self._windowed.add(who)

    def leave(self, who: Hashable) -> None:
        """Report that a request needs no such thread any more; no effect if it had none."""
        self._windowed.discard(who)

    async def _wait(self, work: Work, event: Callable[[], Awaitable[_T]]) -> _T | _Raised:
        self._give_place_back(work)
        try:
            return await event()
        except Exception as error:  # noqa: BLE001 - raised again, in the thread
            return _Raised(error)
        finally:
            await self._take_place(work)

    async def _take_place(self, work: Work) -> None:
        try:
            self._places.acquire_on_behalf_of_nowait(work)
        except anyio.WouldBlock:
            await self._wait_for_place(work)
        work.has_place = True

    async def _wait_for_place(self, work: Work) -> None:
        """Wait for a place. Without `watchers`, check meanwhile which abandoned work has ended."""
        while self.watchers is None:
            for abandoned in [each for each in self._abandoned if each.has_ended]:
                self._forget(abandoned)
            with anyio.move_on_after(_WATCH_SECONDS):
                await self._places.acquire_on_behalf_of(work)
                return
        await self._places.acquire_on_behalf_of(work)

    def _give_place_back(self, work: Work) -> None:
        if work.has_place:
            work.has_place = False
            self._places.release_on_behalf_of(work)

    def _tidy_later(self) -> None:
        """Let idle threads end after some time, if there are more threads than may work at once."""
        if self._threads.borrowed_tokens >= self._max_workers and not self._is_tidying and self.watchers is not None:
            self.watchers.start_soon(self._tidy)
            self._is_tidying = True

    async def _tidy(self) -> None:
        """Let idle threads end. Repeat this until no thread has been used in between."""
        run_count = -1
        while run_count != self._run_count:
            run_count = self._run_count
            await anyio.sleep(_IDLE_SECONDS)
            with suppress(RuntimeError, MemoryError):  # no thread can be started
                await anyio.to_thread.run_sync(int, limiter=self._threads)
        self._is_tidying = False

    def _abandon(self, work: Work) -> None:
        self.abandoned += 1
        self._abandoned.add(work)
        work.reservation = work.reservation.handed_over()
        if self.watchers is not None:
            self.watchers.start_soon(self._watch, work)

    async def _watch(self, work: Work) -> None:
        """Wait until an abandoned thread has ended, and free its place and memory."""
        while not work.has_ended:  # noqa: ASYNC110 - to wake this task, its thread would have to know the event loop
            await anyio.sleep(_WATCH_SECONDS)
        self._forget(work)

    def _forget(self, work: Work) -> None:
        """Free the place and the memory of abandoned work that has ended."""
        self._abandoned.discard(work)
        self._give_place_back(work)
        work.reservation.release()


class Work:
    """One call in a thread; shared by the thread and its waiting caller.

    Attributes:
        reservation: the memory that it works on.
        has_place: whether it counts among the working threads.
        has_begun: whether the thread has begun the call.
        has_ended: whether the call has returned, or was given up before it began.
    """

    def __init__(self, reservation: Reservation) -> None:
        """Prepare for one call of `run`."""
        self._lock = Lock()
        self._is_given_up = False
        self._result: object = None
        self.reservation = reservation
        self.has_place = False
        self.has_begun: bool = False
        self.has_ended: bool = False

    def run(self, function: Callable[[], object]) -> None:
        """Call the function, and keep its result for `take`; the thread calls this."""
        with self._lock:
            if self.has_ended:
                return
            self.has_begun = True
        try:
            self._end(_called(function))
        finally:
            self.has_ended = True

    def take(self) -> object:
        """Return the result, or raise the exception of the function."""
        result, self._result = self._result, None
        return _taken(result)

    def give_up(self) -> bool:
        """Drop the result, if it was not taken; return whether the call goes on. If it has not begun, it never will."""
        with self._lock:
            self.has_ended = self.has_ended or not self.has_begun
            self._is_given_up = True
            self._result = None
            return not self.has_ended

    def _end(self, result: object) -> None:
        with self._lock:
            self.has_ended = True
            self._result = None if self._is_given_up else result


class _Raised:
    """What a function in a thread has raised, or the event loop for one.

    anyio and trio would pass it on by objects to which frames in its traceback refer. Then only the garbage collector
    would free the memory of the request. So it goes by this, and so does a reply, which refers to what a model raised.
    """

    def __init__(self, error: BaseException) -> None:
        self._error: BaseException | None = error

    def again(self) -> NoReturn:
        """Raise it. This forgets it first, because the traceback refers to who calls this."""
        error, self._error = self._error, None
        try:
            if isinstance(error, Exception):
                raise error
            msg = f"a function in a thread raised {type(error).__name__}"
            raise RuntimeError(msg) from error  # anything else would end the event loop
        finally:
            del error


def _called(function: Callable[[], object]) -> object:
    try:
        return function()
    except BaseException as error:  # noqa: BLE001 - raised again, where it is awaited
        return _Raised(error)


def _taken(result: object) -> object:
    if isinstance(result, _Raised):
        result.again()
    return result
