"""System: calls of sockets that not every system has, and what is used instead. Which one is chosen once, at import.

Windows has no `poll`, `sendmsg` and `recvmsg_into`. There, `select` waits, and each call sends or fills one buffer. The
results are the same; a message of many small tensors takes more calls.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from streamcodec.transports.tls.sockets import POLLIN, POLLOUT, Socket, TlsSocket

_HAS_SENDMSG: Final = hasattr(socket.socket, "sendmsg")
HAS_RECVMSG: Final = hasattr(socket.socket, "recvmsg_into")
"""Whether one read of a plain socket can fill several buffers."""


class SelectPoll:
    """What is used of `select.poll`, by `select.select`: only sockets, and no events but `POLLIN` and `POLLOUT`."""

    def __init__(self) -> None:
        """Begin without sockets."""
        self._events: dict[Any, int] = {}

    def register(self, sock: Any, events: int) -> None:  # noqa: ANN401 - a descriptor, or an object that has one
        """Await events of a socket, instead of those that were awaited before."""
        self._events[sock] = events

    modify = register

    def unregister(self, sock: Any) -> None:  # noqa: ANN401 - see `register`
        """Await nothing of a socket any more."""
        del self._events[sock]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        """Return which sockets are ready, each with its events; nothing if none is in time."""
        reading = [sock for sock, events in self._events.items() if events & POLLIN]
        writing = [sock for sock, events in self._events.items() if events & POLLOUT]
        if not (reading or writing):  # Windows cannot wait for nothing
            time.sleep((milliseconds or 0) / 1000)
            return []
        readable, writable, failed = select.select(
            reading, writing, writing, None if milliseconds is None else milliseconds / 1000
        )
        found: list[tuple[int, int]] = []
        for sock in self._events:
            events = POLLIN * (sock in readable) | POLLOUT * (sock in writable or sock in failed)
            if events:
                found.append((sock if isinstance(sock, int) else sock.fileno(), events))
        return found


new_poll: Final[Any] = getattr(select, "poll", SelectPoll)
"""Makes a `select.poll`, or what is used instead."""


def reset_poll(sock: Any) -> Any:  # noqa: ANN401 - a descriptor, or an object that has one; a `select.poll`
    """Return what tells by `poll(0)` whether a connection has been reset, or both sides have ended it.

    What has come before may not have been read. If it comes together with a reset, uvloop calls a reader once and never
    again; asyncio calls it until it has read everything.
    """
    poll = new_poll()
    poll.register(sock, 0)
    return poll


def _send_first(sock: Socket, buffers: Sequence[bytes | memoryview]) -> int:
    return sock.sendmsg(buffers) if isinstance(sock, TlsSocket) else sock.send(buffers[0])


def _send_several(sock: Socket, buffers: Sequence[bytes | memoryview]) -> int:
    return sock.sendmsg(buffers)


send_some: Final = _send_several if _HAS_SENDMSG else _send_first
"""Send from the first of some buffers; return how many bytes the system has taken."""
