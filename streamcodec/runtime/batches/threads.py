"""Threads: a queue of requests whose threads wait, as under WSGI. The threads themselves call the model.

The thread of the oldest request waits for the time of its batch; all others wait to be woken. Whoever finds that a
batch has to be closed calls the model for it, wakes the threads of its requests, and then the oldest one that is left.
"""

from __future__ import annotations

from threading import Event, Lock, current_thread, main_thread
from time import monotonic
from typing import Final, cast

from streamcodec.runtime.batches.driving import calls_of, drive, entered, tell_places
from streamcodec.runtime.observation import Observation
from streamcodec.service import Inference, Model, Reply, Reservation, unavailable_reply
from streamcodec.service.batches.collector import BatchCollector, Closed, Waiting
from streamcodec.service.batches.joining import Check
from streamcodec.service.batches.members import Failed, Member, arranged
from streamcodec.service.models.batching import Batch, QueueFullError
from streamcodec.service.models.model import Outputs


class _Sleeper(Member):
    """A request whose thread waits for an event."""

    __slots__ = ("event", "is_done", "reservation")

    def __init__(self, inference: Inference, reservation: Reservation) -> None:
        super().__init__(inference.request(), inference.seat)
        self.event = Event()
        self.is_done = False
        self.is_watched = inference.watch is not None
        self.reservation = reservation


class ThreadQueue:
    """The requests to one model, in any threads."""

    def __init__(self, model: Model) -> None:
        """Begin without requests."""
        self._model = model
        self._collector: BatchCollector[_Sleeper] = BatchCollector(cast("Batch", model.batch))
        self._lock = Lock()

    @property
    def rows(self) -> int:
        """Number of rows that wait."""
        return self._collector.rows

    def call(self, member: _Sleeper, check: Check) -> Outputs | Failed:
        """Wait until the model has been called with a request.

        Raises:
            QueueFullError: too many rows wait.
        """
        with self._lock:
            waiting = entered(self._collector, member, self._model)
        while not member.is_done:
            closed, seconds = self._next(waiting)
            if closed is not None:
                self._call(closed, check)
            else:
                member.event.wait(seconds)
                member.event.clear()
        outcome, member.outcome = member.outcome, None
        return cast("Outputs | Failed", outcome)

    def _next(self, waiting: Waiting[_Sleeper]) -> tuple[Closed[_Sleeper] | None, float | None]:
        """Return a batch that is to be called now; or how long to wait, None to be woken."""
        with self._lock:
            now = monotonic()
            closed = self._collector.take(now)
            if closed is not None:
                self._wake_oldest()
                return closed, None
            due = self._collector.due
            return None, due - now if self._collector.oldest is waiting and due != float("inf") else None

    def _call(self, closed: Closed[_Sleeper], check: Check) -> None:
        with self._lock:  # rows of a block are moved for one batch at a time
            members = arranged(closed.items)
        tell_places(closed)
        memory = members[0].reservation.beside()
        try:
            work, _ = calls_of(members, self._model, check, memory)
            drive(work, self._model, is_in_thread=current_thread() is not main_thread())
        finally:
            memory.release()
            with self._lock:
                self._collector.running -= 1
                for member in members:
                    if member.outcome is None:
                        member.outcome = Failed(RuntimeError("the program was interrupted while the model worked"))
                    member.is_done = True
                    member.event.set()
                self._wake_oldest()

    def _wake_oldest(self) -> None:
        oldest = self._collector.oldest
        if oldest is not None:
            oldest.item.event.set()


class _Threads:
    """Stands for all threads of this process, as an event loop does for its tasks."""


_THREADS: Final = _Threads()
_LOCK: Final = Lock()


def run_in_batch(inference: Inference, reservation: Reservation) -> Reply:
    """Make the reply of a complete request, whose model is called with the rows of other threads, too."""
    watch, resolved = inference.watch, inference.resolved
    member = _Sleeper(inference, reservation)
    request = member.request
    if watch is not None:
        watch.call_begun(request)
    try:
        outcome = _queue_of(resolved.model).call(member, resolved.checked)
    except QueueFullError as error:
        return unavailable_reply(str(error), retry_after=1)
    finally:
        if watch is not None:
            if isinstance(watch, Observation):
                watch.batched(member.place)
            watch.call_ended()
    if isinstance(outcome, Failed):
        return resolved.failure(outcome.error, request.header.id)
    try:
        return inference.reply(outcome, request.header)
    except Exception as error:  # noqa: BLE001 - outputs that cannot be sent, whatever their class does
        return resolved.failure(error, request.header.id)


def _queue_of(model: Model) -> ThreadQueue:
    with _LOCK:
        queue = model.queues.get(_THREADS)
        if queue is None:
            queue = model.queues[_THREADS] = ThreadQueue(model)
    return cast("ThreadQueue", queue)
