"""Asynchronous transport: sockets under anyio, on asyncio (uvloop included) and trio.

anyio cannot receive into given memory. So this module keeps the socket itself and never wraps it, with TLS or without.
It waits until the socket is readable, then calls `recv_into`; or `recvmsg_into`, if one read can fill several small
tensors. It waits before it reads, because trying first would cost an exception for each read without data. What a read
has brought waits for its turn (`turns`), and so does whoever goes on without a wait. The work of a paced source that
needs no bytes is done there, too.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final

import anyio

from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn
from streamcodec.transports import turns
from streamcodec.transports.limited import within
from streamcodec.transports.sockets.acknowledged import SLICES, Silence, unacknowledged_bytes
from streamcodec.transports.sockets.system import send_some
from streamcodec.transports.sockets.vectors import Parts, SendQueue, async_batches
from streamcodec.transports.source import READ_BYTES, EventSource, EventT
from streamcodec.transports.sync import new_socket, receive, received
from streamcodec.transports.timelimit import TimeLimit
from streamcodec.transports.tls.sockets import Socket, TlsSocket, has_pending

_PIECE_READS: Final = 16
"""Most full reads between two looks whether it is the turn of others."""


async def next_event(
    sock: Socket,
    source: EventSource[EventT],
    *,
    timeout: float | None = None,
    limit: TimeLimit | None = None,
    has_more: bool = False,
) -> EventT:
    """Return the source's next event, reading from a non-blocking socket as needed.

    Args:
        sock: non-blocking.
        source: a `Decoder`, `ServerConnection` or `ClientConnection`, or an object with the same methods.
        timeout: seconds without a byte before giving up, or up to a quarter longer; None waits for ever. Bytes that
            were sent before and that the peer acknowledges meanwhile count, too.
        limit: on the whole call; None for none.
        has_more: whether more bytes have probably come, so that it reads before it waits.

    Raises:
        RemoteProtocolError: the peer's bytes break a rule.
        TimeoutError: nothing has moved for `timeout` seconds, or the call took longer than `limit`.
        OSError: the connection is broken.
    """
    if turns.must_wait(source):
        await turns.wait(source)
    event = source.next_event()
    if has_more and event is NEED_DATA:
        event = _take_piece(sock, source, READ_BYTES)
    if not (event is NEED_DATA or event is NEED_TURN):
        return event
    # One cancel scope for all reads; its deadline is moved from time to time. One for each read would double the cost.
    allowed = math.inf if timeout is None else timeout / SLICES
    now = anyio.current_time()
    end = math.inf if limit is None else now + limit.left
    silence: Silence | None = None
    while silence is None or not silence.is_over():
        with anyio.CancelScope(deadline=min(now + allowed * 9 / 8, end)) as scope:
            while event is NEED_DATA or event is NEED_TURN:
                if event is NEED_TURN:
                    scope.deadline = end  # the peer is not responsible for this time
                    await turns.work(source)
                    event = source.next_event()
                else:
                    await _wait_readable(sock)
                    nbytes = _read(sock, source)
                    silence = None
                    if turns.is_crowded(source):
                        scope.deadline = end
                        await turns.wait(source)
                    event = _take_piece(sock, source, nbytes)
                now = anyio.current_time()
                if scope.deadline - now < allowed or scope.deadline == end:
                    scope.deadline = min(now + allowed * 9 / 8, end)
            return event
        now = anyio.current_time()
        if limit is not None and now >= end:
            raise limit.exceeded()
        silence = silence or Silence(sock)
        event = source.next_event()  # the slice may have ended just after a read
    msg = f"nothing has moved for {timeout:g} seconds"
    raise TimeoutError(msg)


async def read_once(
    sock: Socket, source: EventSource[object], *, timeout: float | None = None, limit: TimeLimit | None = None
) -> int:
    """Wait for bytes, and read once; return how many bytes, 0 at the end, and by a false alarm.

    Arguments and errors are those of `next_event`. A small message mostly comes with one read. So this has one wait,
    and its limit is the cheapest.
    """
    allowed = math.inf if timeout is None else timeout / SLICES
    limit = limit or TimeLimit(None)
    silence: Silence | None = None
    while silence is None or not silence.is_over():
        try:
            await within(min(allowed, limit.left), partial(_wait_readable, sock))
        except TimeoutError:
            silence = silence or Silence(sock)
            continue
        if turns.is_crowded(source):
            await turns.wait(source)
        return _read(sock, source)
    raise limit.too_long(timeout)


def _read(sock: Socket, source: EventSource[object]) -> int:
    """Read once; return how many bytes, 0 if none have come."""
    try:
        nbytes = receive(sock, source)
    except BlockingIOError:  # the last read took everything, or the system gave a false alarm, as it may
        return 0
    received(source, nbytes)
    return nbytes


def _take_piece(sock: Socket, source: EventSource[EventT], nbytes: int) -> EventT | NeedData | NeedTurn:
    """Read on after a read until there is an event, until nothing more has arrived, or until it has been enough."""
    event = source.next_event()
    enough = 1 if isinstance(sock, TlsSocket) else READ_BYTES  # with TLS, a read takes one record
    reads = 1
    while event is NEED_DATA and nbytes >= enough and reads < _PIECE_READS:
        nbytes = _read(sock, source)
        event = source.next_event()
        reads += 1
    return event


async def _wait_readable(sock: Socket) -> None:
    """Wait until a read can return; other tasks have their turn in any case."""
    if has_pending(sock):
        await anyio.lowlevel.checkpoint()
    else:
        await anyio.wait_readable(sock)


async def send(sock: Socket, parts: Parts, *, timeout: float | None = None) -> None:
    """Send the parts of a message over a non-blocking socket.

    Args:
        sock: non-blocking.
        parts: bytes, byte views, and `Rows`. The windows of `Rows` are requested when it is their turn, asynchronously
            if they are asynchronous. Otherwise they are made on the event loop, so each should be quick.
        timeout: seconds without progress before giving up; None waits for ever. Progress is what the peer acknowledges,
            where the system tells that, and what the system takes.

    Raises:
        LocalProtocolError: windows differ from the declaration. Then only a part of the message has been sent, and the
            connection must be closed. The same holds for any exception of the source of the windows.
        TimeoutError: the peer took nothing for `timeout` seconds.
        OSError: the connection is broken.
    """
    limit = ProgressLimit(timeout)
    async with aclosing(async_batches(parts)) as coming:
        async for batch in coming:
            await send_batch(sock, batch, limit)


async def send_batch(sock: Socket, batch: list[memoryview], limit: ProgressLimit) -> None:
    """Send buffers that exist already.

    Raises:
        TimeoutError: no progress.
        OSError: the connection is broken.
    """
    queue = SendQueue(batch)
    while queue:
        try:
            nbytes = send_some(sock, queue.vectors())
        except BlockingIOError:
            await limit.wait(anyio.wait_writable, sock)
        else:
            queue.sent(nbytes)
            limit.sent += nbytes
            if queue and turns.is_over(turns.LARGE):
                await turns.wait(turns.LARGE)


class ProgressLimit:
    """A limit on the time without progress, in one direction or in both.

    Attributes:
        sent: bytes that the operating system has taken.
    """

    def __init__(self, timeout: float | None) -> None:
        """Allow `timeout` seconds; None for no limit."""
        self.sent = 0
        self._timeout = math.inf if timeout is None else timeout
        self._end = math.inf

    def renew(self) -> None:
        """Restart the time: there was progress."""
        self._end = anyio.current_time() + self._timeout

    async def wait(self, ready: Callable[[Socket], Awaitable[None]], sock: Socket) -> None:
        """Wait for the socket; all progress meanwhile prolongs the wait.

        Raises:
            TimeoutError: nothing has moved for too long.
        """
        self.renew()
        before = unacknowledged_bytes(sock)
        while (now := anyio.current_time()) < self._end:
            with anyio.CancelScope(deadline=min(self._end, now + self._timeout / SLICES)):
                await ready(sock)
                return
            if (left := unacknowledged_bytes(sock)) != before:
                self.renew()
                before = left
        msg = f"nothing has moved for {self._timeout:g} seconds"
        raise TimeoutError(msg)


async def connect(host: str, port: int, *, timeout: float | None = None) -> socket.socket:
    """Open a non-blocking TCP connection to the first address of a host that accepts it.

    Args:
        host: a name or an address.
        port: of the server.
        timeout: seconds for the look-up of the name, and for each address; None waits for ever.

    Raises:
        TimeoutError: the name was not found in time, or the last address did not answer in time.
        OSError: the name is unknown, or no address accepted the connection.
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
    try:
        raise failure
    finally:
        del failure  # its traceback refers to this frame, and to the arrays of those who called it


async def _connect(sock: socket.socket, address: Any, timeout: float | None) -> None:  # noqa: ANN401 - by family
    sock.setblocking(False)
    with suppress(BlockingIOError):
        sock.connect(address)
    with anyio.fail_after(timeout):
        await anyio.wait_writable(sock)
    if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))
