"""Accepting: accepts new connections, several in each turn of the event loop.

On asyncio the event loop calls a function here whenever there are new connections. If a call fails for lack of memory,
no connection is lost: the loop calls again. A waiting task might never be woken again after such a failure. The
registration of the function may be lost, so it is renewed four times a second. The same renewal is used if the process
has no free descriptors. Then the function is not called until the renewal; other connections may end meanwhile.

A burst of connections is accepted quickly. To begin a connection takes ten times as long as to accept it, so accepted
connections wait in a queue. It holds as many as there are free places, and some more where the process may have more
descriptors: what waits in the system's queue cannot be looked at. Each turn of the event loop begins the newest
connection and some of the oldest. So a health check behind hundreds of connections waits until these are accepted, not
until all of them have been served. Each of the hundreds waits at most a third longer.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from streamcodec.server.sockets.handover import SharedListener, is_listening
from streamcodec.server.sockets.unixsocket import UnixListener
from streamcodec.service.routes import URGENT_BYTES, begins_health_check

logger: Final = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE: Final = 64
"""Most connections that are accepted in one turn of the event loop. This takes a millisecond."""

_BEGUN_AT_ONCE: Final = 4
"""Most connections that are begun in one turn of the event loop. A busy loop has few turns, so it is more than one.

To accept a connection takes some microseconds. To begin it and to answer its first request takes 0.3 ms, spread over
about eight turns.
"""

_CHECKS_AT_ONCE: Final = _BEGUN_AT_ONCE - 2
"""Most connections that are begun before others in one turn because they bring a health check."""

_LAST_ROUNDS: Final = 64
"""As many as are needed for all that the system keeps for a listening socket, if there is room for them."""

_RENEWAL_SECONDS: Final = 0.25

_SO_ATTACH_FILTER: Final = 26
_BPF_RETURN: Final = 0x06
"""Of Linux: a filter of one instruction, "return 0 bytes", drops every packet that is meant for the socket itself."""

Begin = Callable[[socket.socket], None]
"""Begins a connection; it must not wait."""

Room = Callable[[], int]
"""Returns how many connections may be accepted and not begun."""


async def accept_connections(
    listener: socket.socket, begin: Begin, room: Room, ends_well: Callable[[], bool] = bool
) -> None:
    """Accept connections of a listening, non-blocking socket until this is cancelled.

    Args:
        listener: the socket.
        begin: is given each connection.
        room: says how many may be accepted.
        ends_well: says, when this is cancelled, whether those begin that have connected before; else they are closed.
    """
    newcomers = _Newcomers(listener, begin, room)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        accepting = _accept_on_trio(listener, newcomers)
    else:
        accepting = _accept_on_asyncio(loop, listener, newcomers)
    try:
        await accepting
    finally:
        if ends_well():
            newcomers.begin_all()
        newcomers.close()


async def accept_waiting(listener: socket.socket, begin: Begin, room: Room) -> None:
    """Accept the connections that wait at a listening socket now, then close this reference to it.

    Args:
        listener: the socket, which others have, too.
        begin: is given each connection.
        room: says how many may be accepted.
    """
    with listener:
        listener.setblocking(False)
        newcomers = _Newcomers(listener, begin, room)
        try:
            has_more = True
            while has_more:
                is_well = newcomers.accept()
                has_more = newcomers.has_waiting or (not is_well and newcomers.may_come)
                newcomers.begin_some()
                await anyio.sleep(0.0 if is_well else _RENEWAL_SECONDS)
        finally:
            newcomers.close()


async def _accept_on_asyncio(loop: asyncio.AbstractEventLoop, listener: socket.socket, newcomers: _Newcomers) -> None:
    has_more = False

    def accept() -> None:
        if not newcomers.accept():
            loop.remove_reader(listener)
        if not has_more:
            begin()

    def begin() -> None:
        nonlocal has_more
        has_more = False
        if newcomers.begin_some():
            loop.call_soon(begin)
            has_more = True

    try:
        while True:
            try:
                loop.add_reader(listener, accept)
                if not has_more:  # the last attempt may have failed for lack of memory
                    begin()
                await anyio.sleep(_RENEWAL_SECONDS)
            except MemoryError:
                await asyncio.sleep(0)
    finally:
        loop.remove_reader(listener)


async def _accept_on_trio(listener: socket.socket, newcomers: _Newcomers) -> None:
    has_more = False
    while True:
        try:
            await (checkpoint() if has_more else anyio.wait_readable(listener))
            is_well = newcomers.accept()
            while (has_more := newcomers.begin_some()) and not is_well:
                await checkpoint()
            if not is_well:
                await anyio.sleep(_RENEWAL_SECONDS)
        except (MemoryError, RuntimeError):  # trio raises the latter if it has no memory to end a wait
            pass


class _Newcomers:
    """Connections that have been accepted, but not begun."""

    def __init__(self, listener: socket.socket, begin: Begin, room: Room) -> None:
        self._listener = listener
        self._begin = begin
        self._room = room
        self._waiting: deque[socket.socket] = deque()

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def may_come(self) -> bool:
        """Whether somebody listens at the socket: its worker may have closed it in good order since it was sent."""
        return is_listening(self._listener)

    def accept(self) -> bool:
        """Accept the waiting connections, up to a limit; return whether there was no error."""
        for _ in range(max(_BEGUN_AT_ONCE, min(_ACCEPTED_AT_ONCE, self._room() - len(self._waiting)))):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                continue  # the client has gone already
            except OSError as error:
                if self.may_come:
                    logger.warning("cannot accept a connection: %s", error)
                return False
            with suppress(OSError):  # a Unix socket has no such option, or the client has already left
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._waiting.append(sock)
        return True

    def begin_some(self) -> bool:
        """Begin the newest connection and some of the oldest, health checks first; return whether others still wait."""
        waiting = self._waiting
        if len(waiting) > _BEGUN_AT_ONCE:
            # Checks are sought among the newest; what came before these has been looked at. The oldest go on, too.
            newest = islice(reversed(waiting), 1, _ACCEPTED_AT_ONCE)
            for sock in [*islice(filter(brings_health_check, newest), _CHECKS_AT_ONCE)]:
                waiting.remove(sock)
                waiting.appendleft(sock)
        for left in reversed(range(min(_BEGUN_AT_ONCE, len(waiting)))):
            sock = waiting.popleft() if left else waiting.pop()
            try:
                self._begin(sock)
            except MemoryError:
                sock.close()
        return bool(waiting)

    def begin_all(self) -> None:
        """Begin all that have connected so far. To close the listening socket would reset those that wait there.

        Those that wait at a shared socket are left to the others who listen there.
        """
        shut_out(self._listener)
        for _ in range(0 if isinstance(self._listener, SharedListener) else _LAST_ROUNDS):
            before = len(self._waiting)
            if not self.accept() or len(self._waiting) == before:
                break
        while self.begin_some():
            pass

    def close(self) -> None:
        """Close the connections that have not begun."""
        for sock in self._waiting:
            sock.close()
        self._waiting.clear()


def brings_health_check(sock: socket.socket) -> bool:
    """Return whether what has come on a connection begins a health check, or is one. Nothing is read."""
    try:
        data = sock.recv(URGENT_BYTES, socket.MSG_PEEK)
    except OSError:  # nothing has come, or the client has left
        return False
    return begins_health_check(data)


def shut_out(listener: socket.socket) -> None:
    """Have the system complete no more connections of a listening socket, where it can; those that wait there stay.

    Without this, a connection that is made between the last `accept` and `close` is reset, perhaps with its request.
    Who tries to connect now tries again after a second, and learns that nobody listens. For a Unix socket its file is
    removed, unless others share the socket. A shared socket stays open for the others.
    """
    if isinstance(listener, UnixListener):
        listener.remove()
        return
    if sys.platform != "linux" or isinstance(listener, SharedListener):
        return
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))
    program = struct.pack("@HP", 1, ctypes.addressof(drop_all))
    with suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
