"""Handover: who waits at the socket of a worker that does not accept is served by another one.

Each worker has a listening socket of its own (see `processes`), and the system has chosen one of them when a connection
is complete. Those that wait at the socket of a worker that is stuck would wait in vain, and when its process ends, they
are reset. So the first process holds a second reference to each of these sockets. It sends one to another worker, which
accepts all that wait there and closes its reference again. This happens again and again while a worker is silent, and
once more after a worker's death, however it died.

A second reference keeps a socket alive. So a worker that closes its listener has to say that nobody shall connect to it
any more (`WorkerListener`), else the system would go on to choose it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Final

_WORD: Final = b"!"


class Word(Enum):
    """What the first process tells a worker."""

    REPLACED = b"r"
    """Another worker has its place; the end of the channel follows."""
    SHARE = b"s"
    """There is a new worker, which has no connections."""


_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""Programs that a model starts shall not inherit what is received."""


class WorkerListener(socket.socket):
    """A listening socket to which the first process has a reference, too."""

    def close(self) -> None:
        """Listen no more, whoever else has the socket, and close this reference."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RD)
        super().close()


class SharedListener(socket.socket):
    """A listening TCP socket at which others listen, too, now or later: those who wait there are not lost with it."""


def is_listening(sock: socket.socket) -> bool:
    """Return whether somebody may wait at a socket: its worker may have closed it in good order."""
    try:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    except OSError:
        return False


def send(channel: socket.socket, listener: socket.socket, word: bytes = _WORD) -> bool:
    """Send a reference to a listener; return whether it is on its way.

    Args:
        channel: to another process; one that does not block, if this must not wait.
        listener: at which others wait.
        word: one byte that goes with it, because a file cannot go alone.
    """
    try:
        socket.send_fds(channel, [word], [listener.fileno()])
    except OSError:
        return False
    return True


def receive(channel: socket.socket, max_bytes: int = 1) -> tuple[bytes, list[socket.socket]]:
    """Receive what another process says, with the listeners that it sends.

    Raises:
        OSError: as of any socket.
    """
    said, files, _, _ = socket.recv_fds(channel, max_bytes, 1, _CLOSE_ON_EXEC)
    try:
        return said, [socket.socket(fileno=file) for file in files]
    except OSError:  # one of them is no socket
        for file in files:
            os.close(file)
        raise


def tell(channel: socket.socket, word: Word) -> None:
    """Tell a worker something."""
    with suppress(OSError):
        channel.send(word.value)


def received(channel: socket.socket) -> Iterator[socket.socket | Word]:
    """Yield what the first process tells, and the listeners that it sends, until the channel ends."""
    said = _WORD
    while said:
        try:
            said, listeners = receive(channel)
        except OSError:
            return
        yield from listeners
        yield from (word for word in Word if word.value == said)
