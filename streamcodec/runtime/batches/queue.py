"""Queue: the requests to one model on one event loop: they wait, are called together, and get their outputs.

The task of each request waits for its own outcome, within its own time limit. No task stands for the batch, unless the
model is an `async def`: a timer closes it, a thread calls the model, and its end wakes the tasks.

A request that leaves, because its client has left or its time is over, takes only its rows with it. If it is in a batch
that is being called, its memory is kept until the call has ended. If all have left, the call is given up, and a new one
may begin.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Hashable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, cast

import anyio

from streamcodec.runtime.batches.driving import calls_of, drive, drive_async, entered, tell_places
from streamcodec.runtime.models.pace import may_run_batch_inline, run_batch
from streamcodec.runtime.models.threads import Mailbox
from streamcodec.runtime.models.workers import NoThreadError, Work, Workers
from streamcodec.service import InferenceRequest, Model, Reservation
from streamcodec.service.batches.blocks import Seat
from streamcodec.service.batches.collector import BatchCollector, Closed, Waiting
from streamcodec.service.batches.joining import Calls, Check
from streamcodec.service.batches.members import Failed, Member, arranged
from streamcodec.service.models.batching import Batch
from streamcodec.service.models.model import Outputs
from streamcodec.transports import turns

_STOPPED: Final = "the batch was ended from outside, as when a server stops"


class QueuedMember(Member):
    """A request whose task waits.

    Attributes:
        done: called when it has its outcome.
        is_done: whether it has.
        reservation: the memory of the request.
        running: the call that it is a part of; None before.
        queue: which it has come to.
        waiting: what stands for it there; None before, and when it is over.
        check: of what the model returns.
        workers: the threads of its server.
    """

    __slots__ = ("check", "done", "is_done", "queue", "reservation", "running", "waiting", "workers")

    queue: Queue
    check: Check
    workers: Workers

    def __init__(
        self,
        request: InferenceRequest,
        reservation: Reservation,
        done: Callable[[], object],
        seat: Seat | None = None,
        key: Hashable = None,
    ) -> None:
        """Prepare to wait."""
        super().__init__(request, seat, key)
        self.done: Callable[[], object] = done
        self.is_done: bool = False
        self.reservation: Reservation = reservation
        self.running: _Running | None = None
        self.waiting: Waiting[QueuedMember] | None = None

    def leave(self) -> None:
        """Take it out of the queue, or out of its batch."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.has_left = True
            self.queue.left(self, waiting)

    def take(self) -> Outputs | Failed:
        """Return the outcome.

        Raises:
            NoThreadError: no thread can be started.
        """
        self.waiting = None
        outcome, self.outcome = self.outcome, None
        if isinstance(outcome, Failed) and isinstance(outcome.error, NoThreadError):
            raise outcome.error
        return cast("Outputs | Failed", outcome)


class _Running:
    """One batch that is being called.

    Attributes:
        members: its requests.
        memory: of the block of rows, and of requests that have left.
        give_up: ends the call early.
        is_over: whether it has ended, or was given up.
    """

    __slots__ = ("give_up", "is_over", "members", "memory")

    def __init__(self, members: list[QueuedMember]) -> None:
        self.members = members
        self.memory = members[0].reservation.beside()
        self.give_up: Callable[[], object] | None = None
        self.is_over = False


class Queue:
    """The requests to one model on one event loop."""

    def __init__(self, model: Model, loop: Any) -> None:  # noqa: ANN401 - as `current_loop` returns it
        """Begin without requests."""
        self._model = model
        self._collector: BatchCollector[QueuedMember] = BatchCollector(cast("Batch", model.batch))
        self._mailbox = Mailbox(loop)
        self._timer: float | None = None
        self._is_closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def rows(self) -> int:
        """Number of rows that wait."""
        return self._collector.rows

    def put(self, member: QueuedMember, check: Check, workers: Workers) -> None:
        """Have the model called with a request, which is `done` when it has its outcome.

        Args:
            member: the request.
            check: of what the model returns.
            workers: the threads of the server.

        Raises:
            QueueFullError: too many rows wait.
        """
        member.queue, member.waiting = self, entered(self._collector, member, self._model)
        member.check, member.workers = check, workers
        if self._collector.is_ripe:
            self._close(monotonic())
        elif self._timer is None:
            self._set_timer()

    async def wait(self, member: QueuedMember) -> Outputs | Failed:
        """Wait for the outcome of a request. If this is cancelled, the request leaves.

        Raises:
            NoThreadError: no thread can be started.
        """
        if not member.is_done:
            event = self._mailbox.event()
            member.done = event.set
            try:
                await event.wait()
            except BaseException:
                member.leave()
                raise
        return member.take()

    def left(self, member: QueuedMember, waiting: Waiting[QueuedMember]) -> None:
        """Report that nobody wants the outcome of a request any more."""
        running = member.running
        if self._collector.remove(waiting) or running is None:
            return
        member.reservation.hand_to(running.memory)
        member.running = None
        if all(other.has_left for other in running.members) and running.give_up is not None:
            give_up, running.give_up = running.give_up, None  # it refers to the batch, too
            running.is_over = True
            self._collector.running -= 1
            give_up()
            self._close(monotonic())

    def _set_timer(self) -> None:
        """Have the next batch closed when its time comes."""
        due = self._collector.due
        if self._timer is None and due != float("inf"):
            self._timer = due
            _call_later(self._mailbox.loop, max(0.0, due - monotonic()), self._is_due)

    def _is_due(self) -> None:
        due, self._timer = cast("float", self._timer), None
        self._close(max(monotonic(), due))  # timers may come a little early

    def _close(self, now: float) -> None:
        """Call the complete batches. A batch that runs on the event loop ends within this, and so calls it again."""
        if not self._is_closing:
            self._is_closing = True
            self._close_some(now)

    def _close_some(self, now: float) -> None:
        """Call them one after the other, in as many turns of the event loop as that takes."""
        try:
            while (closed := self._collector.take(max(now, monotonic()))) is not None:
                self._start(closed)
                if turns.is_over():
                    _call_later(self._mailbox.loop, 0.0, partial(self._close_some, now))
                    return
        except BaseException:
            self._is_closing = False
            raise
        self._is_closing = False
        self._set_timer()

    def _start(self, closed: Closed[QueuedMember]) -> None:
        """Call the model for a batch."""
        try:
            members = arranged(closed.items)
            running = _Running(members)
            for member in members:
                member.running = running
            tell_places(closed)
            work, nbytes = calls_of(members, self._model, members[0].check, running.memory)
        except MemoryError as error:
            self._collector.running -= 1
            _wake(closed.items, error)
            return
        if self._model.is_async:
            _spawn(self._mailbox.loop, self._tasks, partial(self._run_async, running, work))
        elif may_run_batch_inline(self._model, nbytes):
            run_batch(self._model, nbytes, partial(drive, work, self._model, is_in_thread=False), is_in_thread=False)
            self._ended(running)
        else:
            call = partial(drive, work, self._model, is_in_thread=True)
            call = partial(run_batch, self._model, nbytes, call, is_in_thread=True)
            self._start_in_thread(running, call, members[0].workers)

    def _start_in_thread(self, running: _Running, function: Callable[[], None], workers: Workers) -> None:
        work = Work(running.memory)

        def give_up() -> None:
            workers.give_up(work)  # if it has begun, it keeps the memory
            running.memory.release()

        running.give_up = give_up
        try:
            workers.start(work, function, partial(self._ended, running))
        except NoThreadError as error:
            for member in running.members:
                member.outcome = Failed(error)
            self._ended(running)

    async def _run_async(self, running: _Running, work: Calls) -> None:
        try:
            with anyio.CancelScope() as scope:
                running.give_up = scope.cancel
                await drive_async(work, self._model)
        finally:
            self._ended(running)

    def _ended(self, running: _Running) -> None:
        """Wake the tasks of a batch, and begin with the next one."""
        running.memory.release()
        if running.is_over:
            return
        running.is_over = True
        running.give_up = None
        self._collector.running -= 1
        _wake(running.members, RuntimeError(_STOPPED))
        self._close(monotonic())


def _wake(members: Iterable[QueuedMember], error: Exception) -> None:
    """Tell the requests of a batch that it is over; those without an outcome get the error."""
    for member in members:
        if member.outcome is None:
            member.outcome = Failed(error)
        member.running = None
        member.is_done = True
        with suppress(MemoryError):  # the others have to be told, too; a connection looks again after some time
            member.done()


def queue_of(model: Model, loop: Any) -> Queue:  # noqa: ANN401 - as `current_loop` returns it
    """Return the queue of a model on the current event loop."""
    queue = model.queues.get(loop)
    if queue is None:
        queue = model.queues[loop] = Queue(model, loop)
    return cast("Queue", queue)


def _call_later(loop: Any, seconds: float, function: Callable[[], None]) -> None:  # noqa: ANN401 - of `current_loop`
    if isinstance(loop, asyncio.AbstractEventLoop):
        loop.call_later(seconds, function)
        return

    async def wait() -> None:
        await anyio.sleep(seconds)
        function()

    sys.modules["trio"].lowlevel.spawn_system_task(wait)


def _spawn(loop: Any, tasks: set[asyncio.Task[None]], function: Callable[[], Coroutine[Any, Any, None]]) -> None:  # noqa: ANN401 - as above
    if isinstance(loop, asyncio.AbstractEventLoop):
        task = loop.create_task(function())
        tasks.add(task)  # the event loop itself does not keep it
        task.add_done_callback(tasks.discard)
        return
    sys.modules["trio"].lowlevel.spawn_system_task(function)
