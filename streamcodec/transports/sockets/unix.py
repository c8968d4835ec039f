"""Unix sockets: connections to a server on the same machine, by the path of a file.

A path has to fit into the system's address of a socket, which is short, and Python's own error does not say how short.
Names without a file (Linux calls them abstract) are refused: they have no permissions, so every user of the machine
could connect, or take the name first.

The system offers no wait for a server whose queue of connections is full: `connect` on a non-blocking socket fails at
once, and the socket never becomes ready. So both clients try again after a moment.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.transports.timelimit import TimeLimit

AF_UNIX: Final[int | None] = getattr(socket, "AF_UNIX", None)
"""The family of Unix sockets; None if the system, or its Python, has none."""

MAX_PATH_BYTES: Final = 107 if sys.platform == "linux" else 103
"""Of the path of a socket. The system's address has one byte more, for the NUL at its end."""

_PAUSE_SECONDS: Final = 0.005
"""Before the next attempt to connect to a server whose queue is full."""


def check_path(path: str) -> None:
    """Check that a path can be that of a socket.

    Raises:
        LocalProtocolError: it is too long, or has a NUL, or this system has no Unix sockets.
    """
    if AF_UNIX is None:
        raise LocalProtocolError("this system has no Unix sockets; use a host and a port")
    nbytes = len(os.fsencode(path))
    if nbytes > MAX_PATH_BYTES:
        raise LocalProtocolError(
            f"the path of a Unix socket has at most {MAX_PATH_BYTES} bytes here, and {path!r} has {nbytes}; "
            "use a shorter one, for example by a symbolic link to its directory"
        )
    if "\0" in path:
        raise LocalProtocolError(f"the path of a Unix socket is that of a file, so it cannot have a NUL: {path!r}")


def connect(path: str, *, timeout: float | None, limit: TimeLimit) -> socket.socket:
    """Open a connection to the server that listens at a path; the socket is non-blocking.

    Args:
        path: of the socket.
        timeout: seconds to wait while the server's queue is full; None for no such limit.
        limit: for all of it.

    Raises:
        TimeoutError: the server's queue was full all the time.
        OSError: nobody listens there, the file is not a socket, or its permissions do not allow it.
    """
    seconds = limit.at_most(timeout)
    end = math.inf if seconds is None else time.monotonic() + seconds
    with _new_socket() as sock:
        while not _attempt(sock, path):
            if time.monotonic() >= end:
                raise limit.too_long(timeout)
            time.sleep(_PAUSE_SECONDS)
    return sock


async def connect_async(path: str, *, timeout: float | None = None) -> socket.socket:
    """Do the same while other tasks run.

    Args:
        path: of the socket.
        timeout: seconds to wait while the server's queue is full; None waits for ever.

    Raises:
        TimeoutError: the server's queue was full all the time.
        OSError: as `connect`.
    """
    with _new_socket() as sock, anyio.fail_after(timeout):
        await checkpoint()
        while not _attempt(sock, path):  # noqa: ASYNC110 - the system has no event for it
            await anyio.sleep(_PAUSE_SECONDS)
    return sock


@contextmanager
def _new_socket() -> Iterator[socket.socket]:
    """Open a non-blocking socket; it is closed if the block ends with an exception."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        yield sock
    except BaseException:
        sock.close()
        raise


def _attempt(sock: socket.socket, path: str) -> bool:
    """Connect; return false if the server's queue is full.

    Raises:
        OSError: as `connect`.
    """
    try:
        sock.connect(path)
    except BlockingIOError:
        return False
    except ConnectionRefusedError:
        if Path(path).is_socket():
            raise
        raise OSError(errno.ENOTSOCK, "the file is not a socket") from None
    return True
