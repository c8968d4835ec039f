"""Calls: where models run: in worker threads, so that the event loop goes on, or on the event loop if they are async.

A model that takes windows waits for them where it runs: a thread lets the event loop wait for it, an `async def` awaits
them. No thread starts before the first window has arrived. If a model answers with rows, they are also made where it
has run.

A model may raise anything at any time, and must never end more than its own request. So exceptions are checked wherever
a model's code runs on the event loop. An exception that ends the task or the program is passed on; all others belong to
the model.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.memory.rows import Rows, Window, WindowIterable
from streamcodec.engine.message import Part
from streamcodec.engine.record import replaced
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.json.values import LargeValues
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.runtime.batches.queue import QueuedMember, queue_of
from streamcodec.runtime.models.failures import is_ending
from streamcodec.runtime.models.pace import late_reply, run
from streamcodec.runtime.models.threads import current_loop
from streamcodec.runtime.models.workers import NoThreadError, Work, Workers
from streamcodec.runtime.observation import Observation
from streamcodec.service import Inference, InferenceRequest, Model, Reply, ResolvedHead, unavailable_reply
from streamcodec.service.batches.members import Failed
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.memory.lane import LaneInference
from streamcodec.service.models.batching import QueueFullError
from streamcodec.service.models.model import Outputs
from streamcodec.service.request.plan import Plan
from streamcodec.service.request.windows import check_end, checked
from streamcodec.transports import turns
from streamcodec.transports.inthread import in_thread
from streamcodec.transports.limited import current_time

AsyncPull = Callable[[], Coroutine[Any, Any, HttpEvent]]
"""Waits for the next event of a request."""


class ClientWatch(Protocol):
    """A client that may leave while its model works."""

    has_left: bool
    """Whether the client has left, so that the model was cancelled."""

    def forget(self) -> None:
        """Report that the model has returned."""
        ...


Watch = Callable[[anyio.CancelScope], ClientWatch]
"""Begins to watch a client. If the client leaves, the scope is cancelled."""

_T = TypeVar("_T")

_LEAST_TIMEOUT: Final = 1.0
"""A model that has less time is waited for by a task from the beginning."""


class ModelCaller:
    """Calls models for one connection, and waits for them for a limited time."""

    __slots__ = ("_begun", "_loop", "_member", "_model", "_reservation", "_since", "_time", "_timeout", "_workers")

    def __init__(self, workers: Workers, reservation: Reservation, timeout: float) -> None:
        """Prepare for any number of calls, one at a time.

        Args:
            workers: the server's threads.
            reservation: of the memory of the current request. An abandoned thread keeps it.
            timeout: seconds for an answer, and again for each window of it.
        """
        self._workers = workers
        self._reservation = reservation
        self._timeout = timeout
        self._time = _Time(timeout, Work(reservation))
        self._member: QueuedMember | None = None
        self._model: Model | None = None
        self._begun: Work | None = None
        self._since = 0.0
        self._loop: Any = None

    async def call(self, inference: Inference, pull: AsyncPull, watch: Watch | None) -> Reply:
        """Call the model of a request.

        Args:
            inference: the request.
            pull: for a model that takes windows; the time that this takes is not the model's.
            watch: detects that the client leaves while an `async def` model works on a complete request.

        Returns:
            The model's reply; or 504 if the model has not answered in time: the server is its gateway, and an immediate
            retry would not help. Or 503 if no thread was free for so long, or none can be started: a retry may help.

        Raises:
            ConnectionResetError: the client has left, and the model was cancelled.
        """
        client: ClientWatch | None = None
        begun, self._begun = self._begun, None
        work = begun or Work(self._reservation)
        time = _Time(self._timeout, work)
        pull = partial(time.uncounted, pull)
        reply: Reply | None = None
        try:
            with time.limit(None if begun is None and self._member is None else self._since) as scope:
                if inference.resolved.is_awaited:
                    work.has_begun = inference.resolved.is_async
                    client = None if inference.is_windowed or watch is None else watch(scope)
                    reply = await self._await(inference, pull, client, work)
                elif begun is not None:
                    await self._workers.join(begun)
                    reply = cast("Reply", begun.take())
                else:
                    reply = await self._in_worker(inference, time, pull)
                self._time = time  # its rows have the same time limit
        except (NoThreadError, QueueFullError) as error:
            return unavailable_reply(str(error), retry_after=1)
        if reply is not None:
            await _leave_turn(inference)
            return reply
        if client is not None and client.has_left:
            msg = "the client has left while its model worked"
            raise ConnectionResetError(msg)
        if not work.has_begun:
            return unavailable_reply("all threads for models are taken", retry_after=1)
        return late_reply(inference.resolved, self._timeout)

    def end(self) -> None:
        """Report that the whole answer has been sent, or never will be."""
        if self._member is not None:
            self._member.leave()
            self._member = self._model = None
        if self._begun is not None:
            self._workers.give_up(self._begun)
            self._begun = None
        self._workers.leave(self)

    def sendable(self, parts: list[Part]) -> list[Part]:
        """Return the parts of an answer, with rows that do not block the event loop: a thread makes them."""
        return [
            Rows(part.datatype, part.shape, self._made(part.windows)) if isinstance(part, Rows) else part
            for part in parts
        ]

    async def _in_worker(self, inference: Inference, time: _Time, pull: AsyncPull) -> Reply:
        first: list[HttpEvent] = []
        if inference.is_windowed:
            self._workers.enter(self)
            try:
                first.append(await pull())
            except MessageError as error:  # as if the model had pulled, and had not caught it
                return inference.resolved.failure(error, inference.request_id)

        async def next_event() -> HttpEvent:
            return first.pop() if first else await pull()

        def wait() -> HttpEvent:
            return self._workers.wait(time.work, next_event)

        return await self._workers.run(time.work, partial(run, inference, wait))

    async def _await(self, inference: Inference, pull: AsyncPull, client: ClientWatch | None, work: Work) -> Reply:
        resolved = inference.resolved
        if isinstance(inference, LaneInference):
            try:
                await self._in_thread(inference.gather)
            except (MessageError, MemoryError) as error:
                return resolved.failure(error, inference.request_id)
        request = inference.request(lambda spec, header: _WindowsOf(spec, header, pull))
        header = request.header
        try:
            try:
                if resolved.model.batch is None:
                    outcome: Outputs | Failed = resolved.checked(await _predicted(inference, request))
                else:
                    outcome = await self._in_batch(inference, request, work)
            finally:
                if client is not None:
                    client.forget()
            if isinstance(outcome, Failed):
                return resolved.failure(outcome.error, header.id)
            return await self._replied(inference, outcome, header)
        except (NoThreadError, QueueFullError):
            raise
        except BaseException as error:
            if is_ending(error):
                raise
            return resolved.failure(error, header.id)

    async def _replied(self, inference: Inference, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply, in a thread if that takes long."""
        outputs = {
            name: await _synchronous(value, name, header) if isinstance(value, Rows) else value
            for name, value in outputs.items()
        }
        if not isinstance(inference, LaneInference) and inference.resolved.is_quick(outputs, header):
            return inference.reply(outputs, header)
        return await self._in_thread(partial(inference.reply, outputs, header))

    def begin(self, inference: Inference, done: Callable[[], None]) -> bool:
        """Have a complete request wait for its batch, or for its model in a thread, while no task waits for it.

        Args:
            inference: the request.
            done: called when `finish` may return its reply.

        Returns:
            Whether the request waits. If `call` is called meanwhile, it goes on with it; if not, `call` begins.
        """
        watch, resolved = inference.watch, inference.resolved
        if watch is not None and not (isinstance(watch, Observation) and not watch.tells_calls):
            return False  # there is no task in which an observer could be told of the beginning and the end
        if type(inference) is not Inference or self._timeout < _LEAST_TIMEOUT:
            return False
        if resolved.model.batch is None:
            return self._begin_in_thread(inference, done)
        if (begun := self._waiting(resolved.model)) is not None:
            return not begun.is_done
        request = inference.request()
        member = QueuedMember(request, self._reservation, done, inference.seat)
        member.is_watched = watch is not None
        if not self._begin(resolved, member):
            return False
        if watch is not None:
            watch.call_begun(request)
        return True

    def _begin_in_thread(self, inference: Inference, done: Callable[[], None]) -> bool:
        if inference.resolved.is_awaited or inference.is_windowed or inference.is_wide:
            return False
        if self._begun is not None:  # it could not begin
            return False
        self._begun, self._since = Work(self._reservation), current_time()
        try:
            self._workers.start(self._begun, partial(run, inference), done)
        except NoThreadError as error:
            self._begun.fail(error)  # `call` raises it
            return False
        return True

    def begin_whole(self, resolved: ResolvedHead, plan: Plan, body: memoryview, done: Callable[[], None]) -> bool:
        """Put a request into a batch that has come whole and has not begun, if nobody observes it; see `begin`.

        It has its memory then. If `begin` or `call` is called for it later, it goes on with the one that waits.
        """
        if self._timeout < _LEAST_TIMEOUT or not self._reservation.ask_at_once(plan.nbytes):
            return False
        if self._begin(resolved, QueuedMember(plan.request(body), self._reservation, done, key=plan.key)):
            return True
        self._reservation.release()
        return False

    def _here(self) -> Any:  # noqa: ANN401 - of `current_loop`
        """Return the event loop of the connection. To ask for it takes a system call."""
        if self._loop is None:
            self._loop = current_loop()
        return self._loop

    def _begin(self, resolved: ResolvedHead, member: QueuedMember) -> bool:
        try:
            queue_of(resolved.model, self._here()).put(member, resolved.checked, self._workers)
        except QueueFullError:
            return False
        self._member, self._model, self._since = member, resolved.model, current_time()
        return True

    def _waiting(self, model: Model) -> QueuedMember | None:
        """Return the request that waits, if it waits for this model; another one has been replaced meanwhile."""
        if self._model is not model:
            self.end()
        return self._member

    def finish(self, inference: Inference) -> Reply | None:
        """Make the reply of a request that has begun to wait; None if `call` has to make it, which can take longer."""
        if (begun := self._begun) is not None:
            if not begun.has_result:
                return None
            self._begun = None
            return cast("Reply", begun.take())
        member = self._member

        def make(outcome: Outputs, header: RequestHeader) -> Reply:
            _tell(inference, cast("QueuedMember", member))
            return inference.reply(outcome, header)

        return self.finish_whole(inference.resolved, make)

    def finish_whole(self, resolved: ResolvedHead, make: Callable[[Outputs, RequestHeader], Reply]) -> Reply | None:
        """Make the reply of the request that has waited for its batch, by `make`; None if `call` has to make it."""
        member = self._member
        if member is None or not member.is_done or isinstance(member.outcome, Failed):
            return None
        outcome, header = cast("Outputs", member.outcome), member.request.header
        if not resolved.is_quick(outcome, header):
            return None
        self._member = self._model = None
        member.take()
        try:
            return make(outcome, header)
        except Exception as error:  # noqa: BLE001 - outputs that cannot be sent, whatever their class does
            return resolved.failure(error, header.id)

    async def _in_batch(self, inference: Inference, request: InferenceRequest, work: Work) -> Outputs | Failed:
        """Wait until the model has been called with the rows of this request and of others."""
        model = inference.resolved.model
        queue, member = queue_of(model, self._here()), self._waiting(model)
        self._member = self._model = None
        try:
            if member is None:
                member = QueuedMember(request, self._reservation, lambda: None, inference.seat)
                if inference.watch is not None:
                    member.is_watched = True
                    inference.watch.call_begun(request)
                queue.put(member, inference.resolved.checked, self._workers)
            return await queue.wait(member)
        finally:
            if member is not None:
                work.has_begun = member.has_begun
                _tell(inference, member)

    async def _in_thread(self, function: Callable[[], _T]) -> _T:
        self._time.work = Work(self._reservation)
        return await self._workers.run(self._time.work, function)

    def _made(self, windows: WindowIterable) -> AsyncIterator[Window]:
        """Return windows that do not block the event loop."""
        return self._texts(windows) if isinstance(windows, LargeValues) else self._windows(windows)

    async def _texts(self, values: LargeValues) -> AsyncIterator[Window]:
        """Yield the text of JSON values. This does not count as the model's time, and takes no thread of the models."""
        texts = iter(values)
        while (text := await in_thread(partial(next, texts, None), self._workers.writing)) is not None:
            yield text

    async def _windows(self, windows: WindowIterable) -> AsyncIterator[Window]:
        """Yield the windows of an answer, however the model makes them."""
        step: Callable[[], Awaitable[Window | None]]
        if isinstance(windows, AsyncIterable):
            step = partial(anext, aiter(windows), None)
        else:
            step = partial(self._in_thread, partial(next, chain(windows), None))  # `chain` calls `iter` in the thread
        try:
            while (window := await self._limited(step)) is not None:
                yield window
        finally:
            if isinstance(windows, AsyncGenerator):  # the garbage collector could not await its end
                await self._limited(windows.aclose)

    async def _limited(self, step: Callable[[], Awaitable[_T]]) -> _T:
        """Let a model continue its answer.

        Raises:
            RemoteProtocolError: the request that the answer is made from breaks a rule.
            RuntimeError: the model has raised something else, or has taken too long.
        """
        with self._time.limit():
            try:
                return await step()
            except MessageError:
                raise
            except BaseException as error:
                if is_ending(error):
                    raise
                msg = f"a model failed with {type(error).__name__} in the middle of its answer"
                raise RuntimeError(msg) from error
        msg = f"a model has not continued its answer within {self._timeout:g} seconds"
        raise RuntimeError(msg)


def _tell(inference: Inference, member: QueuedMember) -> None:
    """Tell who watches the call that it has ended, and in which batch."""
    watch = inference.watch
    if watch is not None:
        if isinstance(watch, Observation):
            watch.batched(member.place)
        watch.call_ended()


async def call_model(inference: Inference, pull: AsyncPull | None = None) -> Reply:
    """Call the model of a request: an `async def` is awaited, any other model runs in a thread.

    This is for programs that read requests themselves, and set no limits for their models. `Server` and the front ends
    for frameworks limit the time, the threads and the memory of models.

    Args:
        inference: the part of its request that the model needs has arrived: all of it, or the JSON header if the model
            takes windows (`Inference.is_windowed`).
        pull: waits for the next event of the request, for a model that takes windows.

    Returns:
        The reply. Its rows do not block the event loop.

    Raises:
        LocalProtocolError: that part has not arrived, or the model takes windows and there is no `pull`.
    """
    if inference.is_windowed and pull is None:
        inference.request()
    caller = ModelCaller(Workers(1, 1), Reservation(Budget(1)), math.inf)
    reply = await caller.call(inference, cast("AsyncPull", pull), None)
    return replaced(reply, buffers=tuple(caller.sendable([*reply.buffers])))


class _Time:
    """The time limit of a model, for its answer and again for each window of it. Waiting for the client does not count.

    Attributes:
        work: the work that a thread does for the model now, if any.
    """

    __slots__ = ("_scope", "_timeout", "work")

    _scope: anyio.CancelScope

    def __init__(self, timeout: float, work: Work) -> None:
        self._timeout = timeout
        self.work = work

    def limit(self, since: float | None = None) -> anyio.CancelScope:
        """Return a scope that begins now, or has begun before, and is left early when the time is over."""
        self._scope = anyio.CancelScope(deadline=(current_time() if since is None else since) + self._timeout)
        return self._scope

    async def uncounted(self, pull: AsyncPull) -> HttpEvent:
        """Wait for the client. This time does not count.

        Raises:
            LocalProtocolError: the time is over; the request of an abandoned thread has ended.
        """
        scope = self._scope
        if scope.cancel_called:
            msg = "the model has not answered in time; its request is over"
            raise LocalProtocolError(msg)
        left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
        try:
            return await pull()
        finally:
            scope.deadline = anyio.current_time() + left


async def _leave_turn(inference: Inference) -> None:
    """Let others go on before the answer is sent: models that have worked beside each other return at the same time."""
    if inference.is_wide:
        await turns.work_off(inference.let_go())
    if turns.is_over():
        await turns.wait()


class _WindowsOf:
    """The windows of one input, as `windows_of` yields them.

    No generator: a model need not take all of them, and an asynchronous generator that is left early would have to be
    closed by the model.
    """

    def __init__(self, spec: TensorSpec, header: RequestHeader, pull: AsyncPull) -> None:
        self._spec = spec
        self._ends_request = spec is header.tensors[-1]
        self._pull = pull
        self._is_last = False

    def __aiter__(self) -> AsyncIterator[Window]:
        return self

    async def __anext__(self) -> Window:
        if self._is_last:
            if self._ends_request:
                self._ends_request = False
                check_end(await self._pull())
            raise StopAsyncIteration
        event = checked(await self._pull(), self._spec)
        self._is_last = event.is_last
        return event.array


async def _predicted(inference: Inference, request: InferenceRequest) -> Outputs:
    """Call a model that is an `async def`."""
    watch, predict = (
        inference.watch,
        cast("Callable[[InferenceRequest], Awaitable[Outputs]]", inference.resolved.model.predict),
    )
    if watch is None:
        return await predict(request)
    watch.call_begun(request)
    try:
        return await predict(request)
    finally:
        watch.call_ended()


async def _synchronous(value: Rows, name: str, header: RequestHeader) -> Rows:
    """Wait for all rows of an output that is sent as JSON, which is written at once; return other rows unchanged."""
    if not value.is_asynchronous:
        return value
    requested = next((output for output in header.outputs or () if output.name == name), None)
    if header.wants_binary(requested):
        return value
    return Rows(value.datatype, value.shape, [window.copy() async for window in value.windows])
