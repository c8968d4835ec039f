"""Blocking: waits in the calling thread; the only part of `Client` that waits."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from time import sleep
from typing import TypeVar

from streamcodec.client.connections.address import Address
from streamcodec.client.connections.connecting import connect
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.reaching import tls_over
from streamcodec.client.connections.timeouts import Times
from streamcodec.engine.message import Part
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.transports.duplex import Duplex
from streamcodec.transports.sockets import unix
from streamcodec.transports.sockets.system import new_poll
from streamcodec.transports.timelimit import TimeLimit
from streamcodec.transports.tls.sockets import Socket

T = TypeVar("T")


class BlockingDuplex(Duplex[HttpEvent]):
    """Sends and reads in one thread."""

    def sending(self) -> AbstractAsyncContextManager[None]:
        """Do nothing: each read sends, too."""
        return nullcontext()

    async def read(self) -> None:
        """Wait, and read once."""
        self.move()

    async def event(self) -> HttpEvent:
        """Return the next event of the answer."""
        return self.next_event()


class Blocking:
    """Waits in the calling thread. No method of it suspends."""

    shares_thread = False

    def __init__(self, context: ssl.SSLContext | None) -> None:
        """Use TLS by this context, if there is one."""
        self._context = context

    def new_event(self) -> threading.Event:
        """Make what the pool sets for a call that has waited for a place."""
        return threading.Event()

    async def has_come(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait for an event; return whether it has come in time."""
        return event.wait(seconds)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        sleep(seconds)  # noqa: ASYNC251 - no event loop runs this

    async def apart(self, function: Callable[[], T], limit: TimeLimit) -> T:  # noqa: ARG002 - for tasks
        """Call a function here: it keeps nobody waiting."""
        return function()

    async def connect(self, address: Address, times: Times) -> Socket:
        """Open a connection; the socket is non-blocking.

        Raises:
            TimeoutError: the server does not answer in time.
            OSError: there is no connection, or TLS has failed.
        """
        seconds, limit = times.timeout.connect, times.limit
        if address.socket_path is not None:
            return unix.connect(address.socket_path, timeout=seconds, limit=limit)
        sock = connect(address.host, address.port, timeout=seconds, limit=limit)
        if self._context is None:
            return sock
        with tls_over(sock, self._context, address.host) as tls:  # which closes the socket if that fails
            while awaited := tls.handshake():
                poll = new_poll()
                poll.register(tls, awaited)
                left = limit.at_most(seconds)
                if not poll.poll(None if left is None else left * 1000):
                    raise limit.too_long(seconds)
        return tls

    def duplex(self, connection: Connection, parts: list[Part], times: Times) -> BlockingDuplex:
        """Prepare to send the parts of a request."""
        return BlockingDuplex(
            connection.socket,
            connection.http,
            parts,
            read_timeout=times.timeout.read,
            write_timeout=times.timeout.write,
            limit=times.limit,
        )
