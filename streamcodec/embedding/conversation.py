"""Conversation: one request that comes through another server, from its head to the end of its answer.

A `TaskReader` receives it. This module calls the model and sends the answer, with a `Peer`. The driver does that for
connections of the bundled server. The time limits are the same: how long a client may take to send, and to read.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial

import anyio

from streamcodec.embedding.atonce import Opened
from streamcodec.embedding.reading import Peer, TaskReader
from streamcodec.embedding.request import ServiceRequest
from streamcodec.engine.errors import MessageError
from streamcodec.engine.limits import Limits
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.runtime.models.calls import ModelCaller
from streamcodec.runtime.models.failures import log_failure
from streamcodec.runtime.models.pace import run_inline
from streamcodec.runtime.models.workers import Workers
from streamcodec.runtime.observation import Observation, receiving
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import WriteTimeout
from streamcodec.service import Inference, Reply
from streamcodec.service.replies import complete_headers
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.transports import turns
from streamcodec.transports.beside import beside
from streamcodec.transports.limited import current_time, within
from streamcodec.transports.sockets.vectors import async_copied_pieces


class Conversation:
    """One request.

    Attributes:
        sent: bytes of the answer's body that the framework has taken.
    """

    _reader: TaskReader

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
        self._caller = ModelCaller(workers, exchange.reservation, options.model_timeout)
        self._request = ServiceRequest(exchange, limits, is_decoded=peer.is_decoded, observation=observation)
        self.sent: int = 0

    @property
    def received(self) -> int:
        """Bytes of the request's body that have come."""
        return self._request.received

    async def run(self, head: RequestHead | MessageError, opened: Opened | None = None) -> None:
        """Receive the request, and make the reply.

        Args:
            head: of the request; or the error in it.
            opened: what the head means, if that is known.

        Raises:
            ConnectionError: the client has left.
        """
        request = self._request
        try:
            request.begin(head, opened)
            self._reader = TaskReader(request, self._peer, self._options)
            while await self._reader.next_step() is ExchangeStep.CALL and request.inference is not None:
                request.answer(await self._reply_of(request.inference))
        except (MessageError, MemoryError) as error:
            request.fail(error)

    def take(self, head: RequestHead, reply: Reply) -> None:
        """Take a reply that was already made from the whole body."""
        self._request.head, self._request.taken = head, head.content_length or 0
        self._exchange.refuse(head, reply)

    async def send(self) -> None:
        """Send the reply.

        Raises:
            TimeoutError: the client does not read it.
            Exception: the answer ended in the middle.
        """
        reply = self._exchange.reply
        log_failure(reply, is_observed=self._observation is not None)
        headers = complete_headers(reply)
        if self._peer.can_close and self._leaves_much():
            headers.append(("Connection", "close"))
        await self._peer.start(reply.status, headers)
        if self._request.head is not None and self._request.head.method == "HEAD":
            return
        taking = WriteTimeout(self._options)
        async with aclosing(async_copied_pieces(self._caller.sendable([*reply.buffers]))) as pieces:
            async for piece in pieces:
                if turns.is_over():
                    await turns.wait()
                taking.resume(current_time())
                await within(self._options.write_timeout, partial(self._peer.send, piece))
                self.sent += len(piece)
                taking.look(current_time(), self.sent)

    def end(self) -> None:
        """Give back its share of the threads."""
        self._caller.end()

    async def _reply_of(self, inference: Inference) -> Reply:
        """Call the model where it runs."""
        if inference.is_inline:
            return run_inline(inference, self._options.model_timeout)
        return await self._call(inference)

    async def _pull(self) -> HttpEvent:
        """Wait for the next event of a request whose model takes windows.

        Raises:
            RemoteProtocolError: the request breaks a rule, arrives too slowly, or its connection is lost.
        """
        with receiving(self._observation):
            return await self._reader.next_event()

    async def _call(self, inference: Inference) -> Reply:
        """Call the model.

        Raises:
            ConnectionError: the client has left, and the model was cancelled.
        """
        departure = Departure(self._peer)
        if inference.is_windowed or not inference.resolved.is_awaited:
            return await self._caller.call(inference, self._pull, departure.of)
        async with beside(departure.watch):
            return await self._caller.call(inference, self._pull, departure.of)

    def _leaves_much(self) -> bool:
        """Whether more of the request is unread than a server drops to keep the connection."""
        if self._request.taken:
            return False
        head, body = self._request.head, self._request.body
        if body is None:
            unread = None if head is None else head.content_length
        else:
            unread = 0 if body.has_ended else body.remaining
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
