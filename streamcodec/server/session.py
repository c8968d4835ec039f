"""Session: the conversation of one connection with the service. Sans-IO.

A session is an event source like a connection, whose events are not what has come but what is to be done next: send,
have a model called, or close; `NEED_DATA` asks for bytes as ever. Every driver does as it is told, however it waits; so
what a request is answered, and in which order, stands here once. Time is the driver's: one that has waited long enough
says `give_up`, or `refuse_for_memory`.

Before a request takes memory, the session asks the server's budget for it: for a short body by its head, for others
when the JSON header is complete, which itself comes in as much memory as it turns out to take. A request that is
answered at once takes none but what is there already, and asks nobody. Who comes too slowly while others wait has only
what it really holds, and after each read the session looks whether that is enough. While the request waits, it has no
more than that either, and when it is refused nothing: its answer may take long to be sent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Final

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN, EndOfMessage, HeaderReceived, NeedData, NeedTurn
from streamcodec.engine.message import Part
from streamcodec.engine.rows import Rows
from streamcodec.http.connection import State
from streamcodec.http.messages import ConnectionClosed, HttpEvent, RequestHead
from streamcodec.http.methods import BufferUpdated, GetBuffer, GetBuffers
from streamcodec.http.server import ServerConnection
from streamcodec.server.admission import Admission
from streamcodec.server.budget import Reservation
from streamcodec.server.dates import Dates
from streamcodec.server.express import Express, response_head
from streamcodec.server.failures import log_failure
from streamcodec.server.observation import Observation, Observe
from streamcodec.server.patience import Phase
from streamcodec.service import Inference, Listing, Reply, Service, error_reply, unavailable_reply
from streamcodec.service.routes import Resource, find_route

_SMALL_BYTES: Final = 64 << 10

_OK: Final = int(HTTPStatus.OK)

_TURN_EVENTS: Final = 64
"""So many are taken before others have their turn: the tensors of one read may be some thousands."""

_HEALTH: Final = {Resource.SERVER_LIVE, Resource.SERVER_READY}

_HEAD: Final = State.HEAD
_IDLE: Final = Phase.IDLE
"""To look a member up in its class takes as long as three calls, and these are looked up with every request."""

_PARTS: Final = {Phase.IDLE: "head", Phase.HEAD: "head", Phase.HEADER: "JSON header", Phase.BODY: "body"}


class Step(Enum):
    """What a driver does next."""

    SEND = auto()
    """Send `outgoing`, all of it."""
    CALL = auto()
    """Have the model of `inference` called, and hand its reply to `answer`."""
    WAIT = auto()
    """Wait until `reservation` has been granted; or say `refuse_for_memory`, and send."""
    CLOSE = auto()
    """Close the connection."""


class Session:
    """One connection, from its first request to its last.

    Attributes:
        connection: where bytes go and come from.
        inference: waits for its model, after `Step.CALL`.
        outgoing: what is to be sent, after `Step.SEND`.
        reservation: the memory of the current request.
        request_count: requests whose head has come.
        is_small: whether that is all there and so little that it may be joined, after `answer_at_once`.
        observation: of the current request, until its answer has been sent; None if nobody wants to know.
    """

    def __init__(
        self,
        service: Service,
        express: Express,
        admission: Admission,
        dates: Dates | None = None,
        observe: Observe | None = None,
    ) -> None:
        """Begin before the first request.

        Args:
            service: answers.
            express: answers what is small and known; of the same service.
            admission: is asked before each request whether this connection is served; if not, it is told so and closed.
                A health check is answered in any case.
            dates: tell the time for responses.
            observe: begins the observation of a request, if there are observers.
        """
        self._service = service
        self._express = express
        self._admission = admission
        self._dates = dates or Dates()
        self._observe = observe
        self.observation: Observation | None = None
        self._head: RequestHead | None = None
        self._listing: Listing | None = None
        self._once_granted: Callable[[], Step | None] | None = None
        self._memory_bytes: int | None = None
        self._tried = -1
        self.reservation: Reservation = Reservation(admission.budget)
        self.request_count: int = 0
        self.connection: ServerConnection = ServerConnection(service.limits, paced=True)
        self.inference: Inference | None = None
        self.outgoing: list[Part] = []
        self.is_small: bool = False
        self.get_buffer: GetBuffer = self.connection.get_buffer
        self.get_buffers: GetBuffers = self.connection.get_buffers
        self.buffer_updated: BufferUpdated = self.connection.buffer_updated
        self.receive_eof: Callable[[], None] = self.connection.receive_eof
        self.work: Callable[[], bool] = self.connection.work

    @property
    def is_idle(self) -> bool:
        """Whether no request has begun, and no answer waits to be sent."""
        return self.phase is _IDLE and not self.outgoing

    @property
    def is_spare(self) -> bool:
        """Whether nobody would miss more than a connection: what has come of a request is no whole head."""
        return self._head is None and not self.outgoing

    @property
    def has_another(self) -> bool:
        """Whether at least a part of another request has come already, after the last answer."""
        incoming = self.connection.incoming
        return incoming.state is State.HEAD and bool(incoming.begun(1))

    @property
    def phase(self) -> Phase:
        """How far the request has come that is being received."""
        incoming = self.connection.incoming
        if incoming.state is _HEAD:
            return Phase.HEAD if incoming.has_input else _IDLE
        return Phase.BODY if self.inference is None or self.inference.has_header else Phase.HEADER

    @property
    def has_work(self) -> bool:
        """Whether what has come of the request waits to be worked on, and not the request for its client."""
        return self.connection.incoming.has_work

    @property
    def has_lost(self) -> bool:
        """Whether the request has been too slow while others wait for its memory."""
        return self.reservation.is_lost

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return self.connection.incoming.received

    def answer_at_once(self) -> bool:
        """Answer the next request, if all of it is there and nothing takes long; `outgoing` is the answer then.

        `next_event` does so, too; who is in a hurry saves the rest of it. What could not be answered so is looked at
        again only when more has come.

        Returns:
            Whether there was such a request.
        """
        incoming = self.connection.incoming
        kept = incoming.kept
        if incoming.state is not _HEAD or not (kept or incoming.is_eof) or incoming.received == self._tried:
            return False
        observation = self.observation
        if observation is None and self._observe is not None:
            observation = self.observation = self._observe(incoming.received - kept)
        if not self._admission.keeps_another(self):
            return False
        answer = self._express.reply(incoming, observation)
        if answer is None:
            self._tried = incoming.received
            return False
        self.request_count += 1
        self._admission.used(self)
        head, reply = answer
        reply = self._finished(reply, head)
        beginning, rest = response_head(reply.status, tuple(reply.headers), reply.body_length)
        self.outgoing = [beginning, self._dates.encoded(), rest, *reply.buffers]
        self.is_small = reply.body_length <= _SMALL_BYTES and Rows not in map(type, reply.buffers)
        if observation is not None:
            observation.status = reply.status
            if observation.model is None:
                self._name_model(observation, head)
            if reply.status != _OK:
                observation.answered(reply)
        return True

    @property
    def inflates(self) -> bool:
        """Whether the body at hand is compressed."""
        return self.connection.inflates

    def next_event(self) -> Step | NeedData | NeedTurn:
        """Go as far as is possible without waiting, and return what is to be done then.

        Where there is no memory, the request is refused and its connection closed, if need be without an answer.
        """
        try:
            step = self._next_step()
        except MemoryError:
            step = self.break_off()
        if self.observation is not None:
            self.observation.goes_on(is_waiting=step is Step.WAIT or step is Step.CALL)
        return step

    def _next_step(self) -> Step | NeedData | NeedTurn:
        if self.answer_at_once():
            return Step.SEND
        try:
            if (self._once_granted is not None or self.reservation.is_short) and (step := self._go_on()):
                return step
            self.connection.end_response()
            for _ in range(_TURN_EVENTS):
                event = self.connection.next_event()
                if event is NEED_DATA or event is NEED_TURN:
                    return event
                if step := self._take(event):
                    return step
        except MessageError as error:
            return self.answer(error_reply(error))
        return NEED_TURN

    def answer(self, reply: Reply) -> Step:
        """Answer the current request, whether all of it has been received or not."""
        if reply.refusal is not None:  # whoever keeps it would keep, by its traceback, the connection with its memory
            reply.refusal.__traceback__ = None
        reply = self._finished(reply, self._head)
        if self._observe is not None:
            self._answered(reply, self._watched(self._observe))
        headers = [*reply.headers, ("Date", self._dates.now())]
        if not self._admission.keeps(self):
            headers.append(("Connection", "close"))
        self.outgoing = [*self.connection.send_response(reply.status, headers, reply.buffers)]
        self._head = self.inference = self._listing = self._once_granted = None
        return Step.SEND

    def break_off(self) -> Step:
        """Answer that there is no memory. Where a request stands then is not known, so its connection is closed."""
        try:
            self.connection.give_up(error := OutOfMemoryError("there is no memory for the request now"))
            return self.answer(error_reply(error)) if self._head is not None else Step.CLOSE
        except (MemoryError, LocalProtocolError):
            return Step.CLOSE

    def has_sent(self) -> None:
        """Tell that `outgoing` has been sent: the request is over, if that was its answer."""
        if self._head is None:
            self.reservation.release()
            self._admission.used(self, is_last=self.connection.has_unread_body)
            if self.observation is not None:
                self.observed()

    def observed(self, error: BaseException | None = None, *, is_whole: bool = True) -> None:
        """Tell observers that the request is over.

        Args:
            error: what has ended it, or the answer to it.
            is_whole: whether all of the answer has been sent.
        """
        observation, self.observation = self.observation, None
        if observation is None:
            return
        incoming = self.connection.incoming
        nbytes = incoming.received - observation.offset
        if observation.has_begun:
            nbytes -= incoming.kept
        elif observation.status is None and not incoming.kept:  # no request has begun
            return
        observation.bytes_in = nbytes
        if is_whole:
            observation.end()
        else:
            observation.break_off(error)

    def give_up(self) -> Step:
        """Refuse a request that does not come to its end: the driver has waited long enough for more of it.

        There is nobody to be told where none has begun, nor where it has been answered before.
        """
        if self.phase is Phase.IDLE or (self.phase is Phase.BODY and self._head is None):
            return Step.CLOSE
        return self.answer(error_reply(self.too_slow()))

    def refuse_for_memory(self) -> Step:
        """Refuse a request that has waited long enough for memory."""
        self.reservation.release()
        return self.answer(unavailable_reply("other requests have taken the server's memory", retry_after=1))

    def too_slow(self) -> RemoteProtocolError:
        """Return the error for such a request; the connection is of no further use."""
        part = _PARTS[self.phase]
        msg = f"the {part} of the request comes too slowly"
        error = RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408)
        self.connection.give_up(error)
        return error

    def lost(self) -> RemoteProtocolError:
        """Return the error for a request whose connection has broken."""
        msg = "the connection broke before the request had ended"
        error = RemoteProtocolError(msg, code=ErrorCode.CONNECTION_CLOSED)
        self.connection.give_up(error)
        return error

    def _watched(self, observe: Observe) -> Observation:
        """Return the observation of the current request, or of the one that begins with the bytes at hand."""
        if self.observation is None:
            incoming = self.connection.incoming
            begun = 0 if incoming.state is State.HEAD else incoming.head_bytes
            self.observation = observe(incoming.received - incoming.kept - begun)
        return self.observation

    def _answered(self, reply: Reply, observation: Observation) -> None:
        observation.answered(reply)
        if observation.model is None and self._head is not None:
            self._name_model(observation, self._head)
        if self.inference is not None:
            observation.request_id = self.inference.request_id

    def _name_model(self, observation: Observation, head: RequestHead) -> None:
        """Tell which model is asked about, if there is one, where it is not asked to infer."""
        if head.method == "POST":
            return
        with suppress(RemoteProtocolError):
            route = find_route(head.target)
            if route.model in self._service.models:
                observation.model, observation.version = route.model, route.version

    def _finished(self, reply: Reply, head: RequestHead | None) -> Reply:
        if reply.cause is not None:
            log_failure(reply.cause, reply.call)
        return self._service.finish(reply, head)

    def _take(self, event: HttpEvent) -> Step | None:
        if isinstance(event, RequestHead):
            return self._begin(event)
        if self._listing is not None:
            return self.answer(self._listing.run())
        if isinstance(event, ConnectionClosed) or self.inference is None:
            return Step.CLOSE
        self.inference.receive(event)
        if isinstance(event, HeaderReceived):
            return self._with_memory(self.inference, self._after_header)
        if not isinstance(event, EndOfMessage):
            return None
        return self.answer(self.inference.run()) if self.inference.is_inline else Step.CALL

    def _begin(self, head: RequestHead) -> Step | None:
        self._head = head
        self._tried = -1  # another request may have come with it
        self.request_count += 1
        if self._observe is not None:
            self._watched(self._observe).begin(head)
        admission = self._admission
        if not (admission.admits(self) or _is_health_check(head) or admission.makes_room(self)):
            return self.answer(unavailable_reply("the server has as many connections as it may have", retry_after=1))
        outcome = self._service.begin(head, pause_after_header=True, paced=True)
        if isinstance(outcome, Reply):
            return self.answer(outcome)
        if isinstance(outcome, Listing):
            self._listing = outcome
            return self._receive_body(outcome)
        self.inference = outcome
        if self.observation is not None:
            self.observation.asks(outcome)
        self.reservation.taken = self._brought
        if outcome.resolved.is_whole:
            return self._with_memory(outcome, self._receive_body)
        return self._with_little_memory(outcome)

    def _with_memory(self, inference: Inference, go_on: Callable[[Inference], Step | None]) -> Step | None:
        """Go on when the request has the memory that it takes, as far as that is known.

        Raises:
            LimitExceededError: it takes more than the server has.
        """
        self._memory_bytes = nbytes = inference.memory_bytes
        held = inference.held_bytes if nbytes > self.reservation.nbytes else 0
        if self.reservation.ask(nbytes, held=held):
            return go_on(inference)
        self._once_granted = partial(go_on, inference)
        return Step.WAIT

    def _with_little_memory(self, inference: Inference) -> Step | None:
        """Receive a JSON header, in whatever memory it turns out to take.

        Raises:
            LimitExceededError: the whole body takes more than the server has.
        """
        self._admission.budget.check(inference.least_bytes)
        self._memory_bytes = inference.header_bytes
        if self.reservation.has_room(0, self._memory_bytes):
            return self._receive_body(inference)
        self._once_granted = partial(self._receive_body, inference)
        return Step.WAIT

    def _go_on(self) -> Step | None:
        """Go on with what has waited for memory; wait for more if the request has less than it will take, and no room.

        Raises:
            LimitExceededError: it takes more than the server has.
        """
        go_on, self._once_granted = self._once_granted, None
        if go_on is not None and (step := go_on()):
            return step
        taken = self._taken() if self.reservation.is_short else None
        return None if taken is None or self.reservation.has_room(taken, self._memory_bytes) else Step.WAIT

    def _taken(self) -> int | None:
        """Return how much memory the request takes that is being received; None if none is, or its model pulls it."""
        inference = self.inference
        if inference is None or inference.is_windowed or inference.decoder.is_complete:
            return None
        return inference.taken_bytes + self.connection.incoming.unsettled

    def _brought(self) -> int | None:
        """Return how much memory the client has filled; None if it is not the client who is waited for."""
        return None if self.has_work else self._taken()

    def _after_header(self, inference: Inference) -> Step | None:
        return Step.CALL if inference.is_windowed else None

    def _receive_body(self, request: Inference | Listing) -> Step | None:
        interim = self.connection.receive_body(request.decoder)
        if not interim:
            return None
        self.outgoing = [interim]
        return Step.SEND


def _is_health_check(head: RequestHead) -> bool:
    """Whether a request asks how the server is, and no more."""
    try:
        resource = find_route(head.target).resource
    except MessageError:
        return False
    return resource in _HEALTH and head.method in resource.methods
