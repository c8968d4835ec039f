"""Request: one request that comes through the server of a framework, up to its reply or its arrays. Sans-IO.

A framework has read the head, and takes the body out of its framing. What is left is the same for all frameworks: bytes
go to a `FedBody`, and its events to whoever decides. For the service that is an `Exchange`, for an endpoint of a user's
own a `Reception`. Memory and time are bounded in the same way. A `FrameworkRequest` says what comes next (a `Step`). A
task (`receiving`) or a thread of WSGI does that. They know how to wait, and decide nothing.

No object here may refer back to an object that refers to it: such a cycle would keep a request's memory until the
garbage collector runs. So whoever waits has the `ReadTimeout`, which refers to the request.
"""

from __future__ import annotations

from typing import Final, cast

from streamcodec.embedding.atonce import Opened, begin
from streamcodec.engine.errors import ErrorCode, MessageError, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN, HeaderReceived, NeedData, NeedTurn
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.fed import FedBody
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.memory.sharing import SharedBudget, SharedReservation
from streamcodec.runtime.observation import Observation
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import Phase, too_slow
from streamcodec.service import Inference, Reply
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.service.request.reception import ReceivedRequest, Reception

Step = NeedData | NeedTurn | ExchangeStep
"""What comes next.

- `NEED_DATA`: have the framework bring a piece of the body, and feed it to `body`, or report its end.
- `NEED_TURN`: do a bounded piece of the work on what has come: `body.work()`.
- `WAIT`: wait until `reservation` has what it asks for, or for as long as one may wait; then call `granted`.
- `CALL`: call the model of `inference`, and pass its reply to `answer`.
- `ANSWER`: there is a result: the reply of the exchange, or the request of the endpoint.
"""

_STEPS: Final = {ExchangeStep.WAIT, ExchangeStep.CALL, ExchangeStep.ANSWER}


class _Waited:
    """What the client is waited for, as `ReadTimeout` wants to know it; the same for both kinds of requests."""

    request_count = 1
    has_header: bool
    reservation: Reservation
    body: FedBody | None = None

    @property
    def phase(self) -> Phase:
        """The part of the request that is awaited."""
        return Phase.BODY if self.has_header else Phase.HEADER

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return 0 if self.body is None else self.body.received

    @property
    def has_work(self) -> bool:
        """Whether received bytes wait to be worked on."""
        return self.body is not None and self.body.has_work

    @property
    def has_lost(self) -> bool:
        """Whether it was too slow while others wait for its memory."""
        return self.reservation.is_lost

    def too_slow(self) -> RemoteProtocolError:
        """Return the error of a client that has had its time."""
        return too_slow(self.phase)


class ServiceRequest(_Waited):
    """A request to the service. Its reply is that of the exchange.

    Attributes:
        head: of the request; None until `begin`, or if it could not be read.
        taken: bytes of its body, if all of it had come before the request began, and nobody reads it again.
    """

    def __init__(
        self, exchange: Exchange, limits: Limits, *, is_decoded: bool = False, observation: Observation | None = None
    ) -> None:
        """Prepare.

        Args:
            exchange: decides.
            limits: see `FedBody`.
            is_decoded: the same.
            observation: of the request.
        """
        self._exchange = exchange
        self._limits = limits
        self._is_decoded = is_decoded
        self._observation = observation
        self._following: ExchangeStep | None = None
        self.reservation: Reservation = exchange.reservation
        self.head: RequestHead | None = None
        self.taken: int = 0

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return self.taken or super().received

    @property
    def has_header(self) -> bool:  # type: ignore[override] # which is only read
        """Whether only tensors are awaited, or the rest of a body that is not needed."""
        return self._exchange.has_header

    @property
    def inference(self) -> Inference | None:
        """The inference that the model has to do, after `CALL`."""
        return self._exchange.inference

    def begin(self, head: RequestHead | MessageError, opened: Opened | None) -> None:
        """Decide by the head.

        Args:
            head: of the request; or the error in it.
            opened: what the head means, if that is known.

        Raises:
            MessageError: the request is refused.
        """
        if isinstance(head, MessageError):
            raise head
        self.head = head
        self._following = begin(self._exchange, head, opened)
        if self._following is ExchangeStep.FILL:
            self.taken, self._following = head.content_length or 0, ExchangeStep.CALL

    def next_step(self) -> Step:
        """Go on as far as possible without waiting, and return what comes next.

        Raises:
            MessageError: the request is refused.
        """
        step = self._advance()
        if self._observation is not None:
            self._observation.goes_on(is_waiting=step is ExchangeStep.WAIT or step is ExchangeStep.CALL)
        return step

    def granted(self, *, has_come: bool) -> None:
        """Report whether the memory has come, after `WAIT`: go on, or refuse the request.

        Raises:
            MessageError: the request is refused.
        """
        self._following = self._exchange.go_on() if has_come else self._exchange.refuse_for_memory()

    def answer(self, reply: Reply) -> None:
        """Take the reply of the model, or another one."""
        self._following = self._exchange.answer(reply)

    def fail(self, error: MessageError | MemoryError) -> None:
        """Answer with an error."""
        if not isinstance(error, MessageError):
            error = OutOfMemoryError("there is no memory for the request now")
        self._following = self._exchange.fail(error)

    def lost(self, _: ConnectionError) -> None:
        """Report that the client has left. It may still read, so it is answered like a body that ends too early."""
        if self.body is not None:
            self.body.break_off()

    def _advance(self) -> Step:
        exchange = self._exchange
        step, self._following = self._following, None
        while step is None or step not in _STEPS:
            if step is ExchangeStep.RECEIVE:
                head = cast("RequestHead", self.head)
                self.body = FedBody(head, exchange.decoder, self._limits, is_decoded=self._is_decoded, paced=True)
                exchange.arrival = self.body
            if exchange.is_held_up and (step := exchange.go_on()):
                continue
            event = cast("FedBody", self.body).next_event()
            if event is NEED_DATA or event is NEED_TURN:
                return event
            step = exchange.receive(event)
        return step


class EndpointRequest(_Waited):
    """A request to an endpoint of a user's own. Its result is the request with its arrays.

    Its memory is that of all endpoints, and belongs to the received request afterwards.

    Attributes:
        result: after `ANSWER`.
    """

    result: ReceivedRequest

    def __init__(self, reception: Reception, budget: SharedBudget, options: ServerOptions) -> None:
        """Begin before the body.

        Raises:
            LimitExceededError: it takes more memory than there is for all requests.
        """
        self._reception = reception
        self._budget = budget
        self._options = options
        self.body: FedBody = reception.begin()
        self._received: ReceivedRequest | None = None
        self.reservation: SharedReservation = SharedReservation(budget)
        self.reservation.check(reception.least_bytes)
        self.reservation.taken = self._taken
        self.reservation.is_short = True  # it has nothing yet, and asks for a first step

    @property
    def has_header(self) -> bool:  # type: ignore[override] # which is only read
        """Whether the JSON header has come."""
        return self._reception.has_header

    def next_step(self) -> Step:
        """Go on; see `ServiceRequest`."""
        while not self._waits_for_memory():
            if self._received is not None:
                self.reservation.taken = None
                self.result = self._received.holding(self._budget.hold(self.reservation))
                return ExchangeStep.ANSWER
            event = self.body.next_event()
            if event is NEED_DATA or event is NEED_TURN:
                return event
            self._receive(event)
        return ExchangeStep.WAIT

    def granted(self, *, has_come: bool) -> None:
        """Refuse a request that has waited too long for memory.

        Raises:
            OutOfMemoryError: it has.
        """
        if not has_come:
            raise OutOfMemoryError("other requests use all of the memory for requests")

    def lost(self, error: ConnectionError) -> None:
        """Give the request up: there is nobody to be answered.

        Raises:
            RemoteProtocolError: `connection-closed`.
        """
        raise RemoteProtocolError(str(error), code=ErrorCode.CONNECTION_CLOSED) from None

    def too_slow(self) -> RemoteProtocolError:
        """Return the error of a client that has had its time."""
        most, least = self._options.read_timeout, self._options.min_rate
        detail = f": {most:g} seconds without a byte, or below {least:g} bytes/s"
        if not self.received:
            detail = f": nothing of it within {most:g} seconds, or the server's program has read it before"
        return too_slow(self.phase, detail)

    def end(self) -> None:
        """Give everything back: the request is refused, or given up."""
        self.reservation.release()

    def _waits_for_memory(self) -> bool:
        """Whether memory has to come before more of the body is taken."""
        reservation, reception = self.reservation, self._reception
        if reservation.is_short and not reservation.missing:
            reservation.has_room(reception.taken_bytes, reception.memory_bytes)
        return bool(reservation.missing)

    def _receive(self, event: Event) -> None:
        """Take an event of the body, and ask for the memory that is known by then to be needed."""
        reception, reservation = self._reception, self.reservation
        self._received = reception.receive(event)
        if isinstance(event, HeaderReceived):
            reservation.ask(reception.memory_bytes or 0, held=reception.held_bytes)
        elif self._received is not None and reservation.is_short:  # for the objects of BYTES, which may be made now
            reservation.ask(reception.memory_bytes or 0, held=reception.taken_bytes)

    def _taken(self) -> int | None:
        return None if self.body.has_work else self._reception.taken_bytes


FrameworkRequest = ServiceRequest | EndpointRequest
