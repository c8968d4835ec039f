"""Conversation: one request of a WSGI server, from its head to its reply, in the thread of the request.

It does what the `Exchange` says, as `server.Conversation` does under an event loop. The rules are those of `Exchange`
and `FedBody`. The rest of the two loops differs in each line: there, a step awaits a piece, a turn, a thread or memory,
and may be cancelled. Here, the thread itself waits, reads and calls the model. So no code here can interrupt a read or
a call: only the server's own time limits can. After each read, this module checks whether the client is fast enough for
the memory that it holds.
"""

from __future__ import annotations

from time import monotonic

from streamcodec.engine.errors import ErrorCode, MessageError, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.engine.limits import Limits
from streamcodec.http.fed import FedBody
from streamcodec.http.messages import HttpEvent, RequestHead
from streamcodec.server.atonce import Opened, begin
from streamcodec.server.conversation import Progress
from streamcodec.server.observation import BODY, MODEL, Observation
from streamcodec.server.options import ServerOptions
from streamcodec.server.pace import run
from streamcodec.server.patience import Patience
from streamcodec.server.sharing import SharedReservation
from streamcodec.server.waiting import block_for_memory
from streamcodec.service import Inference, Reply, failure_reply
from streamcodec.service.exchange import Exchange, ExchangeStep
from streamcodec.wsgi.intake import Begun, Intake, Readable


class Conversation:
    """One request."""

    _body: FedBody
    _intake: Intake

    def __init__(
        self,
        exchange: Exchange,
        reservation: SharedReservation,
        options: ServerOptions,
        *,
        limits: Limits,
        observation: Observation | None,
    ) -> None:
        """Prepare; the reservation is that of the exchange."""
        self._exchange = exchange
        self._reservation = reservation
        self._options = options
        self._limits = limits
        self._observation = observation
        self._progress = Progress(exchange)
        self._patience = Patience(options, self._progress)

    @property
    def received(self) -> int:
        """Bytes of the request's body that have come."""
        return self._progress.received

    def run(self, head: RequestHead | MessageError, stream: Readable, opened: Opened | None) -> None:
        """Receive the request, and make the reply.

        Args:
            head: of the request; or the error in it.
            stream: provides the body.
            opened: what the head means, if that is known.
        """
        exchange, observation = self._exchange, self._observation
        try:
            if isinstance(head, MessageError):
                raise head
            step: ExchangeStep | None = begin(exchange, head, opened)
            if exchange.inference is not None and exchange.inference.resolved.is_async:
                step = exchange.answer(_needs_event_loop(exchange.inference))
            while step is not ExchangeStep.ANSWER:
                if observation is not None:
                    observation.goes_on(is_waiting=step is ExchangeStep.WAIT or step is ExchangeStep.CALL)
                if step is ExchangeStep.RECEIVE:
                    self._body = FedBody(head, exchange.decoder, self._limits, paced=True)
                    self._intake = Intake(stream)
                    exchange.arrival = self._body
                    if isinstance(stream, Begun) and stream.waited is not None:
                        self._patience.has_waited(*stream.waited)
                step = self._do(step)
        except MessageError as error:
            exchange.fail(error)
        except MemoryError:
            exchange.fail(OutOfMemoryError("there is no memory for the request now"))

    def _do(self, step: ExchangeStep | None) -> ExchangeStep | None:
        exchange = self._exchange
        if step is ExchangeStep.WAIT:
            is_granted = block_for_memory(exchange.reservation, self._options.budget_timeout)
            return exchange.go_on() if is_granted else exchange.refuse_for_memory()
        if step is ExchangeStep.CALL and exchange.inference is not None:
            return exchange.answer(run(exchange.inference, self._pull))
        if exchange.is_held_up and (held := exchange.go_on()):
            return held
        event = self._body.next_event()
        if event is NEED_DATA:
            self._read()
            return None
        if event is NEED_TURN:
            self._body.work()
            return None
        return exchange.receive(event)

    def _read(self) -> None:
        """Read once, and check how long that took.

        Raises:
            RemoteProtocolError: the connection is broken, or `too-slow`.
        """
        try:
            self._reservation.begin_to_wait()
            self._patience.resume()
            self._patience.look(monotonic())
            self._intake.read(self._body)
            if not self._body.has_ended:
                self._patience.look(monotonic())
        except TimeoutError:
            part = "body" if self._exchange.has_header else "JSON header"
            msg = f"the {part} of the request comes too slowly"
            raise RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408) from None
        finally:
            self._patience.pause(monotonic())
            self._reservation.end_to_wait()

    def _pull(self) -> HttpEvent:
        """Return the next event of a request whose model takes windows.

        Raises:
            RemoteProtocolError: the request breaks a rule, arrives too slowly, or its connection is lost.
        """
        observation, body = self._observation, self._body
        if observation is not None:
            observation.enter(BODY)
        try:
            while (event := body.next_event()) is NEED_DATA or event is NEED_TURN:
                self._read() if event is NEED_DATA else body.work()
        finally:
            if observation is not None:
                observation.enter(MODEL)
        return event


def _needs_event_loop(inference: Inference) -> Reply:
    name = inference.resolved.model.name
    return failure_reply(f"model {name!r} is an async def, which this server has no event loop for", status=501)
