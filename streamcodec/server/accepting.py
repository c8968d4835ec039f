"""Accepting: accepts new connections, several in each turn of the event loop.

On asyncio the event loop calls this room whenever there are new connections. If a call fails because there is no
memory, nothing is lost: the loop calls again. A task that waits for connections might not be woken again after such a
failure. What may be lost is requested again a few times a second. The same is done if no connection can be accepted
because there are no descriptors. Nobody listens meanwhile; other connections will give some back.

Connections that come in a burst are accepted quickly and begun slowly: to begin one takes ten times as long. In between
they wait in a queue here, at most as many as there are free places, so no more connections are open than otherwise. In
each turn of the event loop one of those that begin is the newest, and the others are the oldest. So a health check that
comes behind hundreds of connections waits until these are accepted, not until all of them have been served. One of the
hundreds waits a third longer at most.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

logger: Final = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE: Final = 64
"""Connections accepted in one turn of the event loop at most: a millisecond."""

_BEGUN_AT_ONCE: Final = 4
"""Connections begun in one turn of the event loop, if there are so many: who is busy turns seldom.

To accept one takes some microseconds, but to begin it and answer its first request 0.3 ms, a little in each of some
eight turns, which last longer by that.
"""

_RENEWAL_SECONDS: Final = 0.25

Begin = Callable[[socket.socket], None]
"""Is given each connection, and does not wait."""

Room = Callable[[], int]
"""Returns how many connections more there are places for, of those that have begun."""


async def accept_connections(listener: socket.socket, begin: Begin, room: Room) -> None:
    """Accept connections of a listening, non-blocking socket until this is cancelled."""
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
                if not has_more:  # where there was no memory to go on
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
        except (MemoryError, RuntimeError):  # trio's own, of a wait that had no memory to end
            pass


class _Newcomers:
    """Connections that have been accepted and not begun."""

    def __init__(self, listener: socket.socket, begin: Begin, room: Room) -> None:
        self._listener = listener
        self._begin = begin
        self._room = room
        self._waiting: deque[socket.socket] = deque()

    def accept(self) -> bool:
        """Accept what there is, up to a number; return whether that went well."""
        for _ in range(max(_BEGUN_AT_ONCE, min(_ACCEPTED_AT_ONCE, self._room() - len(self._waiting)))):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                continue  # the client has gone already
            except OSError as error:
                logger.warning("cannot accept a connection: %s", error)
                return False
            _prepare(sock)
            self._waiting.append(sock)
        return True

    def begin_some(self) -> bool:
        """Begin the oldest and the newest, up to a number; return whether there are others."""
        for left in reversed(range(min(_BEGUN_AT_ONCE, len(self._waiting)))):
            sock = self._waiting.popleft() if left else self._waiting.pop()
            try:
                self._begin(sock)
            except MemoryError:
                sock.close()
        return bool(self._waiting)

    def close(self) -> None:
        """Close those that have not begun."""
        for sock in self._waiting:
            sock.close()
        self._waiting.clear()


def _prepare(sock: socket.socket) -> None:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:  # a Unix socket has no such option, and a client may have gone already
        pass
