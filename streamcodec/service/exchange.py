"""Exchange: one request after the other and their answers, whoever speaks HTTP. Sans-IO.

What a request is answered, and in which order, is decided here and nowhere else: by its head, by the memory that it
takes, by its body, by its model. The owner brings the head and the events of the body, and does what each step says,
however it waits. `server.Session` is the owner for connections of the bundled server; `server.Frontend` and
`streamcodec.wsgi` are the owners for frameworks that have connections of their own.

Before a request takes memory, the exchange asks the budget for it: for a short body by its head, for other bodies when
the JSON header is complete. A JSON header itself comes in as much memory as it turns out to take. A request that is
answered at once takes no memory of its own, and asks nobody. A request that comes too slowly while others wait keeps
only what it really holds, and the owner asks again after each read whether that is enough (`go_on`). While a request
waits, it has no more than that, and when it is refused it has nothing: its answer may take long to be sent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import LocalProtocolError, MessageError, RemoteProtocolError
from streamcodec.engine.events import EndOfMessage, HeaderReceived
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.collector import Collector
from streamcodec.http.messages import HttpEvent, RequestHead
from streamcodec.service.budget import Reservation
from streamcodec.service.inference import Inference
from streamcodec.service.listing import Listing
from streamcodec.service.observing import CallWatch
from streamcodec.service.replies import Reply, error_reply, unavailable_reply
from streamcodec.service.routes import find_route
from streamcodec.service.service import Service

_NO_REPLY: Final = Reply(status=500)


class ExchangeStep(Enum):
    """What the owner of an exchange does next."""

    RECEIVE = auto()
    """Let the body go to `decoder`, and hand its events to `receive`."""
    WAIT = auto()
    """Wait until `reservation` has been granted, then `go_on`; or say `refuse_for_memory`."""
    CALL = auto()
    """Have the model of `inference` called, and hand its reply to `answer`."""
    ANSWER = auto()
    """Send `reply`, then say `end`."""


_GoOn = Callable[[Inference], ExchangeStep | None]


class Arrival(Protocol):
    """How the body comes: a connection's `Incoming`, or a `FedBody`."""

    received: int
    """Bytes that have come."""

    @property
    def has_work(self) -> bool:
        """Whether what has come waits to be worked on: then it is not the client who is waited for."""
        ...

    @property
    def unsettled(self) -> int:
        """Bytes that have been written to the receiver's memory without its being told yet."""
        ...


class RequestWatch(CallWatch, Protocol):
    """Is told of one request: the server's part, which keeps the record.

    Attributes:
        model: see `RequestRecord`; this and the next two are set from here.
        version: of the model.
        request_id: of the JSON header.
    """

    model: str | None
    version: str | None
    request_id: str | None

    def begin(self, head: RequestHead | None) -> None:
        """The head has been read; None if it was refused."""

    def asks(self, inference: Inference) -> None:
        """The request is for a model."""

    def answered(self, reply: Reply) -> None:
        """There is a reply, which is sent next."""


class Exchange:
    """The requests of one connection, one at a time; or a single one.

    Attributes:
        reservation: the memory of the current request.
        head: of the current request, until there is a reply; None where the head could not be read.
        inference: what the model is called for, until there is a reply; None of requests that call no model.
        reply: after `ExchangeStep.ANSWER`, until `end`.
        is_answered: whether there is a reply.
        arrival: how bodies come; the owner sets it.
        watch: is told of the current request; None if nobody wants to know.
    """

    def __init__(self, service: Service, reservation: Reservation) -> None:
        """Begin before the first request.

        Args:
            service: answers.
            reservation: has nothing yet.
        """
        self._service = service
        self._request: Inference | Listing | None = None
        self._once_granted: Callable[[], ExchangeStep | None] | None = None
        self._memory_bytes: int | None = None
        self.reservation: Reservation = reservation
        self.head: RequestHead | None = None
        self.inference: Inference | None = None
        self.reply: Reply = _NO_REPLY
        self.is_answered: bool = False
        self.arrival: Arrival | None = None
        self.watch: RequestWatch | None = None

    @property
    def decoder(self) -> Decoder[RequestHeader] | Collector:
        """What the body goes to, after `ExchangeStep.RECEIVE`.

        Raises:
            LocalProtocolError: there is no request, or it has been answered.
        """
        return self._begun().decoder

    @property
    def has_header(self) -> bool:
        """Whether nothing is awaited but tensors, or the rest of a body that nobody wants."""
        return self.inference is None or self.inference.has_header

    def begin(self, head: RequestHead) -> ExchangeStep:
        """Decide by the head; nothing of the body has been read.

        Raises:
            MessageError: the request is refused; hand it to `fail`.
        """
        self.head = head
        if self.watch is not None:
            self.watch.begin(head)
        outcome = self._service.begin(head, pause_after_header=True, paced=True)
        if isinstance(outcome, Reply):
            return self.answer(outcome)
        self._request = outcome
        if isinstance(outcome, Listing):
            return ExchangeStep.RECEIVE
        self.inference = outcome
        if self.watch is not None:
            self.watch.asks(outcome)
        self.reservation.taken = self._brought
        if outcome.resolved.is_whole:
            return self._with_memory(outcome, _receive) or ExchangeStep.RECEIVE
        return self._with_little_memory(outcome)

    def receive(self, event: HttpEvent) -> ExchangeStep | None:
        """Take an event of the body; None if more are wanted.

        Raises:
            MessageError: the request is refused; hand it to `fail`.
            LocalProtocolError: there is no request, or it has been answered.
        """
        request = self._begun()
        if isinstance(request, Listing):
            return self.answer(request.run())
        request.receive(event)
        if isinstance(event, HeaderReceived):
            return self._with_memory(request, _after_header)
        if not isinstance(event, EndOfMessage):
            return None
        return self.answer(request.run()) if request.is_inline else ExchangeStep.CALL

    @property
    def is_held_up(self) -> bool:
        """Whether memory comes first: `go_on`, before more of the body is taken."""
        return self._once_granted is not None or self.reservation.is_short

    def go_on(self) -> ExchangeStep | None:
        """Go on with what has waited for memory; wait for more if the request has less than it will take, and no room.

        Returns:
            The next step; None if more events of the body are wanted.

        Raises:
            LimitExceededError: it takes more than there is for all requests.
        """
        go_on, self._once_granted = self._once_granted, None
        if go_on is not None and (step := go_on()):
            return step
        taken = self._taken() if self.reservation.is_short else None
        return None if taken is None or self.reservation.has_room(taken, self._memory_bytes) else ExchangeStep.WAIT

    def answer(self, reply: Reply) -> ExchangeStep:
        """Answer the current request, whether all of it has been received or not."""
        self.reply = finished(self._service, reply, self.head)
        self.is_answered = True
        if self.watch is not None:
            self._tell(reply, self.watch)
        self.head = self.inference = self._request = self._once_granted = None
        return ExchangeStep.ANSWER

    def fail(self, error: MessageError) -> ExchangeStep:
        """Answer what is wrong with the request."""
        return self.answer(error_reply(error))

    def refuse(self, head: RequestHead, reply: Reply) -> ExchangeStep:
        """Answer a request that the service is not asked about."""
        self.head = head
        if self.watch is not None:
            self.watch.begin(head)
        return self.answer(reply)

    def refuse_for_memory(self) -> ExchangeStep:
        """Refuse after having waited long enough for memory."""
        self.reservation.release()
        return self.answer(unavailable_reply("other requests have taken the server's memory", retry_after=1))

    def end(self) -> None:
        """Tell that the reply has been sent, or that there is nobody to send it to."""
        self.head = self.inference = self._request = self._once_granted = None
        self.reply = _NO_REPLY  # whoever keeps this shall not keep the memory of an answer
        self.is_answered = False
        self.reservation.release()

    def _begun(self) -> Inference | Listing:
        if self._request is None:
            msg = "no request is being received: begin() comes first, and nothing after ANSWER"
            raise LocalProtocolError(msg)
        return self._request

    def _tell(self, reply: Reply, watch: RequestWatch) -> None:
        watch.answered(reply)
        if watch.model is None and self.head is not None:
            name_model(watch, self.head, self._service)
        if self.inference is not None:
            watch.request_id = self.inference.request_id

    def _with_memory(self, inference: Inference, go_on: _GoOn) -> ExchangeStep | None:
        """Go on when the request has the memory that it takes, as far as that is known.

        Raises:
            LimitExceededError: it takes more than there is for all requests.
        """
        self._memory_bytes = nbytes = inference.memory_bytes
        held = inference.held_bytes if nbytes > self.reservation.nbytes else 0
        if self.reservation.ask(nbytes, held=held):
            return go_on(inference)
        self._once_granted = partial(go_on, inference)
        return ExchangeStep.WAIT

    def _with_little_memory(self, inference: Inference) -> ExchangeStep:
        """Receive a JSON header, in whatever memory it turns out to take.

        Raises:
            LimitExceededError: the whole body takes more than there is for all requests.
        """
        self.reservation.check(inference.least_bytes)
        self._memory_bytes = inference.header_bytes
        if self.reservation.has_room(0, self._memory_bytes):
            return ExchangeStep.RECEIVE
        self._once_granted = partial(_receive, inference)
        return ExchangeStep.WAIT

    def _taken(self) -> int | None:
        """Return how much memory the request takes that is being received; None if none is, or its model pulls it."""
        inference = self.inference
        if inference is None or inference.is_windowed or inference.decoder.is_complete:
            return None
        return inference.taken_bytes + (0 if self.arrival is None else self.arrival.unsettled)

    def _brought(self) -> int | None:
        """Return how much memory the client has filled; None if it is not the client who is waited for."""
        return None if self.arrival is not None and self.arrival.has_work else self._taken()


def finished(service: Service, reply: Reply, head: RequestHead | None) -> Reply:
    """Return a reply as it is sent; `head` is None if it could not be read."""
    if reply.refusal is not None:  # whoever keeps it would keep, by its traceback, the request with its memory
        reply.refusal.__traceback__ = None
    return service.finish(reply, head)


def name_model(watch: RequestWatch, head: RequestHead, service: Service) -> None:
    """Tell which model is asked about, if there is one, where it is not asked to infer."""
    if head.method == "POST":
        return
    with suppress(RemoteProtocolError):
        route = find_route(head.target)
        if route.model in service.models:
            watch.model, watch.version = route.model, route.version


def _receive(_: Inference) -> ExchangeStep:
    return ExchangeStep.RECEIVE


def _after_header(inference: Inference) -> ExchangeStep | None:
    return ExchangeStep.CALL if inference.is_windowed else None
