"""Exchange: takes the requests of one connection one by one, and decides on their answers. Sans-IO.

All decisions about a request are made here, and in this order: by its head, by the memory that it needs, by its body,
by its model. The owner brings the head and the events of the body, and does what each step says. The owner decides how
to wait. `server.Session` is the owner for connections of the bundled server. `server.Frontend` and `streamcodec.wsgi`
are the owners for frameworks that have their own connections.

Before a request takes memory, the exchange asks the budget for it: for a short body when the head has arrived, for
other bodies when the JSON header is complete. A JSON header takes memory in steps while it arrives. A request that is
answered at once takes no memory of its own, and asks for none. A request that arrives too slowly while others wait
keeps only the memory that it really uses. The owner then asks after each read whether that is enough (`go_on`). A
waiting request has only the memory that it uses. A refused request has none, because sending its answer may take long.

A request may be one message of an upload that can be resumed (`portion`), if there are such uploads. Then its body goes
to the inference of that upload, whose memory comes and goes with it.
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
from streamcodec.engine.record import replaced
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.bodies.known import KnownBody
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.memory.lane import LaneInference, SharedMemory
from streamcodec.service.models.listing import Listing
from streamcodec.service.observing import CallWatch
from streamcodec.service.replies import Reply, drop_tracebacks, error_reply, sendable, unavailable_reply
from streamcodec.service.request.inference import Inference, ResolvedHead
from streamcodec.service.request.plan import Plan
from streamcodec.service.routes import find_route
from streamcodec.service.service import Service
from streamcodec.service.uploads.deciding import UploadService
from streamcodec.service.uploads.upload import Upload, UploadPart

_NO_REPLY: Final = Reply(status=500)
_OK: Final = 200


class ExchangeStep(Enum):
    """What the owner of an exchange does next."""

    RECEIVE = auto()
    """Send the body to `decoder`, and pass its events to `receive`."""
    FILL = auto()
    """Send the rest of the body, whose JSON header is known, to `known_body`; when that is full, call the model."""
    WAIT = auto()
    """Wait until `reservation` has been granted, then call `go_on`; or call `refuse_for_memory`."""
    CALL = auto()
    """Call the model of `inference`, and pass its reply to `answer`."""
    ANSWER = auto()
    """Send `reply`, then call `end`."""


_GoOn = Callable[[Inference], ExchangeStep | None]


class Arrival(Protocol):
    """The source of a body: a connection's `Incoming`, or a `FedBody`."""

    received: int
    """Bytes that have arrived."""

    @property
    def has_work(self) -> bool:
        """Whether bytes that have arrived wait for processing, so that the request does not wait for the client."""
        ...

    @property
    def unsettled(self) -> int:
        """Bytes in the receiver's memory that have not been reported to it yet."""
        ...


class RequestWatch(CallWatch, Protocol):
    """Receives the events of one request: the server's part, which keeps the record.

    Attributes:
        model: see `RequestRecord`; the exchange sets this and the next two.
        version: of the model.
        request_id: of the JSON header.
    """

    model: str | None
    version: str | None
    request_id: str | None

    def begin(self, head: RequestHead | None) -> None:
        """The head has been read; None if it was refused."""

    def asks(self, inference: Inference) -> None:
        """The request is for inference with a model."""

    def answered(self, reply: Reply) -> None:
        """There is a reply, which is sent next."""


class Exchange:
    """The requests of one connection, one at a time; or a single request.

    Attributes:
        reservation: the memory of the current request.
        head: of the current request, until there is a reply; None if the head could not be read.
        inference: of the current request, until there is a reply; None for requests that call no model.
        reply: after `ExchangeStep.ANSWER`, until `end`.
        is_answered: whether there is a reply.
        arrival: the source of bodies; the owner sets it.
        watch: receives the events of the current request; None if nobody observes it.
        memory: what the connection shares with its client; None without a memory lane.
        portion: what the current request brings of an upload, until all of it has come; None for other requests.
        on_give_way: called when another connection goes on with that upload. The owner then reports all bytes that have
            come to the receiver, drops those that still come, and closes the connection.
    """

    def __init__(self, service: Service, reservation: Reservation, uploads: UploadService | None = None) -> None:
        """Begin before the first request.

        Args:
            service: answers the requests.
            reservation: still empty.
            uploads: decides on uploads that can be resumed; None if there are none.
        """
        self._uploads = uploads
        self._ended: Upload | None = None
        self._is_kept = False
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
        self.memory: SharedMemory | None = None
        self.portion: UploadPart | None = None
        self.on_give_way: Callable[[], object] | None = None

    @property
    def decoder(self) -> Decoder[RequestHeader] | Collector | UploadPart:
        """The receiver of the body, after `ExchangeStep.RECEIVE`.

        Raises:
            LocalProtocolError: there is no request, or it has been answered.
        """
        return self._begun().decoder if self.portion is None else self.portion

    @property
    def known_body(self) -> KnownBody | None:
        """The memory of the body, after `ExchangeStep.FILL`."""
        body = None if self.inference is None else self.inference.arriving
        return body if isinstance(body, KnownBody) else None

    @property
    def has_header(self) -> bool:
        """Whether only tensors are awaited, or the rest of a body that is not needed."""
        return self.inference is None or self.inference.has_header or self.inference.resolved.is_gathered

    def begin(
        self,
        head: RequestHead,
        resolved: ResolvedHead | None = None,
        plan: Plan | None = None,
        body: memoryview | None = None,
    ) -> ExchangeStep:
        """Decide by the head; no byte of the body has been read.

        Args:
            head: of the request.
            resolved: what `Service.open` has decided for this head, if that is known and its model is ready.
            plan: of the body, if its JSON header has arrived.
            body: all of it, if it has arrived and has a plan.

        Raises:
            MessageError: the request is refused; pass the error to `fail`.
        """
        self.head = head
        if self.watch is not None:
            self.watch.begin(head)
        if resolved is None:
            if self._uploads is not None and (opened := self._uploads.open(head)) is not None:
                return self.answer(opened) if isinstance(opened, Reply) else self._carry(opened, self._uploads)
            outcome = self._service.begin(head, pause_after_header=True, paced=True)
        elif plan is not None and self.reservation.ask_at_once(plan.nbytes):
            return self._begin_planned(Inference(resolved, plan=plan, body=body, reservation=self.reservation))
        else:
            outcome = resolved.begin(pause_after_header=True, paced=True)
        if isinstance(outcome, Reply):
            return self.answer(outcome)
        if self.memory is not None and isinstance(outcome, Inference) and outcome.resolved.in_memory:
            outcome = LaneInference(outcome.resolved, self.memory, paced=True)
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

    def _begin_planned(self, inference: Inference) -> ExchangeStep:
        """Receive a body of which everything is known, in memory that it has already."""
        self._request = self.inference = inference
        if self.watch is not None:
            self.watch.asks(inference)
        self.reservation.taken = self._brought
        self._memory_bytes = self.reservation.nbytes
        return ExchangeStep.FILL

    def receive(self, event: HttpEvent) -> ExchangeStep | None:
        """Take an event of the body; None if more are wanted.

        Raises:
            MessageError: the request is refused; pass the error to `fail`.
            LocalProtocolError: there is no request, or it has been answered.
        """
        request = self._begun()
        if isinstance(request, Listing):
            return self.answer(request.run())
        request.receive(event)
        if isinstance(event, HeaderReceived):
            return self._with_memory(request, self._after_header)
        if not isinstance(event, EndOfMessage):
            return None
        if request.resolved.is_gathered:  # what was kept has been copied, and is free again
            self.reservation.ask(request.arriving.offset)
        if self.portion is not None and self._uploads is not None and (step := self._end(self.portion, self._uploads)):
            return step
        if self.reservation.is_short and not self.reservation.ask(request.memory_bytes, held=request.taken_bytes):
            self._once_granted = lambda: ExchangeStep.CALL  # for the objects of BYTES, which are made now
            return ExchangeStep.WAIT
        return ExchangeStep.CALL

    @property
    def is_held_up(self) -> bool:
        """Whether memory is needed first: call `go_on` before more of the body is taken."""
        return self._once_granted is not None or self.reservation.is_short

    def go_on(self) -> ExchangeStep | None:
        """Continue a request that has waited for memory; wait for more if it has too little and there is no room.

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
        """Answer the current request, even if it has not been received completely."""
        if self._uploads is not None:
            reply = self._leave(reply, self._uploads)
        self.reply = reply = finished(self._service, reply, self.head)
        self.is_answered = True
        if (watch := self.watch) is not None:
            watch.answered(reply)
            if watch.model is None and self.head is not None:
                name_model(watch, self.head, self._service)
            if self.inference is not None:
                watch.request_id = self.inference.request_id
        self._leave_seat()
        self.head = self.inference = self._request = self._once_granted = None
        return ExchangeStep.ANSWER

    def fail(self, error: MessageError) -> ExchangeStep:
        """Answer with the error of the request."""
        return self.answer(error_reply(error))

    def refuse(self, head: RequestHead, reply: Reply) -> ExchangeStep:
        """Answer a request without asking the service."""
        self.head = head
        if self.watch is not None:
            self.watch.begin(head)
        return self.answer(reply)

    def refuse_for_memory(self) -> ExchangeStep:
        """Refuse a request that has waited too long for memory."""
        self.reservation.release()
        return self.answer(unavailable_reply("other requests use all of the server's memory", retry_after=1))

    def let_go(self) -> None:
        """Keep the upload of the current request, if there is one, because this connection brings no more of it."""
        portion = self.portion
        if portion is not None and self._uploads is not None:
            portion.upload.inference.watch = None
            self._uploads.uploads.keep(portion.upload, self.reservation)
            self.portion = None  # only now: if there was no memory to keep it, this is called again
            self.end()

    def give_way(self) -> None:
        """Let another connection go on with the upload of the current request."""
        if self.on_give_way is not None:
            self.on_give_way()
        self.let_go()

    def end(self) -> None:
        """Report that the reply has been sent, or that nobody is left to receive it."""
        self._leave_seat()
        if self._ended is not None:  # and nobody waits for the answer: its client may still come for it
            if self._is_kept and self._uploads is not None:
                self._uploads.uploads.keep(self._ended, self.reservation)
            self._ended = None
        self.head = self.inference = self._request = self._once_granted = None
        self.reply = _NO_REPLY  # an exchange that lives on must not keep the memory of an answer
        self.is_answered = False
        self.reservation.release()

    def _after_header(self, inference: Inference) -> ExchangeStep | None:
        if inference.is_windowed:
            return ExchangeStep.CALL
        if not inference.resolved.is_whole and self.portion is None:  # an upload outlives its connection, and its batch
            inference.take_seat(self.reservation)
        return None

    def _leave_seat(self) -> None:
        if self.inference is not None and self.inference.seat is not None:
            self.inference.seat.leave()

    def _begun(self) -> Inference | Listing:
        if self._request is None:
            msg = "no request is being received: call begin() first, and nothing after ANSWER"
            raise LocalProtocolError(msg)
        return self._request

    def _carry(self, portion: UploadPart, uploads: UploadService) -> ExchangeStep:
        """Receive a message of an upload.

        Raises:
            LimitExceededError: the upload takes more memory than there is for all requests.
        """
        upload = portion.upload
        self.portion = portion
        self._request = self.inference = inference = upload.inference
        uploads.uploads.carry(upload, self, self.reservation)
        if self.watch is not None:
            self.watch.asks(inference)
        self.reservation.taken = self._brought
        if inference.has_header or inference.resolved.is_whole:
            return self._with_memory(inference, _receive) or ExchangeStep.RECEIVE
        self.reservation.is_short = True
        return self._with_little_memory(inference)

    def _end(self, portion: UploadPart, uploads: UploadService) -> ExchangeStep | None:
        """Answer a message of an upload that is not its last one; None if the model answers."""
        if not portion.is_last:
            reply = uploads.acknowledgement(portion)
            head = self.head
            self.let_go()
            self.head = head
            return self.answer(reply)
        self.portion, self._ended = None, portion.upload
        self._is_kept = uploads.uploads.complete(portion.upload)
        return None

    def _leave(self, reply: Reply, uploads: UploadService) -> Reply:
        """Say that an upload is complete; or keep one whose connection has failed, or drop one that is refused."""
        portion = self.portion
        if self._ended is not None:
            if self._is_kept:
                uploads.uploads.end(self._ended)
            self._ended = None
            return replaced(reply, headers=[*reply.headers, ("Upload-Complete", "?1")])
        if portion is not None:
            portion.upload.inference.watch = None
            if uploads.may_go_on(portion, reply.refusal):
                uploads.uploads.keep(portion.upload, self.reservation)
            else:
                uploads.uploads.end(portion.upload)
            self.portion = None
        return reply

    def _with_memory(self, inference: Inference, go_on: _GoOn) -> ExchangeStep | None:
        """Continue when the request has the memory that it takes, as far as that is known.

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
        """Receive a JSON header in steps, in the memory that it needs.

        Raises:
            LimitExceededError: the whole body takes more than there is for all requests.
        """
        self.reservation.check(inference.least_bytes)
        self._memory_bytes = inference.header_bytes
        if self.reservation.has_room(inference.taken_bytes, self._memory_bytes):
            return ExchangeStep.RECEIVE
        self._once_granted = partial(_receive, inference)
        return ExchangeStep.WAIT

    def _taken(self) -> int | None:
        """Return the memory that the request takes now; None if none is being received, or if its model pulls it."""
        inference = self.inference
        if inference is None or inference.is_windowed or inference.arriving.is_complete:
            return None
        return inference.taken_bytes + (0 if self.arrival is None else self.arrival.unsettled)

    def _brought(self) -> int | None:
        """Return how much memory the client has filled; None if the request does not wait for the client."""
        return None if self.arrival is not None and self.arrival.has_work else self._taken()


def finished(service: Service, reply: Reply, head: RequestHead | None) -> Reply:
    """Return a reply in the form in which it is sent; `head` is None if it could not be read.

    A status that no answer can have becomes 500, with the reason as its `cause`.
    """
    if reply.refusal is not None:
        drop_tracebacks(reply.refusal)
    return service.finish(reply if reply.status == _OK else sendable(reply), head)


def name_model(watch: RequestWatch, head: RequestHead, service: Service) -> None:
    """Report the model of a request that asks about it without inference."""
    if head.method == "POST":
        return
    with suppress(RemoteProtocolError):
        route = find_route(head.target)
        if route.model in service.models:
            watch.model, watch.version = route.model, route.version


def _receive(_: Inference) -> ExchangeStep:
    return ExchangeStep.RECEIVE
