"""Connecting: makes a blocking connection to a server, within the time of a call.

The look-up of a name has no time limit: if the name servers do not answer, it takes as long as the system is configured
to wait. So a thread does the look-up, and the caller waits for the thread only as long as its call may take.
"""

from __future__ import annotations

import queue
import socket
import threading
from contextlib import suppress
from typing import Any

from streamcodec.transports.sync import new_socket
from streamcodec.transports.timelimit import TimeLimit

_Addresses = list[tuple[Any, ...]]
"""What `socket.getaddrinfo` returns."""


def connect(host: str, port: int, *, timeout: float | None, limit: TimeLimit) -> socket.socket:
    """Open a connection to the first address of a host that accepts it; the socket is non-blocking.

    Args:
        host: a name or an address.
        port: of the server.
        timeout: seconds for the look-up of the name, and for each address; None for no such limit.
        limit: for all of it.

    Raises:
        TimeoutError: the name was not found in time, or the last address did not answer in time.
        OSError: the name is unknown, or no address accepted the connection.
    """
    failure = OSError(f"{host!r} has no address")
    for family, kind, protocol, _, address in _look_up(host, port, timeout, limit):
        try:
            with new_socket(family, kind, protocol) as sock:
                sock.settimeout(limit.at_most(timeout))
                sock.connect(address)
                sock.setblocking(False)
                return sock
        except OSError as error:
            failure = error
    try:
        raise limit.exceeded() if limit.is_over else failure
    finally:
        del failure  # its traceback refers to this frame, and to the arrays of those who called it


def _look_up(host: str, port: int, timeout: float | None, limit: TimeLimit) -> _Addresses:
    """Return the addresses of a host; a numeric address needs no thread."""
    with suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    found: queue.SimpleQueue[_Addresses | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 - raised by the calling thread
            found.put(error)

    threading.Thread(target=ask, name="streamcodec look-up", daemon=True).start()
    try:
        answer = found.get(timeout=limit.at_most(timeout))
    except queue.Empty:
        raise limit.too_long(timeout) from None
    try:
        if isinstance(answer, Exception):
            raise answer
        return answer
    finally:
        del answer  # as above
