"""Acknowledged: how much of what was sent has reached the peer.

The system takes bytes long before they leave this machine: for one TCP connection up to 4 MB. On a link of 2 kB/s it
then takes nothing more for minutes, although the peer receives all the time. So the bytes that the system takes say
nothing about a slow peer. The bytes that the peer has acknowledged do, and Linux tells their number (`SIOCOUTQ`). On
other systems, all bytes that the system has taken count as acknowledged.
"""

from __future__ import annotations

import sys
from typing import Final, Protocol

try:
    import fcntl
    import termios
except ImportError:  # on Windows
    _HAS_IOCTL = False
else:
    _HAS_IOCTL = True

SLICES: Final = 8
"""A time limit is divided into so many parts; after each of them somebody looks for acknowledged bytes."""

_INT_BYTES: Final = 4


class HasFileno(Protocol):
    """A socket, or an object with a descriptor."""

    def fileno(self) -> int:
        """Return its descriptor."""
        ...


def unacknowledged_bytes(sock: HasFileno | None) -> int:
    """Return how many bytes the system has taken for a connection and the peer has not acknowledged.

    With TLS these are encrypted bytes. For a Unix socket they include the system's own overhead. It is 0 if the system
    does not tell, for a socket that is closed, and for a transport without one.
    """
    if sock is None or sys.platform != "linux" or not _HAS_IOCTL:
        return 0
    try:
        found = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT_BYTES))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(found, sys.byteorder)


class Silence:
    """Finds out for how long nothing has moved on a connection, in slices of a time limit.

    Create it when the first slice has passed without a byte, and drop it when a byte has moved. If bytes are on their
    way at the first slice's end, nobody knows whether some have been acknowledged before. Then the limit is exceeded by
    this slice.
    """

    def __init__(self, sock: HasFileno) -> None:
        """Begin at the end of the first slice."""
        self._sock = sock
        self._passed = 0
        self._before = 0

    def is_over(self) -> bool:
        """Report the end of a slice; return whether nothing has moved for the whole time limit."""
        before, self._before = self._before, unacknowledged_bytes(self._sock)
        self._passed = self._passed + 1 if self._before == before else 0
        return self._passed >= SLICES
