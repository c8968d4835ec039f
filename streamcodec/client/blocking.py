"""Blocking: exchanges a request for its answer by blocking; the only part of `Client` that waits."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import cast

from streamcodec.client.common import Common
from streamcodec.client.connections.address import Address
from streamcodec.client.connections.connecting import connect
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.reaching import reaching, tls_over
from streamcodec.client.connections.timeouts import Times
from streamcodec.client.exchange import ClientExchange
from streamcodec.client.lane.tensors import MemoryLane
from streamcodec.engine.errors import MessageError
from streamcodec.formats.v2.model import Event
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.transports.duplex import Duplex
from streamcodec.transports.sockets import unix
from streamcodec.transports.sockets.memfd import send_descriptors
from streamcodec.transports.sockets.system import new_poll
from streamcodec.transports.tls.sockets import TlsSocket


class Blocking:
    """Waits in the calling thread."""

    def __init__(self, common: Common) -> None:
        """Work for one client."""
        self._common = common

    def events(self, exchange: ClientExchange, times: Times) -> Generator[Event, None, None]:
        """Send a request, and yield the events of its answer."""
        with self._place(times):
            for connection in self._connections(times):
                with self._duplex(connection, exchange, times) as duplex:
                    try:
                        while not exchange.has_ended:
                            event = exchange.receive(connection.http, duplex.next_event())
                            if not exchange.is_success:
                                duplex.stop_sending()
                            if event is not None:
                                with times.limit.paused():
                                    yield event
                        break
                    except (ConnectionError, MessageError) as error:
                        if not connection.may_have_died(exchange):
                            raise connection.failure(exchange, error, duplex.lost) from None
        exchange.check_status()

    @contextmanager
    def _duplex(self, connection: Connection, exchange: ClientExchange, times: Times) -> Iterator[Duplex[HttpEvent]]:
        """Begin an exchange on a connection, and give the connection back at the end."""
        duplex: Duplex[HttpEvent] | None = None
        try:
            duplex = Duplex(
                connection.socket,
                connection.http,
                connection.start(exchange),
                read_timeout=times.timeout.read,
                write_timeout=times.timeout.write,
                limit=times.limit,
            )
            connection.sending = duplex
            yield duplex
        finally:
            self._common.give_back(connection, exchange, is_sent=duplex is not None and duplex.is_sent)

    @contextmanager
    def _place(self, times: Times) -> Iterator[None]:
        """Hold a place in the pool."""
        pool = self._common.pool
        waiter = pool.enter(threading.Event)
        if waiter is not None:
            has_come = False
            try:
                has_come = waiter.wait(times.limit.at_most(times.timeout.pool))
            finally:
                if not has_come:
                    pool.give_up(waiter)
            if not has_come:
                raise self._common.no_place(times)
        try:
            yield
        finally:
            pool.leave()

    def _connections(self, times: Times) -> Iterator[Connection]:
        """Yield a kept connection, if there is one, and then a new one, in case the first has died."""
        kept = self._common.take_kept()
        if kept is not None:
            yield kept
        connection = self._new_connection(times)
        if self._common.memory_lane is not None and not self._opened(connection, self._common.memory_lane, times):
            connection = self._new_connection(times)
        yield connection

    def _new_connection(self, times: Times) -> Connection:
        address, context = self._common.address, self._common.context
        with reaching(address, times):
            sock = _connect(address, times)
            secured = sock if context is None else _secure(sock, context, address.host, times)
        return self._common.connection(secured)

    def _opened(self, connection: Connection, memory: MemoryLane, times: Times) -> bool:
        """Open the memory lane of a new connection; return whether the connection can be used afterwards.

        Raises:
            OSError: the connection is broken, or there is no memory.
        """
        try:
            descriptors, own, lane = memory.new_answers()
            exchange = self._common.calls.open_lane()
            try:
                opening = b"".join(cast("list[bytes]", connection.start(exchange)))
                if send_descriptors(cast("socket.socket", connection.socket), opening, descriptors) < len(opening):
                    raise ConnectionAbortedError("the server does not read")
            finally:
                os.close(own)
            duplex: Duplex[HttpEvent] = Duplex(
                connection.socket,
                connection.http,
                [],
                read_timeout=times.timeout.read,
                write_timeout=times.timeout.write,
                limit=times.limit,
            )
            while not exchange.has_ended:
                exchange.receive(connection.http, duplex.next_event())
        except BaseException:
            self._common.drop(connection)
            raise
        if exchange.is_success:
            connection.lane = lane
        is_usable = connection.is_usable
        if not is_usable:
            self._common.drop(connection)
        return is_usable


def _connect(address: Address, times: Times) -> socket.socket:
    """Open a connection, blocking; the socket is non-blocking.

    Raises:
        TimeoutError: the server does not answer in time.
        OSError: there is no connection.
    """
    if address.socket_path is not None:
        return unix.connect(address.socket_path, timeout=times.timeout.connect, limit=times.limit)
    return connect(address.host, address.port, timeout=times.timeout.connect, limit=times.limit)


def _secure(sock: socket.socket, context: ssl.SSLContext, host: str, times: Times) -> TlsSocket:
    """Start TLS on a connection, blocking; the socket is closed if that fails.

    Raises:
        TimeoutError: the server does not answer in time.
        OSError: TLS or the connection has failed.
    """
    with tls_over(sock, context, host) as tls:
        while awaited := tls.handshake():
            poll = new_poll()
            poll.register(tls, awaited)
            seconds = times.limit.at_most(times.timeout.connect)
            if not poll.poll(None if seconds is None else seconds * 1000):
                raise times.limit.too_long(times.timeout.connect)
    return tls
