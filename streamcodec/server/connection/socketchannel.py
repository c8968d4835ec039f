"""SocketChannel: moves a connection's bytes by a socket of its own, and finds out whether its client has left.

Nobody reads the bytes of a client whose request waits for memory. The end of its connection comes after those bytes. If
the end has arrived, the system reports it nevertheless. If the bytes do not fit into the system's buffer, the client's
system still has them, and the end, too. A connection that was reset is over. If the client has closed only its own
direction, it may still want its answer. But if less than its request has arrived, the request can never be complete.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final, TypeVar

import anyio

from streamcodec.http.server import ServerConnection
from streamcodec.runtime.timeouts import Look, WriteTimeout
from streamcodec.transports import aio
from streamcodec.transports.sockets.acknowledged import HasFileno, unacknowledged_bytes
from streamcodec.transports.sockets.system import new_poll, send_some
from streamcodec.transports.sockets.vectors import Parts, async_batches
from streamcodec.transports.source import EventSource
from streamcodec.transports.sync import receive, received
from streamcodec.transports.tls.sockets import POLLOUT, Socket, TlsSocket

with suppress(ImportError):  # Windows has neither, and no `poll`, without which they are not used
    import fcntl
    import termios

_EventT = TypeVar("_EventT")

ARRIVED_BYTES: Final = 16 << 20
"""Of an upload that is read before its connection gives way: no system keeps more of one connection."""

_RESET: Final[int] = sum(getattr(select, name, 0) for name in ("POLLERR", "POLLHUP", "POLLNVAL"))
_ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)
"""Linux tells this without reading. Elsewhere only a connection that was reset is noticed; without `poll`, none is."""

_INT_BYTES: Final = 4

_TLS_BYTES: Final = 64 << 10
"""OpenSSL may have read so much of the request that the system does not count any more: one read, and a record."""


class SocketChannel:
    """A non-blocking socket. Each method raises an `OSError` if the connection is broken."""

    def __init__(self, sock: Socket, taking: WriteTimeout) -> None:
        """Take over the socket; `taking` says how long to wait for the client to read."""
        self._socket = sock
        self._limit = _TakingLimit(taking)
        self._reading = anyio.CancelScope()

    @property
    def given(self) -> int:
        """Bytes that the system has taken."""
        return self._limit.sent

    async def next_event(self, source: EventSource[_EventT], look: Look) -> _EventT:
        """Read bytes for a source until it has an event; return the event.

        Args:
            source: the session, or another source that replaces it for a while.
            look: called repeatedly while this waits for bytes.

        Raises:
            TimeoutError: raised by `look`.
        """
        while True:
            with anyio.move_on_after(look(anyio.current_time())) as self._reading:
                return await aio.next_event(self._socket, source)

    def look_again(self) -> None:
        """Make a waiting `next_event` call `look` at once."""
        self._reading.cancel()

    def take_arrived(self, connection: ServerConnection) -> None:
        """Read until the system has no more, or until it has been much."""
        connection.incoming.pass_on()
        most = connection.incoming.received + ARRIVED_BYTES
        while connection.incoming.wants_data and connection.incoming.received < most:
            try:
                nbytes = receive(self._socket, connection)
            except BlockingIOError:
                return
            received(connection, nbytes)

    async def send(self, parts: Parts) -> None:
        """Send parts of a message, without copying.

        Raises:
            TimeoutError: the client reads too slowly.
        """
        async with aclosing(async_batches(parts)) as coming:
            async for batch in coming:
                await aio.send_batch(self._socket, batch, self._limit)

    async def flush(self) -> None:
        """Do nothing: `send` has waited."""

    def has_left(self, missing: int | None) -> bool:
        """Whether the client has left, although `missing` bytes of its request are unread; see `leaving.has_left`."""
        return has_left(self._socket, missing)

    def has_ended(self) -> bool:
        """Whether the client will send nothing more, and may have left."""
        return has_ended(self._socket)

    def probe(self, data: bytes) -> None:
        """Send a few bytes if the system takes them at once. If the client has left, they are answered with a reset."""
        if takes_more(self._socket):
            with suppress(OSError):  # the client has left
                send_some(self._socket, [memoryview(data)])

    def end(self) -> None:
        """Tell the client that nothing more will be sent."""
        with suppress(OSError):  # the client has already left
            self._socket.end() if isinstance(self._socket, TlsSocket) else self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket. The wait of an abandoned thread for it ends, too: another socket may get its descriptor."""
        anyio.notify_closing(self._socket)
        if isinstance(self._socket, TlsSocket):
            self._socket.end()
        self._socket.close()


class _TakingLimit(aio.ProgressLimit):
    """A limit for a client that must read its answers."""

    def __init__(self, taking: WriteTimeout) -> None:
        """Begin before the first answer."""
        super().__init__(None)
        self._taking = taking

    async def wait(self, ready: Callable[[Socket], Awaitable[None]], sock: Socket) -> None:
        """Wait for the socket."""
        taking = self._taking
        taking.resume(anyio.current_time())
        while True:
            taken = self.sent - unacknowledged_bytes(sock)
            with anyio.move_on_after(taking.look(anyio.current_time(), taken)):
                await ready(sock)
                taking.pause(anyio.current_time())
                return


def has_ended(sock: HasFileno) -> bool:
    """Return whether a client has ended its direction of a connection, or both: the server cannot tell which."""
    poll = new_poll()
    poll.register(sock.fileno(), _ENDED)
    return bool(poll.poll(0))


def takes_more(sock: HasFileno) -> bool:
    """Return whether the system takes a few bytes for a connection at once."""
    poll = new_poll()
    poll.register(sock.fileno(), POLLOUT)
    return bool(poll.poll(0))


def has_left(sock: HasFileno, missing: int | None) -> bool:
    """Return whether a client has left before all of its request had come.

    Args:
        sock: the connection.
        missing: bytes of the request that have not been read; None if that is unknown.
    """
    poll = new_poll()
    poll.register(sock.fileno(), _ENDED)
    found = poll.poll(0)
    if not found:
        return False
    if found[0][1] & _RESET:
        return True
    if missing is None:
        return False
    if isinstance(sock, TlsSocket) and missing:
        missing -= _TLS_BYTES
    unread = fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(_INT_BYTES))
    return int.from_bytes(unread, sys.byteorder) < missing
