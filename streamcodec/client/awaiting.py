"""Awaiting: waits in a task, while others run, on asyncio (uvloop included) and trio; what of `AsyncClient` waits."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from streamcodec.client.connections.address import Address
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.reaching import tls_over
from streamcodec.client.connections.timeouts import Times
from streamcodec.engine.message import Part
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.transports import aio
from streamcodec.transports.duplex import AsyncDuplex
from streamcodec.transports.sockets import unix
from streamcodec.transports.timelimit import TimeLimit
from streamcodec.transports.tls.sockets import POLLIN, Socket

T = TypeVar("T")

_EVENTS_IN_A_ROW: Final = 64
"""After this many events, other tasks get their turn."""


class AwaitingDuplex(AsyncDuplex[HttpEvent]):
    """Sends and reads in a task, and in another one what cannot be sent at once."""

    _count = 0

    async def read(self) -> None:
        """Wait, and read once."""
        await self.move()

    async def event(self) -> HttpEvent:
        """Return the next event of the answer."""
        self._count += 1
        if self._count % _EVENTS_IN_A_ROW == 0:  # one read may have brought all of them
            await checkpoint()
        return await self.next_event()


class Awaiting:
    """Waits in the calling task, while other tasks run."""

    shares_thread = True

    def __init__(self, context: ssl.SSLContext | None) -> None:
        """Use TLS by this context, if there is one."""
        self._context = context

    def new_event(self) -> anyio.Event:
        """Make what the pool sets for a call that has waited for a place."""
        return anyio.Event()

    async def has_come(self, event: anyio.Event, seconds: float | None) -> bool:
        """Wait for an event; return whether it has come in time."""
        with anyio.move_on_after(seconds):
            await event.wait()
            return True
        return False

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await anyio.sleep(seconds)

    async def apart(self, function: Callable[[], T], limit: TimeLimit) -> T:
        """Call a function in a thread, while the event loop runs.

        Raises:
            TimeoutError: the call has used all its time.
        """
        with _within(limit):
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)

    async def connect(self, address: Address, times: Times) -> Socket:
        """Open a connection; the socket is non-blocking.

        Raises:
            TimeoutError: the server does not answer in time.
            OSError: there is no connection, or TLS has failed.
        """
        seconds = times.timeout.connect
        with _within(times.limit):
            if address.socket_path is not None:
                return await unix.connect_async(address.socket_path, timeout=seconds)
            sock = await aio.connect(address.host, address.port, timeout=seconds)
            if self._context is None:
                return sock
            with tls_over(sock, self._context, address.host) as tls:
                while awaited := tls.handshake():
                    with anyio.fail_after(seconds):
                        await (anyio.wait_readable if awaited == POLLIN else anyio.wait_writable)(tls)
            return tls

    def duplex(self, connection: Connection, parts: list[Part], times: Times) -> AwaitingDuplex:
        """Prepare to send the parts of a request."""
        return AwaitingDuplex(
            connection.socket,
            connection.http,
            parts,
            read_timeout=times.timeout.read,
            write_timeout=times.timeout.write,
            limit=times.limit,
        )


@contextmanager
def _within(limit: TimeLimit) -> Iterator[None]:
    """Limit the body of the `with` to the time that is left for the call.

    Raises:
        TimeoutError: the call has used all its time.
    """
    with anyio.move_on_after(limit.left) as scope:
        yield
    if scope.cancelled_caught:
        raise limit.exceeded()
