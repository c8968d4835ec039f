"""Awaiting: exchanges a request for its answer in a task; all of `AsyncClient` that waits, except for threads."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from itertools import count
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from streamcodec.client.common import Common
from streamcodec.client.connections.address import Address
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.reaching import reaching, tls_over
from streamcodec.client.connections.timeouts import Times
from streamcodec.client.exchange import ClientExchange
from streamcodec.engine.errors import MessageError
from streamcodec.formats.v2.model import Event
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.transports import aio
from streamcodec.transports.duplex import AsyncDuplex
from streamcodec.transports.sockets import unix
from streamcodec.transports.timelimit import TimeLimit
from streamcodec.transports.tls.sockets import POLLIN, TlsSocket

_EVENTS_IN_A_ROW: Final = 64
"""After this many events, other tasks get their turn."""


class Awaiting:
    """Waits in the calling task, while other tasks run."""

    def __init__(self, common: Common) -> None:
        """Work for one client."""
        self._common = common

    @asynccontextmanager
    async def exchanging(self, exchange: ClientExchange, times: Times) -> AsyncIterator[AsyncIterator[Event]]:
        """Send a request, and yield the events of its answer."""
        async with self.place(times):
            for kept in (self._common.take_kept(), None):
                connection = kept or await self.connect(times)
                async with self._duplex(connection, exchange, times) as duplex:
                    try:
                        first = await self._first_event(connection, exchange, duplex, times)
                    except _DiedError:
                        continue
                    async with aclosing(self._events(connection, exchange, duplex, times, first)) as events:
                        yield events
                    return

    @asynccontextmanager
    async def _duplex(
        self, connection: Connection, exchange: ClientExchange, times: Times
    ) -> AsyncIterator[AsyncDuplex[HttpEvent]]:
        """Begin an exchange on a connection, send in the background, and give the connection back at the end."""
        duplex: AsyncDuplex[HttpEvent] | None = None
        try:
            duplex = AsyncDuplex(
                connection.socket,
                connection.http,
                connection.start(exchange),
                read_timeout=times.timeout.read,
                write_timeout=times.timeout.write,
            )
            connection.sending = duplex
            async with duplex.sending():
                yield duplex
        finally:
            self._common.give_back(connection, exchange, is_sent=duplex is not None and duplex.is_sent)

    async def _first_event(
        self, connection: Connection, exchange: ClientExchange, duplex: AsyncDuplex[HttpEvent], times: Times
    ) -> HttpEvent | None:
        """Wait for the first event if the connection may have died, because then the request is sent once more.

        Raises:
            _DiedError: the connection has died.
        """
        if not (connection.is_kept and exchange.is_repeatable):
            return None
        try:
            with within(times.limit):
                return await duplex.next_event()
        except (ConnectionError, MessageError) as error:
            if connection.may_have_died(exchange):
                raise _DiedError from None
            raise connection.failure(exchange, error, duplex.lost) from None

    async def _events(
        self,
        connection: Connection,
        exchange: ClientExchange,
        duplex: AsyncDuplex[HttpEvent],
        times: Times,
        first: HttpEvent | None,
    ) -> AsyncGenerator[Event, None]:
        try:
            for number in count(1):
                if exchange.has_ended:
                    break
                if number % _EVENTS_IN_A_ROW == 0:  # one read may have brought all of them
                    await checkpoint()
                if first is None:
                    with within(times.limit):
                        http_event = await duplex.next_event()
                else:
                    http_event, first = first, None
                event = exchange.receive(connection.http, http_event)
                if not exchange.is_success:
                    duplex.stop_sending()
                if event is not None:
                    with times.limit.paused():
                        yield event
        except (ConnectionError, MessageError) as error:
            raise connection.failure(exchange, error, duplex.lost) from None
        exchange.check_status()

    @asynccontextmanager
    async def place(self, times: Times) -> AsyncIterator[None]:
        """Hold a place in the pool.

        Raises:
            TimeoutError: none was free in time.
        """
        pool = self._common.pool
        waiter = pool.enter(anyio.Event)
        if waiter is not None:
            has_come = False
            try:
                with anyio.move_on_after(times.limit.at_most(times.timeout.pool)):
                    await waiter.wait()
                    has_come = True
            finally:
                if not has_come:
                    pool.give_up(waiter)
            if not has_come:
                raise self._common.no_place(times)
        try:
            yield
        finally:
            pool.leave()

    async def connect(self, times: Times) -> Connection:
        """Open a connection; the caller holds a place for it.

        Raises:
            TimeoutError: it took too long.
            OSError: the server cannot be reached.
        """
        address, context = self._common.address, self._common.context
        with within(times.limit), reaching(address, times):
            sock = await _connect(address, times)
            secured = sock if context is None else await _secure(sock, context, address.host, times)
        return self._common.connection(secured)


async def _connect(address: Address, times: Times) -> socket.socket:
    """Open a connection, while other tasks run."""
    if address.socket_path is not None:
        return await unix.connect_async(address.socket_path, timeout=times.timeout.connect)
    return await aio.connect(address.host, address.port, timeout=times.timeout.connect)


async def _secure(sock: socket.socket, context: ssl.SSLContext, host: str, times: Times) -> TlsSocket:
    """Start TLS on a connection, while other tasks run."""
    with tls_over(sock, context, host) as tls:
        while awaited := tls.handshake():
            with anyio.fail_after(times.timeout.connect):
                await (anyio.wait_readable if awaited == POLLIN else anyio.wait_writable)(tls)
    return tls


class _DiedError(Exception):
    """A kept connection had died before any byte of an answer arrived."""


@contextmanager
def within(limit: TimeLimit) -> Iterator[None]:
    """Limit the body of the `with` to the time that is left for the call.

    Raises:
        TimeoutError: the call has used all its time.
    """
    with anyio.move_on_after(limit.left) as scope:
        yield
    if scope.cancelled_caught:
        raise limit.exceeded()
