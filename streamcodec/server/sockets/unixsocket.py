"""Unix socket: a listening socket whose name is a file, for clients on the same machine.

The file's permissions say who may connect. They are set after the socket has its name and before it listens: until
then, the system refuses all connections.

The system keeps the file when its server has ended, and would refuse the name to the next one. So a socket at which
nobody listens is replaced. A file that is not a socket is never replaced, nor one at which somebody listens. Two
servers that start together could replace each other's socket, because a new one refuses connections until it listens.
So only one server at a time takes a name in a directory. The directory is locked for that moment, and the system
unlocks it if the server dies.

The file is removed before the socket is closed. From then on nobody can connect, and nobody is lost: those who have
connected are still accepted. As long as the socket is open, no other file gets its inode number. So the number tells
whether the file is still the socket's own.

There is no TLS on Unix sockets. Only the system's kernel is between the two ends, and it checks who connects. A
certificate would have no name to be for.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.transports.sockets.unix import check_path

with suppress(ImportError):  # of Windows, whose Python has no Unix sockets
    import fcntl

PERMISSIONS: Final = 0o600
"""By default only the server's own user may connect. Everybody on the machine can reach a port of 127.0.0.1."""

_ALL_PERMISSIONS: Final = 0o777
_BACKLOG: Final = 1024

_LOCK_SECONDS: Final = 2.0
"""Longest wait for others who take a name in the same directory, each for less than a millisecond."""

_TRY_SECONDS: Final = 0.01

UnixPath = str | os.PathLike[str]
"""The path of a Unix socket."""


class UnixListener(socket.socket):
    """A listening Unix socket, with its file.

    Attributes:
        path: of the file, absolute.
        owns_file: whether `close` and `remove` remove the file. A worker that shares the socket with others does not.
    """

    path: str = ""
    owns_file: bool = False
    _inode: tuple[int, int] = (0, 0)

    def bind(self, address: Any, /) -> None:  # noqa: ANN401 - as of any socket
        """Make the file, which belongs to this socket then; `address` is its absolute path."""
        super().bind(address)
        self.path, self._inode = address, _inode_of(Path(address))
        self.owns_file = True

    def remove(self) -> None:
        """Remove the file, unless it has been removed or replaced already. Who has connected can still be accepted."""
        if self.owns_file:
            self.owns_file = False
            path = Path(self.path)
            with suppress(OSError):
                if _inode_of(path) == self._inode:
                    path.unlink()

    def close(self) -> None:
        """Remove the file, and close the socket."""
        self.remove()
        super().close()


def open_unix_listener(path: UnixPath, *, permissions: int = PERMISSIONS) -> UnixListener:
    """Open a listening Unix socket. The file is removed when the socket is closed.

    A socket that an ended server has left behind at the path is replaced.

    Args:
        path: of the file, in a directory that exists; at most 107 bytes when it is absolute (103 except on Linux).
        permissions: of the file, as `0o660`. Who may write to it may connect.

    Raises:
        LocalProtocolError: the path is too long, or `permissions` are none.
        OSError: the server cannot listen there: another server does, the file is not a socket, its directory does not
            exist, or may not be read and written by this user.
    """
    if not 0 <= permissions <= _ALL_PERMISSIONS:
        raise LocalProtocolError(f"permissions are a number from 0 to 0o777, as 0o660, not {permissions:#o}")
    place = Path(path).absolute()
    check_path(str(place))
    listener = UnixListener(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _locked(place.parent):
            _remove_left_behind(place)
            listener.bind(str(place))
            place.chmod(permissions)
            listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise worded(error, f"cannot listen at {place}: {error.strerror}") from None
    return listener


def worded(error: OSError, words: str) -> OSError:
    """Return an error with other words, among which its number does not stand."""
    told = type(error)(words)
    told.errno = error.errno
    return told


def refuse_tls(uds: UnixPath | None, ssl_context: object) -> None:
    """Check that there is no TLS on a Unix socket.

    Raises:
        LocalProtocolError: there is.
    """
    if uds is not None and ssl_context is not None:
        raise LocalProtocolError(
            "there is no TLS on a Unix socket: its file's permissions say who may connect; leave out uds or ssl_context"
        )


def _remove_left_behind(place: Path) -> None:
    """Remove a socket at which nobody listens, if there is one.

    Raises:
        OSError: there is another file, or it cannot be removed.
    """
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.ENOTSOCK, "there is a file that is not a socket; it is not replaced")
    if _is_listened_at(place):
        raise OSError(errno.EADDRINUSE, "another server listens there")
    place.unlink()


def _is_listened_at(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            with suppress(BlockingIOError):  # its queue is full
                probe.connect(str(place))
        except ConnectionRefusedError:
            return False
        return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other servers from taking names in a directory.

    Raises:
        OSError: there is no such directory, it may not be read, or another program keeps it locked.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise OSError(error.errno, f"the directory {folder}: {error.strerror}") from None
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise OSError(errno.EBUSY, "another program keeps its directory locked") from None
            time.sleep(_TRY_SECONDS)
        else:
            return


def _inode_of(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
