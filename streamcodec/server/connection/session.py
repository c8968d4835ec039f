"""Session: the conversation of one connection with the service. Sans-IO.

A session is an event source like a connection. Its events say what to do next: send, call a model, or close;
`NEED_DATA` asks for bytes as usual. Every driver does what they say, and decides how to wait. The driver is responsible
for time: when it has waited long enough, it calls `give_up` or `refuse_for_memory`.

The `Exchange` decides how a request is answered. A session adds what belongs to a connection: which requests are served
at all, which are answered at once, what the observers are told, and how answers become bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Part
from streamcodec.http.bodies.known import KnownBody
from streamcodec.http.connection import State
from streamcodec.http.heads.messages import ConnectionClosed, RequestHead
from streamcodec.http.responses import Response, start_line
from streamcodec.runtime.models.failures import log_failure
from streamcodec.runtime.models.pace import run_inline
from streamcodec.runtime.observation import Observation, Observe
from streamcodec.runtime.timeouts import Phase
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.dates import Dates
from streamcodec.server.connection.requestcache import Recognized, RequestCache
from streamcodec.server.connection.source import RequestSource
from streamcodec.service import Inference, Reply, ResolvedHead, Service, unavailable_reply
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.memory.lane import SharedMemory
from streamcodec.service.replies import WrittenFields
from streamcodec.service.request.exchange import Exchange, ExchangeStep, finished, name_model
from streamcodec.service.request.plan import Plan
from streamcodec.service.routes import HEALTH, is_health_check

_SMALL_BYTES: Final = 68 << 10
"""Of an answer that is joined to one piece: as much as may be answered within a callback."""

_END: Final = b"\r\n\r\n"
_CLOSING_END: Final = b"\r\nConnection: close\r\n\r\n"

_OK: Final = int(HTTPStatus.OK)

_TURN_EVENTS: Final = 64
"""Most events that are taken before others have their turn. One read may contain thousands of tensors."""

_FULL: Final = "the server has the maximum number of connections"
_STOPPING: Final = "the server is stopping"

_HANDSHAKE: Final = b"\x16"


_HEAD: Final = State.HEAD
_IDLE: Final = Phase.IDLE
"""To look up a member of an enum takes as long as three calls, and every request needs these."""


class Step(Enum):
    """What a driver does next."""

    SEND = auto()
    """Send `outgoing`, all of it."""
    CALL = auto()
    """Call the model of `inference`, and pass its reply to `answer`."""
    WAIT = auto()
    """Wait until `reservation` has been granted; or call `refuse_for_memory`, and send."""
    CLOSE = auto()
    """Close the connection."""


class Session(RequestSource):
    """One connection, from its first request to its last.

    Attributes:
        outgoing: the parts to send, after `Step.SEND`.
        reservation: the memory of the current request.
        is_small: after `answer_at_once`, whether `outgoing` is complete, and small enough to be joined.
        is_called: whether the current request waits for its batch, or for a thread, and no task for it.
        entered: a request that waits for its batch and has not begun, because its bytes are still where they came; None
            if there is none. If anything else happens, it begins.
        observation: of the current request, until its answer has been sent; None without observers.
    """

    def __init__(
        self,
        service: Service,
        express: RequestCache,
        admission: Admission,
        dates: Dates | None = None,
        observe: Observe | None = None,
    ) -> None:
        """Begin before the first request.

        Args:
            service: answers.
            express: answers small requests with known heads; of the same service.
            admission: decides before each request whether this connection is served. If not, the request is refused and
                the connection closed. A health check is answered in any case.
            dates: give the `Date` of responses.
            observe: begins the observation of a request, if there are observers.
        """
        super().__init__(service.limits)
        self._service = service
        self._express = express
        self._admission = admission
        self._dates = dates or Dates()
        self._observe = observe
        self._tried = -1
        self._recognized: Recognized | None = None
        self._filling: KnownBody | None = None
        self.is_called: bool = False
        self.entered: tuple[ResolvedHead, Plan] | None = None
        self._exchange = Exchange(service, Reservation(admission.budget), admission.uploads)
        self.reservation: Reservation = self._exchange.reservation
        self.observation: Observation | None = None
        self._exchange.arrival = self.incoming
        self.outgoing: list[Part] = []
        self.is_small: bool = False

    def share(self, memory: SharedMemory | None) -> SharedMemory | None:
        """Let requests have their tensors in this memory from now on; None to end that. Return the memory before."""
        before, self._exchange.memory = self._exchange.memory, memory
        return before

    def on_give_way(self, act: Callable[[], object]) -> None:
        """Say what ends this connection if another one goes on with its upload; see `Exchange.on_give_way`."""
        self._exchange.on_give_way = act

    @property
    def inference(self) -> Inference | None:
        """The inference that the model has to do, after `Step.CALL`."""
        return self._exchange.inference

    @property
    def is_idle(self) -> bool:
        """Whether no request has begun, and no answer waits to be sent."""
        return self.phase is _IDLE and not self.outgoing

    @property
    def is_spare(self) -> bool:
        """Whether no request is lost if the connection is closed: no complete head has arrived.

        Bytes that wait for a turn may be one.
        """
        incoming = self.incoming
        if incoming.state is _HEAD and incoming.kept and incoming.received != self._tried:
            return False
        if self.entered is not None:
            return False
        return self._exchange.head is None and not self.outgoing and not self.lacks_the_rest

    @property
    def has_another(self) -> bool:
        """Whether at least a part of another request has arrived, after the last answer."""
        incoming = self.incoming
        return incoming.state is State.HEAD and bool(incoming.begun(1))

    @property
    def has_header(self) -> bool:
        """Whether only tensors are awaited, or the rest of a body that is not needed."""
        return self._exchange.has_header

    @property
    def has_work(self) -> bool:
        """Whether nobody waits for the client: its bytes wait to be worked on, or its request waits for a model."""
        return self.is_called or self.entered is not None or self.incoming.has_work

    @property
    def has_lost(self) -> bool:
        """Whether the request has been too slow while others wait for its memory."""
        return self.reservation.is_lost and not self.is_called

    @property
    def speaks_tls(self) -> bool:
        """Whether the client has begun with TLS, which is refused like anything that is not HTTP."""
        return self.request_count == 0 and self.incoming.begun(1) == _HANDSHAKE

    @property
    def lacks_the_rest(self) -> bool:
        """Whether `answer_at_once` has found a known head, whose body is so small that a read may bring all of it."""
        incoming = self.incoming
        recognized = self._recognized
        if recognized is None or incoming.received != self._tried:
            return False
        return incoming.kept < recognized.size <= incoming.scratch_bytes

    def answer_at_once(self) -> bool:
        """Answer the next request, if it is complete and quick to answer. Then `outgoing` is the answer.

        `next_event` does this, too; a direct call saves the other work of `next_event`. A request that cannot be
        answered in this way is tried again only when more bytes have arrived.

        Returns:
            Whether there was such a request.
        """
        incoming = self.incoming
        kept = incoming.kept
        if incoming.state is not _HEAD or not (kept or incoming.is_eof) or incoming.received == self._tried:
            return False
        observation = self.observation
        if observation is None and self._observe is not None:
            observation = self.observation = self._observe(incoming.received - kept)
        if not self._admission.keeps(self, ahead=1):
            self._tried, self._recognized = incoming.received, None
            return False
        self._recognized = recognized = self._express.find(incoming, self._recognized)
        reply = None if recognized is None else self._express.reply(recognized, incoming, observation)
        if recognized is None or reply is None:
            self._tried = incoming.received
            incoming.resize(is_long=recognized is not None and recognized.is_long_json)
            return False
        self._answered(reply, recognized)
        if observation is not None:
            observation.status = reply.status
            if observation.model is None:
                name_model(observation, recognized.head, self._service)
            if reply.status != _OK or reply.refusal is not None:  # a model may refuse with any status
                observation.answered(reply)
        return True

    def _answered(self, reply: Reply, recognized: Recognized) -> None:
        """Prepare to send the reply to a request that was removed from what has come."""
        self.request_count += 1
        self._admission.used(self)
        reply = finished(self._service, reply, recognized.head if self._service.adds_fields else None)
        log_failure(reply, is_observed=self.observation is not None)
        self.outgoing = self._plain_answer(reply, is_last=recognized.is_last)
        self.is_small = reply.body_length <= _SMALL_BYTES and Rows not in map(type, reply.buffers)

    def whole_call(self) -> tuple[ResolvedHead, Plan, memoryview] | None:
        """Return what is known of a request that `answer_at_once` has left, if it is for a batch and has come whole."""
        incoming, recognized = self.incoming, self._recognized
        if self._observe is not None or self.entered is not None or recognized is None or recognized.is_last:
            return None
        # The transport reads on while it waits, so there has to be room.
        is_new = incoming.received == self._tried and incoming.wants_data
        return self._express.whole(recognized, incoming) if is_new else None

    @property
    def has_entered(self) -> bool:
        """Whether a request waits for its batch, and nothing has happened since."""
        incoming = self.incoming
        return self.entered is not None and incoming.received == self._tried and not incoming.is_eof

    def answer_entered(self, reply: Reply) -> bool:
        """Answer a request that waited for its batch without having begun; return whether the answer `is_small`."""
        self.entered = None
        self._tried = -1
        self.reservation.release()
        if (recognized := self._recognized) is None:
            return False
        self.incoming.skip(recognized.size)
        self._answered(reply, recognized)
        return self.is_small

    def next_event(self) -> Step | NeedData | NeedTurn:
        """Go on as far as possible without waiting, and return the next step of the driver.

        If there is no memory, the request is refused and the connection is closed, possibly without an answer.
        """
        try:
            step = self._next_step()
        except MemoryError:
            step = self.break_off()
        if self.observation is not None:
            self.observation.goes_on(is_waiting=step is Step.WAIT or step is Step.CALL)
        return step

    def _next_step(self) -> Step | NeedData | NeedTurn:
        exchange, filling = self._exchange, self._filling
        self.entered = None
        if self.is_called:  # and the task of the connection has been woken: it waits for the model from now on
            return Step.CALL
        if filling is not None and filling.is_complete:
            return self._filled()
        if self.answer_at_once():
            return Step.SEND
        try:
            if exchange.head is not None and exchange.is_held_up and (step := self._do(exchange.go_on())):
                return step
            self.connection.end_response()
            return self._take_recognized() or self._take_events()
        except MessageError as error:
            return self._refuse(error)

    def begin_to_wait(self) -> None:
        """Report that the current request waits for its model without a task."""
        self.is_called = True

    def answer(self, reply: Reply) -> Step:
        """Answer the current request, whose model has been called."""
        self.is_called = False
        self._exchange.answer(reply)
        return self._send()

    def _filled(self) -> Step:
        """Call the model of a request whose known body is complete, or have it called."""
        self._filling = None
        self.incoming.end_filling()
        return self._called()

    def _called(self) -> Step:
        """Call the model, if that is quick enough for an event loop."""
        inference = self._exchange.inference
        if inference is not None and inference.is_inline:
            return self.answer(run_inline(inference, self._express.model_timeout))
        return Step.CALL

    def _refuse(self, error: MessageError) -> Step:
        """Refuse the current request, or the bytes that have arrived instead of one."""
        if self._observe is not None:
            self._exchange.watch = self._watched(self._observe)
        self._exchange.fail(error)
        return self._send()

    def _send(self) -> Step:
        """Prepare to send the reply of the exchange."""
        self._filling = None
        reply = self._exchange.reply
        log_failure(reply, is_observed=self.observation is not None)
        keeps = self._admission.keeps(self)
        if keeps and reply.status == _OK and Rows not in map(type, reply.buffers) and self.connection.end_plain():
            self.outgoing = self._plain_answer(reply, is_last=False)
            return Step.SEND
        headers = [*reply.headers, ("Date", self._dates.now())]
        if not keeps:
            headers.append(("Connection", "close"))
        self.outgoing = [*self.connection.send_response(reply.status, headers, reply.buffers)]
        return Step.SEND

    def _plain_answer(self, reply: Reply, *, is_last: bool) -> list[Part]:
        """Return the parts of an answer to a plain request that has been read."""
        fields = reply.headers
        if type(fields) is WrittenFields:
            date, end = self._dates.encoded(), _CLOSING_END if is_last else _END
            if not fields.has_length:
                end = b"\r\nContent-Length: %d%b" % (reply.body_length, end)
            return [start_line(reply.status), fields.lines, b"Date: ", date, end, *reply.buffers]
        fields = [*fields, ("Date", self._dates.now())]
        return [Response(reply.status, fields, reply.body_length, is_asked_to_close=is_last).head, *reply.buffers]

    def break_off(self) -> Step:
        """Answer that there is no memory. The state of the request is not known then, so the connection is closed."""
        try:
            self.connection.give_up(error := OutOfMemoryError("there is no memory for the request now"))
            return Step.CLOSE if self._exchange.head is None else self._refuse(error)
        except (MemoryError, LocalProtocolError):
            return Step.CLOSE

    def has_sent(self) -> None:
        """Report that `outgoing` has been sent. If that was an answer, its request is over."""
        exchange = self._exchange
        if exchange.head is None:
            if exchange.is_answered:  # else `answer_at_once` has answered
                exchange.end()
            self._admission.used(self, is_last=self.connection.has_unread_body)
            if self.observation is not None:
                self.observed()

    def observed(self, error: BaseException | None = None, *, is_whole: bool = True) -> None:
        """Report to the observers that the request is over.

        Args:
            error: the error that has ended the request or its answer.
            is_whole: whether all of the answer has been sent.
        """
        observation, self.observation = self.observation, None
        if observation is None:
            return
        incoming = self.incoming
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
        """Refuse a request that is not completed in time; the driver calls this.

        If no request has begun, or if it has been answered already, the connection is closed without an answer.
        """
        if self.phase is Phase.IDLE or (self.phase is Phase.BODY and self._exchange.head is None):
            return Step.CLOSE
        return self._refuse(self.too_slow())

    def let_go(self) -> None:
        """Report that the connection has ended: an upload that came over it is kept."""
        exchange = self._exchange
        exchange.on_give_way = None  # it refers to the driver of this object
        if exchange.portion is not None:
            self.connection.drop_body()  # reports the bytes that have come
            exchange.let_go()
        exchange.end()  # windows of the request, and rows made from them, refer to the connection

    def refuse_for_memory(self) -> Step:
        """Refuse a request that has waited long enough for memory."""
        self._exchange.refuse_for_memory()
        return self._send()

    def refuse_truncated(self) -> Step:
        """Refuse a request that has ended too early, as its driver has found without reading it."""
        msg = "the connection ended before the whole request had come"
        self.connection.give_up(error := RemoteProtocolError(msg, code=ErrorCode.TRUNCATED))
        return self._refuse(error)

    def lost(self) -> RemoteProtocolError:
        """Return the error for a request whose connection has broken."""
        msg = "the connection broke before the request had ended"
        error = RemoteProtocolError(msg, code=ErrorCode.CONNECTION_CLOSED)
        self.connection.give_up(error)
        return error

    def _watched(self, observe: Observe) -> Observation:
        """Return the observation of the current request, or of the request that begins with the unread bytes."""
        if self.observation is None:
            incoming = self.incoming
            begun = 0 if incoming.state is State.HEAD else incoming.head_bytes
            self.observation = observe(incoming.received - incoming.kept - begun)
        return self.observation

    def _take_recognized(self) -> Step | NeedData | None:
        """Begin a request that is not answered at once, if its head is known.

        Raises:
            MessageError: the request is refused.
        """
        recognized, incoming = self._recognized, self.incoming
        if recognized is None or incoming.state is not _HEAD or incoming.received != self._tried:
            return None
        begun = self._express.begin(recognized, incoming)
        if begun is None:
            return None
        resolved, plan, body = begun
        head, text = recognized.head, recognized.text
        if self._observe is not None:
            self._watched(self._observe).begin(head, text)
        self.connection.take_head(head, text)
        return self._begin(head, resolved, plan, body)

    def _take_events(self) -> Step | NeedData | NeedTurn:
        """Take the available events, up to a limit in one turn.

        Raises:
            MessageError: the request is refused.
        """
        for _ in range(_TURN_EVENTS):
            event = self.connection.next_event()
            if event is NEED_DATA or event is NEED_TURN:
                return event
            if isinstance(event, RequestHead):
                step = self._begin(event)
            elif isinstance(event, ConnectionClosed) or self._exchange.head is None:
                return Step.CLOSE
            else:
                step = self._do(self._exchange.receive(event))
            if step:
                return step
        return NEED_TURN

    def _begin(
        self,
        head: RequestHead,
        resolved: ResolvedHead | None = None,
        plan: Plan | None = None,
        body: memoryview | None = None,
    ) -> Step | NeedData | None:
        self._tried = -1  # another request may have come with it
        self.request_count += 1
        exchange, admission = self._exchange, self._admission
        exchange.watch = None if self._observe is None else self._watched(self._observe)
        self.connection.is_urgent = head.target.startswith(HEALTH) and head.content_length == 0
        if not (admission.admits(self) or is_health_check(head.method, head.target) or admission.makes_room(self)):
            exchange.refuse(head, unavailable_reply(_STOPPING if admission.is_stopping else _FULL, retry_after=1))
            return self._send()
        return self._do(exchange.begin(head, resolved, plan, body))

    def _do(self, step: ExchangeStep | None) -> Step | NeedData | None:
        """Do the step of the exchange, or return the step of the driver; None if more events of the body are needed.

        Raises:
            MessageError: the request is refused.
        """
        exchange = self._exchange
        while step is ExchangeStep.RECEIVE:
            interim = self.connection.receive_body(exchange.decoder)
            if exchange.portion is not None and exchange.portion.interim:
                interim += self.connection.resumption_supported(exchange.portion.interim)
            if interim:
                self.outgoing = [interim]
                return Step.SEND
            step = exchange.go_on()
        if step is ExchangeStep.FILL and (known_body := exchange.known_body) is not None:
            self._filling = known_body
            self.incoming.fill(known_body)  # wants no data if the connection has ended, which the next event raises
            needed = NEED_DATA if known_body.wants_data else None
            return self._filled() if known_body.is_complete else needed
        if step is ExchangeStep.CALL:
            return self._called()
        if step is ExchangeStep.ANSWER:
            return self._send()
        return Step.WAIT if step is ExchangeStep.WAIT else None
