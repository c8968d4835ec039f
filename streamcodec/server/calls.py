"""Calls: where models run. In worker threads, so that the event loop goes on; or on the event loop, if they are async.

The thread of a model that does not return cannot be ended. When its time is over, or its connection has to end all the
same, the call is *abandoned*, and counted. Its thread keeps its place among the threads, and the request's memory,
until it returns: else whoever knows a request that takes for ever could have one thread after the other.

A model that takes windows waits for them wherever it runs: a thread has the event loop wait in its place, an `async
def` awaits them. Rows that a model answers with are made where it has run, too.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any, Final, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from streamcodec.core.encoder import Part
from streamcodec.core.errors import LocalProtocolError
from streamcodec.core.model import RequestHeader, TensorSpec
from streamcodec.core.rows import Rows, Window, synchronous
from streamcodec.http.messages import HttpEvent
from streamcodec.server.budget import Reservation
from streamcodec.service import Inference, Reply, json_reply, unavailable_reply
from streamcodec.service.models import Values
from streamcodec.service.windows import check_end, checked

AsyncPull = Callable[[], Coroutine[Any, Any, HttpEvent]]
"""Waits for the next event of a request."""

_T = TypeVar("_T")

_WATCH_SECONDS: Final = 0.05
"""So often somebody looks whether an abandoned thread has ended: seldom enough to cost nothing."""


class Caller:
    """Calls models, a bounded number of them at once, and waits for them for a bounded time.

    Attributes:
        abandoned: calls that had not returned in time, or when their connections had to end.
        watchers: where somebody waits for the threads of abandoned calls, as long as the server serves.
    """

    def __init__(self, max_workers: int, timeout: float) -> None:
        """Use so many worker threads, for so many seconds each time."""
        self._workers = anyio.CapacityLimiter(max_workers)
        self._threads = anyio.CapacityLimiter(math.inf)  # anyio's own gives a place back although the thread goes on
        self._timeout = timeout
        self._abandoned: set[_Work] = set()
        self.abandoned = 0
        self.watchers: TaskGroup | None = None

    @property
    def unfinished(self) -> int:
        """Abandoned calls that go on."""
        return sum(not work.has_ended for work in self._abandoned)

    async def call(self, inference: Inference, pull: AsyncPull, reservation: Reservation) -> Reply:
        """Have the model of a request called.

        Args:
            inference: the request.
            pull: for a model that takes windows; the time that this takes is not the model's.
            reservation: of the request's memory. The thread that is abandoned keeps it.

        Returns:
            The model's reply. In its place, 504 if the model has not answered in time: it is what this server asks in
            turn, and to ask again at once would not help. 503, which would, if no thread was free so long.
        """
        work = _Work(reservation)
        with anyio.move_on_after(self._timeout) as scope:
            pull = partial(_uncounted, pull, scope)
            if inference.opening.model.is_async:
                work.has_begun = True
                return await self._await(inference, pull)
            return await self._in_thread(_run, inference, lambda: anyio.from_thread.run(pull), work=work)
        if not work.has_begun:
            return unavailable_reply("all threads for models are taken", retry_after=1)
        msg = f"model {inference.opening.model.name!r} has not answered within {self._timeout:g} seconds"
        return json_reply({"error": msg}, status=HTTPStatus.GATEWAY_TIMEOUT)

    def sendable(self, parts: list[Part]) -> list[Part]:
        """Return the parts of an answer with rows that never make the event loop wait: a thread makes them."""
        return [self._rows_of_thread(part) if isinstance(part, Rows) else part for part in parts]

    async def _await(self, inference: Inference, pull: AsyncPull) -> Reply:
        opening = inference.opening
        request = inference.request(lambda spec, header: _windows_of(spec, header, pull))
        try:
            outputs = await opening.model.predict(request)  # type: ignore[misc] # as it says of itself
            outputs = {name: await _synchronous(value, name, request.header) for name, value in outputs.items()}
            if opening.encoding is None:
                return opening.reply(outputs, request.header)
            return await self._in_thread(opening.reply, outputs, request.header)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model may raise anything
            return opening.failure(error)

    async def _in_thread(self, function: Callable[..., _T], *arguments: object, work: _Work | None = None) -> _T:
        work = work or _Work()
        try:
            self._workers.acquire_on_behalf_of_nowait(work)
        except anyio.WouldBlock:
            await self._workers.acquire_on_behalf_of(work)
        try:
            run = partial(work.run, partial(function, *arguments))
            return cast("_T", await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads))
        finally:
            if work.is_going_on():
                self._abandon(work)
            else:
                self._workers.release_on_behalf_of(work)

    def _abandon(self, work: _Work) -> None:
        self.abandoned += 1
        self._abandoned.add(work)
        if work.reservation is not None:
            work.reservation = work.reservation.handed_over()
        if self.watchers is not None:
            self.watchers.start_soon(self._watch, work)

    async def _watch(self, work: _Work) -> None:
        """Wait until an abandoned thread has ended, and give back what it has."""
        while not work.has_ended:  # noqa: ASYNC110 - to wake this task, its thread would have to know the event loop
            await anyio.sleep(_WATCH_SECONDS)
        self._abandoned.discard(work)
        self._workers.release_on_behalf_of(work)
        if work.reservation is not None:
            work.reservation.release()

    def _rows_of_thread(self, rows: Rows) -> Rows:
        if rows.is_asynchronous:
            return rows
        return Rows(rows.datatype, rows.shape, self._iterate(iter(synchronous(rows))))

    async def _iterate(self, windows: Iterator[Window]) -> AsyncIterator[Window]:
        while (window := await self._in_thread(lambda: next(windows, None))) is not None:
            yield window


class _Work:
    """Something that a thread does; known to the thread and to who waits for it.

    Attributes:
        reservation: the memory that it works on.
        has_begun: whether the thread is at it.
        has_ended: whether it has returned, or was told in time that nobody waits for it.
    """

    def __init__(self, reservation: Reservation | None = None) -> None:
        self._lock = Lock()
        self.reservation = reservation
        self.has_begun = False
        self.has_ended = False

    def run(self, function: Callable[[], _T]) -> _T | None:
        """Do it; called by the thread."""
        with self._lock:
            if self.has_ended:
                return None
            self.has_begun = True
        try:
            return function()
        except Exception:
            raise
        except BaseException as error:  # would end the event loop, which it cannot have been meant for
            msg = f"a thread was to be ended by {type(error).__name__}"
            raise RuntimeError(msg) from error
        finally:
            self.has_ended = True

    def is_going_on(self) -> bool:
        """Whether it has begun and not ended; if it has not begun, it never will."""
        with self._lock:
            self.has_ended = self.has_ended or not self.has_begun
            return not self.has_ended


def _run(inference: Inference, pull: Callable[[], HttpEvent]) -> Reply:
    """Call a model within a thread."""
    try:
        return inference.run(pull)
    except KeyboardInterrupt as error:  # the model's own: Ctrl-C comes to the main thread
        return inference.opening.failure(error)


async def _uncounted(pull: AsyncPull, scope: anyio.CancelScope) -> HttpEvent:
    """Wait for the client with the model's time standing still.

    Raises:
        LocalProtocolError: the call is over; nobody waits for what its thread still does.
    """
    if scope.cancel_called:
        msg = "the model has not answered in time; its request is over"
        raise LocalProtocolError(msg)
    left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
    try:
        return await pull()
    finally:
        scope.deadline = anyio.current_time() + left


async def _windows_of(spec: TensorSpec, header: RequestHeader, pull: AsyncPull) -> AsyncIterator[Window]:
    """Yield the windows of one input, as `windows_of` does."""
    is_last = False
    while not is_last:
        event = checked(await pull(), spec)
        yield event.array
        is_last = event.is_last
    if spec is header.tensors[-1]:
        check_end(await pull())


async def _synchronous(value: Values, name: str, header: RequestHeader) -> Values:
    """Wait for rows that are wanted as JSON, which is written all at once; leave everything else as it is."""
    if not isinstance(value, Rows) or not isinstance(value.windows, AsyncIterable):
        return value
    requested = next((output for output in header.outputs or () if output.name == name), None)
    if header.wants_binary(requested):
        return value
    return Rows(value.datatype, value.shape, [window.copy() async for window in value.windows])
