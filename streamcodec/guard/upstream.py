"""Upstream: the connections to the server behind the guard, under anyio.

They come from a pool, as those of a client. A connection goes back to it only after a whole request and a whole answer.
In every other case it is closed, so the server behind sees that the request has ended early.

A kept connection may die at the moment in which it is used. A proxy must not repeat a request by itself, unless the
request changes nothing (RFC 9110, section 9.2.2), and an inference may. So its client gets status 502.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import cast

import anyio

from streamcodec.client.address import Address
from streamcodec.client.awaiting import Awaiting
from streamcodec.client.common import Common
from streamcodec.client.connection import Connection
from streamcodec.client.timeouts import Timeout
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import NeedData
from streamcodec.engine.limits import Limits
from streamcodec.engine.message import Part
from streamcodec.guard.answers import Answer, Answers, Asked
from streamcodec.guard.arrived import next_arrived
from streamcodec.http.messages import ConnectionClosed, HttpEvent
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.transports import aio
from streamcodec.transports.duplex import AsyncDuplex
from streamcodec.transports.sync import received
from streamcodec.transports.system import send_some
from streamcodec.transports.tls import TlsSocket


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
        verify: bool | str | Path = True,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            url: as for `Client`.
            timeout: of each request; `read` is for the answer to begin, and to go on.
            max_connections: at one time; further requests wait for `timeout.pool`.
            limits: bound the heads of answers.
            verify: as for `Client`.
            ssl_context: as for `Client`.

        Raises:
            LocalProtocolError: the URL is none, or has credentials, which belong to clients here.
        """
        self._common = Common(
            url,
            headers=None,
            auth=None,
            verify=verify,
            ssl_context=ssl_context,
            timeout=timeout,
            total_timeout=None,
            max_connections=max_connections,
            keepalive_expiry=30.0,
            limits=limits,
            request_compression=None,
            response_compression=None,
            media_type=None,
            is_paced=True,
        )
        self._awaiting = Awaiting(self._common)
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
        async with self._awaiting.place(times):
            held = Held(self._common.take_kept() or await self._awaiting.connect(times), times.timeout)
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
    """

    def __init__(self, connection: Connection, timeout: Timeout) -> None:
        """Begin before the request."""
        self.connection = connection
        self._timeout = timeout
        self._unsent: list[memoryview] | None = None
        self._asked: Asked | None = None
        self.is_good: bool = False

    def begin(self, request: Sequence[memoryview]) -> bool:
        """Send a small request; return whether the system has taken all of it.

        Raises:
            OSError: the server has broken off.
        """
        self.is_good = False
        self._asked = self._unsent = None
        sent = 0
        with suppress(BlockingIOError):
            sent = send_some(self.connection.socket, request)
        self._unsent = unsent(request, sent)
        return not self._unsent

    def receive(self, answers: Answers) -> Answer | ConnectionClosed | NeedData:
        """Read once from the server, after `begin`; return its answer, if it has come. `ask` goes on from there.

        Raises:
            RemoteProtocolError: the connection has ended within the answer.
            OSError: the connection is broken, or there is nothing to read.
        """
        sock, http = cast("socket.socket", self.connection.socket), self.connection.http
        if self._asked is None:
            data = sock.recv(SCRATCH_BYTES)
            answer = answers.find_alone(data)
            if answer is not None:
                self.is_good = True
                return answer
            self._asked = Asked(http, answers)
            http.feed(data) if data else http.receive_eof()
        else:
            received(self._asked, sock.recv_into(self._asked.get_buffer()))
        event = self._asked.next_event()
        self.is_good = isinstance(event, Answer)
        return event

    async def ask(self, request: Sequence[memoryview], answers: Answers) -> Answer | None:
        """Send a small request, unless `begin` has, and wait for its answer.

        Returns:
            The answer; None if it goes the ordinary way, by `exchanging`.

        Raises:
            TimeoutError: nothing has moved for too long.
            OSError: the server has broken off.
        """
        if self._unsent is None:
            self.begin(request)
        if self._unsent:  # the server may answer before it has taken all, and that is what `exchanging` is for
            return None
        asked = self._asked or Asked(self.connection.http, answers)
        answer = await aio.next_event(self.connection.socket, asked, timeout=self._timeout.read)
        self.is_good = isinstance(answer, Answer)
        return answer if isinstance(answer, Answer) else None

    async def next_piece(self, duplex: AsyncDuplex[HttpEvent]) -> HttpEvent:
        """Return the next event of the body of an answer; the errors are those of `AsyncDuplex.next_event`."""
        sock = self.connection.socket
        if duplex.is_sent and not isinstance(sock, TlsSocket):
            wait = partial(aio.ProgressLimit(self._timeout.read).wait, anyio.wait_readable, sock)
            return await next_arrived(sock, self.connection.http, wait)
        return await duplex.next_event()

    @asynccontextmanager
    async def exchanging(
        self,
        method: str,
        target: str,
        fields: Iterable[tuple[bytes, bytes]],
        parts: list[Part],
        *,
        is_asked: bool = False,
    ) -> AsyncIterator[AsyncDuplex[HttpEvent]]:
        """Send a request, and yield what reads the answer. The block must read the answer to its end, or raise.

        Args:
            method: and the other arguments: as of `ClientConnection.send_request`.
            target: with the path before it, if the URL has one.
            fields: of the request.
            parts: its body.
            is_asked: whether `ask` has begun to send it.

        Raises:
            TimeoutError: nothing has moved for too long.
            OSError: the server has broken off.
        """
        connection = self.connection
        begin = connection.http.resume if is_asked else connection.http.send_request
        sent = begin(method, target, fields, parts)
        duplex: AsyncDuplex[HttpEvent] = AsyncDuplex(
            connection.socket,
            connection.http,
            (self._unsent or ()) if is_asked else sent,
            read_timeout=self._timeout.read,
            write_timeout=self._timeout.write,
        )
        connection.sending = duplex
        async with duplex.sending():
            yield duplex
        self.is_good = duplex.is_sent and connection.http.is_reusable


def unsent(buffers: Sequence[memoryview], sent: int) -> list[memoryview]:
    """Return the rest of some buffers, of which so many bytes have been sent."""
    rest = []
    for buffer in buffers:
        if sent < len(buffer):
            rest.append(buffer[sent:])
        sent = max(0, sent - len(buffer))
    return rest
