"""Accepting: accepts new connections, several in each turn of the event loop.

On asyncio the event loop calls this room whenever there are new connections. If a call fails because there is no
memory, nothing is lost: the loop calls again. A task that waits for connections might not be woken again after such a
failure. What may be lost is requested again a few times a second. The same is done if no connection can be accepted
because there are no descriptors. Nobody listens meanwhile; other connections will give some back.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

import anyio

logger: Final = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Connections accepted in one turn of the event loop, if there are so many: who is busy turns seldom.

To accept one takes some microseconds, but to begin it and answer its first request 0.4 ms, a little in each of some
eight turns, which last longer by that. Who comes behind sixty others waits for all of these in any case; with few at a
time they are over when its own turns begin, which are short then.
"""

_RENEWAL_SECONDS: Final = 0.25

Begin = Callable[[socket.socket], None]
"""Is given each connection, and does not wait."""


async def accept_connections(listener: socket.socket, begin: Begin) -> None:
    """Accept connections of a listening, non-blocking socket until this is cancelled."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        await _accept_on_trio(listener, begin)
    else:
        await _accept_on_asyncio(loop, listener, begin)


async def _accept_on_asyncio(loop: asyncio.AbstractEventLoop, listener: socket.socket, begin: Begin) -> None:
    def accept() -> None:
        if not _accept_some(listener, begin):
            loop.remove_reader(listener)

    try:
        while True:
            try:
                loop.add_reader(listener, accept)
                await anyio.sleep(_RENEWAL_SECONDS)
            except MemoryError:
                await asyncio.sleep(0)
    finally:
        loop.remove_reader(listener)


async def _accept_on_trio(listener: socket.socket, begin: Begin) -> None:
    while True:
        try:
            await anyio.wait_readable(listener)
            if not _accept_some(listener, begin):
                await anyio.sleep(_RENEWAL_SECONDS)
        except (MemoryError, RuntimeError):  # trio's own, of a wait that had no memory to end
            pass


def _accept_some(listener: socket.socket, begin: Begin) -> bool:
    """Accept what there is, up to a number; return whether that went well."""
    for _ in range(_AT_ONCE):
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            break
        except ConnectionAbortedError:
            continue  # the client has gone already
        except OSError as error:
            logger.warning("cannot accept a connection: %s", error)
            return False
        _begin(sock, begin)
    return True


def _begin(sock: socket.socket, begin: Begin) -> None:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:  # a Unix socket has no such option, and a client may have gone already
        pass
    try:
        begin(sock)
    except MemoryError:
        sock.close()
