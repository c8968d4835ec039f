"""Conversation: one request that comes through another server, from its head to the end of its answer.

It does what the `Exchange` says, with a `Peer`, and is responsible for waiting and time. The driver does the same for
connections of the bundled server. The time limits are the same: how long a client may take to send, and to read.
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from functools import partial

import anyio

from streamcodec.engine.errors import ErrorCode, MessageError, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.model import Event
from streamcodec.http.fed import FedBody
from streamcodec.http.messages import HttpEvent, RequestHead
from streamcodec.server.atonce import Opened, begin
from streamcodec.server.calls import Caller
from streamcodec.server.failures import log_failure
from streamcodec.server.looking import looking
from streamcodec.server.observation import BODY, MODEL, Observation
from streamcodec.server.options import ServerOptions
from streamcodec.server.pace import run_inline
from streamcodec.server.patience import Patience, Phase, Taking
from streamcodec.server.peer import Peer
from streamcodec.server.waiting import wait_for_memory
from streamcodec.server.workers import Workers
from streamcodec.service import Inference, Reply
from streamcodec.service.exchange import Exchange, ExchangeStep
from streamcodec.service.replies import complete_headers
from streamcodec.transports import turns
from streamcodec.transports.beside import beside
from streamcodec.transports.limited import current_time, within
from streamcodec.transports.vectors import async_copied_pieces


class Progress:
    """The progress of the body of one request, for `Patience`."""

    request_count = 1

    def __init__(self, exchange: Exchange) -> None:
        """Begin before the body."""
        self._exchange = exchange

    @property
    def phase(self) -> Phase:
        """The part of the request that is awaited."""
        return Phase.BODY if self._exchange.has_header else Phase.HEADER

    @property
    def received(self) -> int:
        """Bytes that have come."""
        arrival = self._exchange.arrival
        return 0 if arrival is None else arrival.received

    @property
    def has_work(self) -> bool:
        """Whether received bytes wait to be worked on."""
        arrival = self._exchange.arrival
        return arrival is not None and arrival.has_work

    @property
    def has_lost(self) -> bool:
        """Whether the request was too slow while others wait for its memory."""
        return self._exchange.reservation.is_lost


class Conversation:
    """One request.

    Attributes:
        sent: bytes of the answer's body that the framework has taken.
    """

    _body: FedBody

    def __init__(
        self,
        exchange: Exchange,
        peer: Peer,
        workers: Workers,
        options: ServerOptions,
        *,
        limits: Limits,
        observation: Observation | None,
    ) -> None:
        """Prepare."""
        self._limits = limits
        self._exchange = exchange
        self._peer = peer
        self._options = options
        self._observation = observation
        self._head: RequestHead | None = None
        self._taken = 0
        self._caller = Caller(workers, exchange.reservation, options.model_timeout)
        self._progress = Progress(exchange)
        self._patience = Patience(options, self._progress)
        self.sent: int = 0

    @property
    def received(self) -> int:
        """Bytes of the request's body that have come."""
        return self._taken or self._progress.received

    async def run(self, head: RequestHead | MessageError, opened: Opened | None = None) -> None:
        """Receive the request, and make the reply.

        Args:
            head: of the request; or the error in it.
            opened: what the head means, if that is known.

        Raises:
            ConnectionError: the client has left.
        """
        exchange, observation = self._exchange, self._observation
        try:
            if isinstance(head, MessageError):
                raise head
            self._head = head
            step: ExchangeStep | None = begin(exchange, head, opened)
            while step is not ExchangeStep.ANSWER:
                if observation is not None:
                    observation.goes_on(is_waiting=step is ExchangeStep.WAIT or step is ExchangeStep.CALL)
                if step is ExchangeStep.RECEIVE:
                    self._begin_body(head)
                    if self._peer.waited is not None:
                        self._patience.has_waited(*self._peer.waited)
                step = await self._do(step)
        except MessageError as error:
            exchange.fail(error)
        except MemoryError:
            exchange.fail(OutOfMemoryError("there is no memory for the request now"))

    def take(self, head: RequestHead, reply: Reply) -> None:
        """Take a reply that was already made from the whole body."""
        self._head = head
        self._taken = head.content_length or 0
        self._exchange.refuse(head, reply)

    async def send(self) -> None:
        """Send the reply.

        Raises:
            TimeoutError: the client does not read it.
            Exception: the answer ended in the middle.
        """
        reply = self._exchange.reply
        if reply.cause is not None:
            log_failure(reply.cause, reply.call, is_observed=self._observation is not None)
        headers = complete_headers(reply)
        if self._peer.can_close and self._leaves_much():
            headers.append(("Connection", "close"))
        await self._peer.start(reply.status, headers)
        if self._head is not None and self._head.method == "HEAD":
            return
        taking = Taking(self._options)
        async with aclosing(async_copied_pieces(self._caller.sendable([*reply.buffers]))) as pieces:
            async for piece in pieces:
                await self._send(piece, taking)

    def end(self) -> None:
        """Give back its share of the threads."""
        self._caller.end()

    def _begin_body(self, head: RequestHead) -> None:
        self._body = FedBody(head, self._exchange.decoder, self._limits, is_decoded=self._peer.is_decoded, paced=True)
        self._exchange.arrival = self._body

    async def _do(self, step: ExchangeStep | None) -> ExchangeStep | None:
        exchange = self._exchange
        if step is ExchangeStep.WAIT:
            is_granted = await wait_for_memory(exchange.reservation, self._options.budget_timeout)
            return exchange.go_on() if is_granted else exchange.refuse_for_memory()
        if step is ExchangeStep.CALL and exchange.inference is not None:
            if exchange.inference.is_inline:
                return exchange.answer(run_inline(exchange.inference, self._options.model_timeout))
            return exchange.answer(await self._call(exchange.inference))
        if exchange.is_held_up and (held := exchange.go_on()):
            return held
        event = await self._next_event()
        if event is NEED_TURN:
            await turns.work(self._body)
        elif event is not NEED_DATA:
            return exchange.receive(event)
        return None

    async def _next_event(self) -> Event | NeedData | NeedTurn:
        """Return the next event of the body; `NEED_DATA` if memory is needed before more of it is taken.

        One limit of time holds for all pieces that come meanwhile, because a limit for each would cost more than to
        take a piece: it took half of the time of a body in pieces of 64 KiB. A wait for a piece is cancelled only when
        the request is over: the framework could lose that piece.

        Raises:
            RemoteProtocolError: `too-slow`.
        """
        body, patience = self._body, self._patience
        if (event := body.next_event()) is not NEED_DATA:
            return event
        if self._peer.has_piece:
            await self._take_piece()
            return body.next_event()
        patience.resume()
        try:
            with suppress(TimeoutError), looking(patience.look):
                while event is NEED_DATA:
                    await self._take_piece()
                    event = body.next_event()
                    if self._exchange.is_held_up:
                        break
                return event
        finally:
            patience.pause(current_time())
        raise self.too_slow()

    def too_slow(self) -> RemoteProtocolError:
        """Return the error of a client that has had its time."""
        part = "body" if self._exchange.has_header else "JSON header"
        msg = f"the {part} of the request comes too slowly"
        return RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408)

    async def _take_piece(self) -> None:
        if turns.is_over():  # a framework that has a piece already need not wait
            await turns.wait()
        try:
            piece = await self._peer.receive()
        except ConnectionError:  # answered like a body that ends too early: the client may still read
            self._body.break_off()
            return
        if piece is None:
            self._body.receive_eof()
        elif len(piece):
            self._body.feed(piece)

    async def _pull(self) -> HttpEvent:
        """Wait for the next event of a request whose model takes windows.

        Raises:
            RemoteProtocolError: the request breaks a rule, arrives too slowly, or its connection is lost.
        """
        observation = self._observation
        if observation is not None:
            observation.enter(BODY)
        try:
            while (event := await self._next_event()) is NEED_DATA or event is NEED_TURN:
                if event is NEED_TURN:
                    await turns.work(self._body)
        finally:
            if observation is not None:
                observation.enter(MODEL)
        return event

    async def _call(self, inference: Inference) -> Reply:
        """Call the model.

        Raises:
            ConnectionError: the client has left, and the model was cancelled.
        """
        departure = Departure(self._peer)
        if inference.is_windowed or not inference.resolved.is_async:
            return await self._caller.call(inference, self._pull, departure.of)
        async with beside(departure.watch):
            return await self._caller.call(inference, self._pull, departure.of)

    async def _send(self, data: bytes, taking: Taking) -> None:
        if turns.is_over():
            await turns.wait()
        taking.resume(current_time())
        await within(self._options.write_timeout, partial(self._peer.send, data))
        self.sent += len(data)
        taking.look(current_time(), self.sent)

    def _leaves_much(self) -> bool:
        """Whether more of the request is unread than a server drops to keep the connection."""
        if self._taken:
            return False
        if self._exchange.arrival is None:
            unread = None if self._head is None else self._head.content_length
        else:
            unread = 0 if self._body.has_ended else self._body.remaining
        return unread is None or unread > self._limits.max_drain_bytes


class Departure:
    """Waits for a client to leave while its model works.

    Attributes:
        has_left: whether that has happened.
    """

    _scope: anyio.CancelScope

    def __init__(self, peer: Peer) -> None:
        """Prepare for one call."""
        self._peer = peer
        self._is_over = False
        self.has_left: bool = False

    def of(self, scope: anyio.CancelScope) -> Departure:
        """Choose the scope that is cancelled when the client leaves."""
        self._scope = scope
        return self

    def forget(self) -> None:
        """Report that the model has returned."""
        self._is_over = True

    async def watch(self) -> None:
        """Wait until the client leaves."""
        await self._peer.gone()
        if not self._is_over:
            self.has_left = True
            self._scope.cancel()
