"""Opening: the listening socket of a server, at a port, at a path, or from somebody else."""

from __future__ import annotations

import errno
import socket
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server.sockets.handover import SharedListener
from streamcodec.server.sockets.unixsocket import PERMISSIONS, UnixListener, UnixPath, open_unix_listener, worded
from streamcodec.transports.sockets.unix import AF_UNIX

_UNKNOWN_HOST: Final = {
    getattr(socket, name, None)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_AGAIN", "EAI_FAIL", "EAI_ADDRFAMILY", "EAI_FAMILY")
} - {None}
"""The error numbers of `socket.create_server` for a failed look-up of a name."""


def open_listener(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Open a listening TCP socket.

    Args:
        host: an address or a name; one with a colon is IPv6.
        port: 0 picks a free one.
        reuse_port: whether other sockets may listen there, too: then the system gives each a share of the connections.

    Raises:
        OSError: the server cannot listen at the address.
        LocalProtocolError: this system cannot share a port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024, reuse_port=reuse_port)
    except ValueError:
        raise LocalProtocolError("this system cannot share a port (SO_REUSEPORT)") from None
    except OSError as error:
        raise cannot_listen(error, host, port) from None


def cannot_listen(error: OSError, host: str, port: int) -> OSError:
    """Return an error that says what to do; other errors than those of the address stay as they are."""
    if error.errno in _UNKNOWN_HOST:
        words = f"there is no host {host!r}; listen at a name or an address of this machine, or at 0.0.0.0 for all"
    elif error.errno == errno.EADDRINUSE:
        words = f"port {port} of {host} is in use; stop its user, or choose another port (0 picks one)"
    elif error.errno == errno.EACCES:
        words = f"you may not listen on port {port}; choose one of 1024 or more"
    elif error.errno == errno.EADDRNOTAVAIL:
        words = f"{host} is not an address of this machine; listen at one that is, or at 0.0.0.0 for all"
    else:
        return error
    return worded(error, words)


def open_place(
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    uds: UnixPath | None = None,
    uds_permissions: int = PERMISSIONS,
    listener: socket.socket | None = None,
    reuse_port: bool = False,
) -> socket.socket:
    """Open the listening socket of a server, or adopt one; the arguments are those of `run`.

    Raises:
        OSError: the server cannot listen there.
        LocalProtocolError: the path is too long; or this system cannot share a port.
    """
    if listener is None and uds is not None:
        return open_unix_listener(uds, permissions=uds_permissions)
    if listener is None:
        return open_listener(host, port, reuse_port=reuse_port)
    # Others may listen there, too: it stays as it is when this reference is closed.
    if listener.family != AF_UNIX:
        return SharedListener(fileno=listener.detach())
    unix = UnixListener(fileno=listener.detach())
    name = unix.getsockname()
    unix.path = name if isinstance(name, str) else ""  # a name without a file, of Linux, has no path
    return unix


def place_of(listener: socket.socket, host: str) -> tuple[str, int]:
    """Return where a listener listens, as `on_listening` is told: host and port, or a path and 0.

    Args:
        listener: listening.
        host: as the user has called it, if it was opened for that.
    """
    if isinstance(listener, UnixListener):
        return listener.path, 0
    address, port, *_ = listener.getsockname()
    return address if isinstance(listener, SharedListener) else host, port
