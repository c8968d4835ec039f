"""Workers: the threads in which models run, a limited number at once.

A call waits in a queue until one of the places for working threads is free. A thread that comes to a place takes the
calls of the queue one after the other, until there are none. Only one thread comes at a time, and before it begins with
a call it has the next one come, if more calls and places are left. So calls that are quick share one thread that is
awake, and calls that wait or compute without the interpreter's lock soon have as many threads as there are places.

The thread of a model that does not return cannot be stopped. If its time is over, or its connection has to end, the
work is *abandoned* and counted. Its thread keeps its place, and the request's memory, until it returns. Otherwise a
client with a request that never returns could occupy one thread after the other.

A thread that waits for a window of its request does no work, and its client decides for how long. So it gives up its
place meanwhile, and takes one again when the window has arrived: slow clients keep nobody from working. The number of
all threads is limited by the number of requests that may have such a thread. The task that waits for the call waits for
the window, too: the thread asks it.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from threading import Lock
from typing import Final, NoReturn, TypeVar, cast

import anyio

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.pool import Pool
from streamcodec.runtime.models.threads import Event, Mailbox, current_loop, run_in_thread
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.observing import ServerLoad

_T = TypeVar("_T")

_Pull = Callable[[], Awaitable[object]]

logger: Final = logging.getLogger(__name__)


class NoThreadError(Exception):
    """The system cannot start another thread."""


class Workers:
    """Worker threads; one set for all connections of a server.

    Attributes:
        writing: lets one thread at a time write JSON answers, piece by piece. More of them at once would only keep the
            event loop from the interpreter.
        abandoned: number of calls that had not ended in time, or when their connections had to end.
    """

    _mailbox: Mailbox

    def __init__(self, max_workers: int, max_windowed: int) -> None:
        """Limit the threads that work at once, and the requests that take windows."""
        self._max_windowed = max_windowed
        self._windowed: set[Hashable] = set()
        self._max_workers = max_workers
        self._lock = Lock()
        """For the attributes below, and for the state of each `Work`."""
        self._free = max_workers
        self._is_coming = False
        self._waiting: OrderedDict[Work, None] = OrderedDict()
        self._abandoned: set[Work] = set()
        self._loop: object = None
        self.writing: anyio.CapacityLimiter = anyio.CapacityLimiter(1)
        self.abandoned: int = 0

    @property
    def unfinished(self) -> int:
        """Number of abandoned calls that still run."""
        return sum(not work.has_ended for work in [*self._abandoned])

    @property
    def busy(self) -> int:
        """Number of threads that work, or were given up and still run."""
        with self._lock:
            return self._max_workers - self._free - self._is_coming

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a thread."""
        return len(self._waiting)

    async def run(self, work: Work, function: Callable[[], _T]) -> _T:
        """Run a function in a thread, when one is free. If this is cancelled meanwhile, the work is abandoned.

        Raises:
            NoThreadError: no thread can be started; the function has not been called.
            Exception: any exception of the function.
        """
        self.start(work, function)
        del function  # the traceback of a cancellation refers to this frame
        try:
            await work.event.wait()
            while (pull := work.pull) is not None:
                work.renew_event()
                work.result = await _outcome(pull)
                self._let_go_on(work)
                await work.event.wait()
        except BaseException:
            self.give_up(work)
            raise
        return cast("_T", work.take())

    def start(self, work: Work, function: Callable[[], object], done: Callable[[], object] | None = None) -> None:
        """Run a function in a thread, when one is free.

        Args:
            work: gives the result by `take`.
            function: to be called; it does not `wait` if there is `done`.
            done: called on this event loop when the function has ended, unless the work was given up; None if a task
                waits for it from now on.

        Raises:
            NoThreadError: no thread can be started; the function has not been called.
        """
        if self._abandoned:  # of an event loop that has ended, perhaps
            for abandoned in [each for each in self._abandoned if each.has_ended]:
                self._forget(abandoned)
        if (loop := current_loop()) is not self._loop:
            self._loop, self._mailbox = loop, Mailbox(loop)
        work.prepare(function, self._mailbox, done)
        try:
            with self._lock:
                self._waiting[work] = None
            self._fill_places()
        except BaseException:
            self.give_up(work)
            raise

    async def join(self, work: Work) -> None:
        """Wait for work that was started with `done`, which is no longer called. If this is cancelled, it is abandoned.

        Then `take` gives the result.
        """
        with self._lock:
            if work.has_ended:
                return
            work.renew_event()
        try:
            await work.event.wait()
        except BaseException:
            self.give_up(work)
            raise

    def wait(self, work: Work, event: Callable[[], Awaitable[_T]]) -> _T:
        """Wait for something that this thread needs to continue; other threads may work meanwhile.

        Raises:
            LocalProtocolError: the work was given up.
            Exception: any exception of the event.
        """
        with self._lock:
            if work.is_given_up:
                raise LocalProtocolError(_OVER)
            work.pull = event
            self._free += 1
        with suppress(NoThreadError):  # those that wait go on waiting
            self._fill_places()
        work.mailbox.put(work.wake)
        work.may_go_on.acquire()
        return cast("_T", work.take())

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

    def _fill_places(self) -> None:
        """Have a thread come to a free place if somebody waits for one, and no other thread is coming.

        If none can be started, a thread that has waited for a window goes on, which waits for a place, too. It takes
        the calls after that.

        Raises:
            NoThreadError: no thread can be started, and there is none that waits for a place.
        """
        with self._lock:
            if self._is_coming or not self._free or not self._waiting:
                return
            self._is_coming = True
            self._free -= 1
        try:
            run_in_thread(self._serve)
        except BaseException as error:
            with self._lock:
                self._is_coming = False
                begun = next((work for work in self._waiting if work.has_begun), None)
                if begun is None:
                    self._free += 1
                else:
                    del self._waiting[begun]
                    begun.may_go_on.release()
            if not isinstance(error, (RuntimeError, MemoryError)):
                raise
            if begun is not None:
                return
            logger.warning("cannot start a thread: %s", error)
            raise NoThreadError("no thread for the model can be started") from error

    def _serve(self) -> None:
        """Call what waits, one after the other, until nothing does. Called by a thread, which has a place."""
        with self._lock:
            self._is_coming = False
            work = self._next()
        while work is not None:
            with suppress(NoThreadError):  # this thread takes the others later
                self._fill_places()
            work.call()
            with self._lock:
                work.has_ended = True
                ended, work = work, self._next()
            if ended.is_given_up:
                ended.result = None
                ended.mailbox.put(partial(self._forget, ended))
            else:
                ended.mailbox.put(ended.wake)
            del ended

    def _next(self) -> Work | None:
        """Return the next call of a thread that has a place; None if the place goes to another thread, or is free."""
        while self._waiting:
            work, _ = self._waiting.popitem(last=False)
            if not work.has_begun:
                work.has_begun = True
                return work
            work.may_go_on.release()
            if not self._free:
                return None
            self._free -= 1
        self._free += 1
        return None

    def _let_go_on(self, work: Work) -> None:
        """Let a thread go on that has waited, when there is a place for it."""
        with self._lock:
            work.pull = None
            if self._free and not self._waiting:
                self._free -= 1
                work.may_go_on.release()
                return
            self._waiting[work] = None
        with suppress(NoThreadError):
            self._fill_places()

    def give_up(self, work: Work) -> None:
        """Stop waiting for work. If it has not begun, it never will; if it goes on, it is abandoned."""
        with self._lock:
            work.is_given_up = True
            if not work.has_begun:
                self._waiting.pop(work, None)
                work.has_ended = True
        if work.has_ended:
            work.drop()
            return
        self.abandoned += 1
        self._abandoned.add(work)
        work.reservation = work.reservation.handed_over()
        if work.pull is not None:
            work.result = _Raised(LocalProtocolError(_OVER))
            self._let_go_on(work)

    def _forget(self, work: Work) -> None:
        """Free the memory of abandoned work that has ended."""
        self._abandoned.discard(work)
        work.reservation.release()


_OVER: Final = "the model has not answered in time; its request is over"


class Work:
    """One call in a thread; shared by the thread and the task that waits for it.

    Attributes:
        reservation: the memory that it works on.
        has_begun: whether the thread has begun the call.
        has_ended: whether the call has returned, or was given up before it began.
        is_given_up: whether the task waits no more.
        pull: what the thread waits for; the task awaits it.
        result: of the call, or of `pull`.
        event: what the task waits for.
        wake: called when there is a result for the task.
        mailbox: of the task's event loop.
        may_go_on: what the thread waits for.
    """

    mailbox: Mailbox
    event: Event
    wake: Callable[[], object]
    may_go_on: Lock
    _context: Context

    def __init__(self, reservation: Reservation) -> None:
        """Prepare for one call of a function."""
        self._function: Callable[[], object] | None = None
        self.reservation = reservation
        self.has_begun: bool = False
        self.has_ended: bool = False
        self.is_given_up: bool = False
        self.pull: _Pull | None = None
        self.result: object = None

    def prepare(self, function: Callable[[], object], mailbox: Mailbox, wake: Callable[[], object] | None) -> None:
        """Take the function, and what its thread and its task need; without `wake`, the task has an `event`."""
        self._function = function
        self._context = copy_context()
        if (sniffio := sys.modules.get("sniffio")) is not None:  # it would tell the thread that it is the event loop's
            self._context.run(sniffio.current_async_library_cvar.set, None)
        self.mailbox = mailbox
        if wake is None:
            self.renew_event()
        else:
            self.wake = wake
        self.may_go_on = Lock()
        self.may_go_on.acquire()

    def renew_event(self) -> None:
        """Have the task wait for another event, which `wake` sets."""
        self.event = self.mailbox.event()
        self.wake = self.event.set

    def call(self) -> None:
        """Call the function, and keep its result for `take`; the thread calls this."""
        function, context = self._function, self._context
        self._function = None
        del self._context
        self.result = context.run(_called, cast("Callable[[], object]", function))

    @property
    def has_result(self) -> bool:
        """Whether the function has returned something that `take` returns."""
        return self.has_ended and not isinstance(self.result, _Raised)

    def fail(self, error: Exception) -> None:
        """Have `take` raise an error: the function could not be called."""
        self.result = _Raised(error)

    def drop(self) -> None:
        """Forget the function and its result."""
        self._function = self.result = None

    def take(self) -> object:
        """Return the result, or raise the exception of the function."""
        result, self.result = self.result, None
        if isinstance(result, _Raised):
            result.again()
        return result


class _Raised:
    """What a function in a thread has raised, or the event loop for one.

    A future would be an object to which frames in its traceback refer. Then only the garbage collector would free the
    memory of the request. So it goes by this, and so does a reply, which refers to what a model raised.
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


async def _outcome(pull: _Pull) -> object:
    try:
        return await pull()
    except Exception as error:  # noqa: BLE001 - raised again, in the thread
        return _Raised(error)


def _called(function: Callable[[], object]) -> object:
    try:
        return function()
    except BaseException as error:  # noqa: BLE001 - raised again, where it is awaited
        return _Raised(error)


def load_of(
    budget: Budget,
    pool: Pool | None,
    workers: Workers,
    *,
    connections: int | None = None,
    requests_in_progress: int | None = None,
) -> ServerLoad:
    """Return the load.

    Args:
        budget: the memory of all requests.
        pool: None if there is none.
        workers: the threads.
        connections: None if a framework has them.
        requests_in_progress: the same.
    """
    return ServerLoad(
        reserved_bytes=budget.reserved,
        max_memory_bytes=budget.max_bytes,
        waiting_for_memory=budget.waiting,
        idle_pool_bytes=0 if pool is None else pool.idle_bytes,
        reused_pool_bytes=0 if pool is None else pool.reused_bytes,
        busy_threads=workers.busy,
        waiting_for_thread=workers.waiting,
        abandoned_calls=workers.abandoned,
        unfinished_calls=workers.unfinished,
        connections=connections,
        requests_in_progress=requests_in_progress,
    )
