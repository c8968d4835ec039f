"""Pipes: moves bytes from one socket to another without copying them, where the system can: by `splice`, on Linux.

The system passes on the memory into which it has received. No process sees these bytes, so they must need no check. A
pipe holds them in between. Whoever moves bytes has a pipe only while there are bytes in it.
"""

from __future__ import annotations

import os
import socket
from contextlib import closing, suppress
from typing import Any, Final

with suppress(ImportError):  # of Windows
    import fcntl

PIPE_BYTES: Final = 512 << 10
"""Most bytes of one move. A system that permits less makes a pipe smaller."""

MOST_PIPES: Final = 32
"""Pipes that are open at the same time; each has two descriptors. Slow readers may hold all of them: then others copy
their bytes."""

_splice: Final[Any] = getattr(os, "splice", None)
_FLAGS: Final[int] = getattr(os, "SPLICE_F_MOVE", 0) | getattr(os, "SPLICE_F_NONBLOCK", 0)


class Pipe:
    """A pipe of the system.

    Attributes:
        held: bytes in it.
    """

    def __init__(self) -> None:
        """Open it.

        Raises:
            OSError: there are too many.
        """
        self._end, self._beginning = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.held: int = 0
        with suppress(OSError):
            fcntl.fcntl(self._beginning, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def fill(self, source: socket.socket, nbytes: int) -> int:
        """Take at most so many bytes from a socket, while it is empty; return how many, 0 at the connection's end.

        Raises:
            BlockingIOError: nothing has come.
            OSError: the connection is broken.
        """
        self.held = _splice(source.fileno(), self._beginning, min(nbytes, PIPE_BYTES), flags=_FLAGS)
        return self.held

    def empty(self, sink: socket.socket) -> int:
        """Send what is in it; return how many bytes the system has taken.

        Raises:
            BlockingIOError: it takes none now.
            OSError: the connection is broken.
        """
        count: int = _splice(self._end, sink.fileno(), self.held, flags=_FLAGS)
        self.held -= count
        return count

    def read(self) -> bytes:
        """Return what is in it, and leave nothing."""
        data = os.read(self._end, self.held)
        self.held -= len(data)
        return data

    def close(self) -> None:
        """Close it, with what is in it."""
        os.close(self._end)
        os.close(self._beginning)


class Pipes:
    """Pipes that are used one after the other."""

    def __init__(self, most: int = MOST_PIPES) -> None:
        """Find out whether the system can move bytes like this; `most` pipes are open at the same time."""
        self._idle: list[Pipe] = []
        self._left = most if _can_splice() else 0

    def borrow(self) -> Pipe | None:
        """Return an empty pipe; None if there is none."""
        if self._idle:
            return self._idle.pop()
        if not self._left:
            return None
        try:
            pipe = Pipe()
        except OSError:
            return None
        self._left -= 1
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        """Take a pipe back; one with bytes in it is closed."""
        if pipe.held:
            pipe.close()
            self._left += 1
        else:
            self._idle.append(pipe)

    def close(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            self._idle.pop().close()
            self._left += 1


def _can_splice() -> bool:
    """Whether a byte arrives: some systems that are like Linux have the call, but not for sockets."""
    if _splice is None:
        return False
    one, other = socket.socketpair()
    with one, other, suppress(OSError), closing(Pipe()) as pipe:
        one.send(b"x")
        return pipe.fill(other, 1) == pipe.empty(other) == len(one.recv(1))
    return False
