"""Asynchronous transport: sockets of our own under anyio, on asyncio (uvloop included) and trio.

anyio has no way to receive into given memory, so the socket stays ours and is never wrapped, with TLS or without: wait
until it is readable, then `recv_into`, or `recvmsg_into` where one read can fill several small tensors. The wait comes
first, since trying first would cost an exception per idle turn; it is also where other tasks get their turn, so one
large body does not hold up the rest. What a paced source has to do without bytes is done by `turns`.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

import anyio

from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn
from streamcodec.transports import turns
from streamcodec.transports.source import READ_BYTES, EventSource, EventT
from streamcodec.transports.sync import new_socket, receive, received
from streamcodec.transports.tls import Socket, TlsSocket, has_pending
from streamcodec.transports.vectors import Parts, SendQueue, async_batches

_TURN_READS: Final = 16
"""After so many full reads, other tasks get their turn, however fast the peer sends."""

_TURN_BYTES: Final = 64 << 10
"""After so many bytes sent, other tasks get their turn, however fast the peer reads."""


async def next_event(sock: Socket, source: EventSource[EventT], *, timeout: float | None = None) -> EventT:
    """Return the source's next event, reading from a non-blocking socket as needed.

    Args:
        sock: non-blocking.
        source: a `Decoder`, `ServerConnection` or `ClientConnection`, or what has the same methods.
        timeout: seconds without a byte before giving up, at most an eighth more; None waits for ever.

    Raises:
        RemoteProtocolError: what the peer has sent breaks a rule.
        TimeoutError: nothing came for `timeout` seconds.
        OSError: the connection is broken.
    """
    event = source.next_event()
    if not (event is NEED_DATA or event is NEED_TURN):
        return event
    # One scope for all reads, whose end is put off now and then: one for each would cost as much as the read.
    allowed = math.inf if timeout is None else timeout
    with anyio.move_on_after(timeout) as scope:
        while event is NEED_DATA or event is NEED_TURN:
            if event is NEED_TURN:
                scope.deadline = math.inf  # it is not the peer who takes this time
                await turns.work(source)
                scope.deadline = anyio.current_time() + allowed
                event = source.next_event()
                continue
            now = anyio.current_time()
            if scope.deadline - now < allowed:
                scope.deadline = now + allowed * 9 / 8
            await _wait_readable(sock)
            event = _take_turn(sock, source)
        return event
    msg = f"nothing has moved for {allowed:g} seconds"
    raise TimeoutError(msg)


def _take_turn(sock: Socket, source: EventSource[EventT]) -> EventT | NeedData | NeedTurn:
    """Read until there is an event, or nothing more has come, or others should have their turn."""
    event: EventT | NeedData | NeedTurn = NEED_DATA
    enough = 1 if isinstance(sock, TlsSocket) else READ_BYTES  # of TLS, a read takes one record
    nbytes = enough
    reads = 0
    while event is NEED_DATA and nbytes >= enough and reads < _TURN_READS:
        try:
            nbytes = receive(sock, source)
        except BlockingIOError:  # the last read took all, or a false alarm, which the system is free to raise
            break
        received(source, nbytes)
        event = source.next_event()
        reads += 1
    return event


async def _wait_readable(sock: Socket) -> None:
    """Wait until a read may return; others have their turn in any case."""
    if has_pending(sock):
        await anyio.lowlevel.checkpoint()
    else:
        await anyio.wait_readable(sock)


async def send(sock: Socket, parts: Parts, *, timeout: float | None = None) -> None:
    """Send the parts of a message over a non-blocking socket.

    Args:
        sock: non-blocking.
        parts: bytes, byte views, and `Rows`, whose windows are asked for when it is their turn, and asynchronously if
            they come so; otherwise they are made on the event loop, so each should be quick.
        timeout: seconds without progress before giving up; None waits for ever.

    Raises:
        LocalProtocolError: windows are not what was declared. What has been sent is no whole message: the connection
            must be closed. So it must whatever else the source of the windows raises.
        TimeoutError: the peer took nothing for `timeout` seconds.
        OSError: the connection is broken.
    """
    limit = ProgressLimit(timeout)
    async with aclosing(async_batches(parts)) as coming:
        async for batch in coming:
            await send_batch(sock, batch, limit)


async def send_batch(sock: Socket, batch: list[memoryview], limit: ProgressLimit) -> None:
    """Send what is there already.

    Raises:
        TimeoutError: no progress.
        OSError: the connection is broken.
    """
    queue = SendQueue(batch)
    turn_bytes = 0
    while queue:
        try:
            nbytes = sock.sendmsg(queue.vectors())
        except BlockingIOError:
            await limit.wait(anyio.wait_writable, sock)
            turn_bytes = 0
        else:
            queue.sent(nbytes)
            limit.sent += nbytes
            turn_bytes += nbytes
            if turn_bytes > _TURN_BYTES:
                await anyio.lowlevel.checkpoint()
                turn_bytes = 0


class ProgressLimit:
    """Time without progress, in one direction or in both.

    Attributes:
        sent: bytes that the system has taken.
    """

    def __init__(self, timeout: float | None) -> None:
        """Allow so many seconds; None for ever."""
        self.sent = 0
        self._timeout = math.inf if timeout is None else timeout
        self._end = math.inf

    def renew(self) -> None:
        """Begin anew: something has moved."""
        self._end = anyio.current_time() + self._timeout

    async def wait(self, ready: Callable[[Socket], Awaitable[None]], sock: Socket) -> None:
        """Wait for the socket; whatever moves meanwhile prolongs it.

        Raises:
            TimeoutError: nothing has moved for too long.
        """
        self.renew()
        while anyio.current_time() < self._end:
            with anyio.CancelScope(deadline=self._end):
                await ready(sock)
                return
        msg = f"nothing has moved for {self._timeout:g} seconds"
        raise TimeoutError(msg)


async def connect(host: str, port: int, *, timeout: float | None = None) -> socket.socket:
    """Open a non-blocking TCP connection to the first address of a host that takes it.

    Args:
        host: a name or an address.
        port: of the server.
        timeout: seconds for the name, and for each address; None waits for ever.

    Raises:
        TimeoutError: the name was not found in time, or the last address did not answer in time.
        OSError: the name is unknown, or no address took the connection.
    """
    failure = OSError(f"{host!r} has no address")
    with anyio.fail_after(timeout):
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        try:
            with new_socket(family, kind, protocol) as sock:
                await _connect(sock, address, timeout)
                return sock
        except OSError as error:
            failure = error
    raise failure


async def _connect(sock: socket.socket, address: Any, timeout: float | None) -> None:  # noqa: ANN401 - by family
    sock.setblocking(False)
    with suppress(BlockingIOError):
        sock.connect(address)
    with anyio.fail_after(timeout):
        await anyio.wait_writable(sock)
    if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))
