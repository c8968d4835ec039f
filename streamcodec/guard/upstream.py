"""Upstream: the connections to the server behind the guard, under anyio.

They come from a pool, as those of a client. A connection goes back to it only after a whole request and a whole answer.
In every other case it is closed, so the server behind sees that the request has ended early.

A kept connection may die at the moment in which it is used. A proxy must not repeat a request by itself, unless the
request changes nothing (RFC 9110, section 9.2.2), and an inference may. So its client gets status 502.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import cast

import anyio

from streamcodec.client.awaiting import Awaiting
from streamcodec.client.caller import Caller
from streamcodec.client.common import Common
from streamcodec.client.connections.address import Address
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import EndOfMessage, WindowReceived
from streamcodec.engine.limits import Limits
from streamcodec.engine.message import Part
from streamcodec.guard.relaying.arrived import next_arrived
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.transports import aio
from streamcodec.transports.duplex import AsyncDuplex
from streamcodec.transports.tls.sockets import TlsSocket


class Upstream:
    """The server behind.

    Attributes:
        address: where it is.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: Timeout,
        max_connections: int,
        limits: Limits,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            url: as for `Client`.
            timeout: of each request; `read` is for the answer to begin, and to go on.
            max_connections: at one time; further requests wait for `timeout.pool`.
            limits: bound the heads of answers.
            ssl_context: as for `Client`.

        Raises:
            LocalProtocolError: the URL is none, or has credentials, which belong to clients here.
        """
        self._common = Common(
            url,
            ssl_context=ssl_context,
            timeout=timeout,
            total_timeout=None,
            max_connections=max_connections,
            keepalive_expiry=30.0,
            limits=limits,
        )
        self._caller = Caller(self._common, Awaiting(self._common.context))
        self._timeout = timeout
        self.address: Address = self._common.address
        if self.address.credentials is not None:
            msg = "the URL of the upstream has no user and password: the clients' own Authorization is passed on"
            raise LocalProtocolError(msg)

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[Held]:
        """Yield a connection for one request.

        Raises:
            TimeoutError: there was no place or no connection in time.
            OSError: the server cannot be reached.
        """
        times = self._common.times(None, None)
        async with self._caller.place(times):
            held = Held(self._common.take_kept() or await self._caller.connect(times), times.timeout)
            try:
                yield held
            finally:
                self._give_back(held)

    @asynccontextmanager
    async def keeping(self, held: Held) -> AsyncIterator[Held]:
        """Yield a connection of `hold_at_once`, and give it back at the end."""
        try:
            yield held
        finally:
            self.release(held)

    def hold_at_once(self) -> Held | None:
        """Return a kept connection for one request; None if there is none, or no place. Give it back by `release`."""
        pool = self._common.pool
        if not pool.enter_at_once():
            return None
        connection = self._common.take_kept()
        if connection is None:
            pool.leave()
            return None
        return Held(connection, self._timeout)

    def release(self, held: Held) -> None:
        """Give a connection back, and its place."""
        self._give_back(held)
        self._common.pool.leave()

    def _give_back(self, held: Held) -> None:
        self._common.pool.give_back(held.connection, monotonic(), is_good=held.is_good)

    def close(self) -> None:
        """Close the kept connections."""
        self._common.pool.close()


class Held:
    """A connection to the server behind, for one request.

    Attributes:
        connection: as the pool keeps it.
        is_good: whether a whole request and a whole answer have passed, and another request may follow.
        is_last: whether no other may, because bytes may come that belong to no answer.
    """

    def __init__(self, connection: Connection, timeout: Timeout) -> None:
        """Begin before the request."""
        self.connection = connection
        self._timeout = timeout
        self.is_good: bool = False
        self.is_last: bool = False

    @property
    def plain_socket(self) -> socket.socket:
        """The socket, which is without TLS."""
        return cast("socket.socket", self.connection.socket)

    async def pieces(self, duplex: AsyncDuplex[HttpEvent]) -> AsyncGenerator[memoryview, None]:
        """Yield the body of an answer in pieces; each is valid until the next one is asked for.

        The errors are those of `AsyncDuplex.next_event`.
        """
        sock, http = self.connection.socket, self.connection.http
        event: HttpEvent | None = None
        while not isinstance(event, EndOfMessage):
            if duplex.is_sent and not isinstance(sock, TlsSocket):
                wait = partial(aio.ProgressLimit(self._timeout.read).wait, anyio.wait_readable, sock)
                event = await next_arrived(sock, http, wait)
            else:
                event = await duplex.next_event()
            if isinstance(event, WindowReceived):
                yield event.array.data

    @asynccontextmanager
    async def exchanging(
        self,
        method: str,
        target: str,
        fields: Iterable[tuple[bytes, bytes]],
        parts: list[Part],
        *,
        rest: list[Part] | None = None,
    ) -> AsyncIterator[AsyncDuplex[HttpEvent]]:
        """Send a request, and yield what reads the answer. The block must read the answer to its end, or raise.

        Args:
            method: and the other arguments: as of `ClientConnection.send_request`.
            target: with the path before it, if the URL has one.
            fields: of the request.
            parts: its body.
            rest: what of the request has not been sent; None if nothing has.

        Raises:
            TimeoutError: nothing has moved for too long.
            OSError: the server has broken off.
        """
        connection = self.connection
        begin = connection.http.send_request if rest is None else connection.http.resume
        sent = begin(method, target, fields, parts)
        duplex: AsyncDuplex[HttpEvent] = AsyncDuplex(
            connection.socket,
            connection.http,
            sent if rest is None else rest,
            read_timeout=self._timeout.read,
            write_timeout=self._timeout.write,
        )
        connection.sending = duplex
        async with duplex.sending():
            yield duplex
        self.is_good = duplex.is_sent and connection.http.is_reusable and not self.is_last
