"""Leaving: finds out whether a client has left while its request waits for memory. Nobody reads its bytes then.

The end of its connection comes after those bytes. If the end has arrived, the system reports it nevertheless. If the
bytes do not fit into the system's buffer, the client's system still has them, and the end, too. A connection that was
reset is over. If the client has closed only its own direction, it may still want its answer. But if less than its
request has arrived, the request can never be complete.
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from typing import Final

from streamcodec.transports.sockets.acknowledged import HasFileno
from streamcodec.transports.sockets.system import new_poll
from streamcodec.transports.tls.sockets import POLLOUT, TlsSocket

with suppress(ImportError):  # Windows has neither, and no `poll`, without which they are not used
    import fcntl
    import termios

_RESET: Final[int] = sum(getattr(select, name, 0) for name in ("POLLERR", "POLLHUP", "POLLNVAL"))
_ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)
"""Linux tells this without reading. Elsewhere only a connection that was reset is noticed; without `poll`, none is."""

_INT_BYTES: Final = 4

_TLS_BYTES: Final = 64 << 10
"""OpenSSL may have read so much of the request that the system does not count any more: one read, and a record."""


def has_ended(sock: HasFileno) -> bool:
    """Return whether a client has ended its direction of a connection, or both: the server cannot tell which."""
    poll = new_poll()
    poll.register(sock.fileno(), _ENDED)
    return bool(poll.poll(0))


def takes_more(sock: HasFileno) -> bool:
    """Return whether the system takes a few bytes for a connection at once."""
    poll = new_poll()
    poll.register(sock.fileno(), POLLOUT)
    return bool(poll.poll(0))


def has_left(sock: HasFileno, missing: int | None) -> bool:
    """Return whether a client has left before all of its request had come.

    Args:
        sock: the connection.
        missing: bytes of the request that have not been read; None if that is unknown.
    """
    poll = new_poll()
    poll.register(sock.fileno(), _ENDED)
    found = poll.poll(0)
    if not found:
        return False
    if isinstance(sock, TlsSocket) and missing:
        missing -= _TLS_BYTES
    return bool(found[0][1] & _RESET) or (missing is not None and _unread_bytes(sock) < missing)


def _unread_bytes(sock: HasFileno) -> int:
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(_INT_BYTES)), sys.byteorder)
