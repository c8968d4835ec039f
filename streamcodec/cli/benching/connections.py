"""Connections: one connection to the server, on which the same request is sent again and again.

The socket does not block. A request is usually sent by one call of the system, and its answer received by another one.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Final

from streamcodec.blackbox.wire import connect
from streamcodec.cli.benching.answers import AnswerReader
from streamcodec.cli.benching.plan import LoadPlan

_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_SCRATCH: Final = memoryview(bytearray(256 << 10))
"""Where answers go. Nobody reads their bodies, so all connections share it."""

_NOTHING: Final = memoryview(b"")


class LoadConnection:
    """A connection, with at most one request at a time.

    Attributes:
        number: the file descriptor; -1 if it is not open.
        is_busy: whether a request is in progress.
        due: when the request should have begun, from which its latency counts.
        begun: when it has begun.
        answers: reads the answers.
        sent_bytes: how much the system has taken.
        received_bytes: how much has arrived.
    """

    def __init__(self, plan: LoadPlan) -> None:
        """Prepare; `open` connects."""
        self._plan = plan
        self._request = memoryview(plan.request)
        self._unsent: memoryview = _NOTHING
        self._socket: socket.socket | None = None
        self._send: Callable[[memoryview], int] = _fail
        self._receive: Callable[[memoryview], int] = _fail
        self.number: int = -1
        self.is_busy: bool = False
        self.due: float = 0.0
        self.begun: float = 0.0
        self.answers: AnswerReader = AnswerReader()
        self.sent_bytes: int = 0
        self.received_bytes: int = 0

    def open(self) -> None:
        """Connect.

        Raises:
            OSError: there is no connection.
        """
        self.close()
        plan = self._plan
        sock = connect(plan.socket_path or (plan.host, plan.port), plan.timeout)
        try:
            if plan.context is not None:
                sock = plan.context.wrap_socket(sock, server_hostname=plan.host)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        self._socket, self._send, self._receive = sock, sock.send, sock.recv_into
        self.number = sock.fileno()
        self.answers = AnswerReader()
        self._unsent = _NOTHING

    def close(self) -> None:
        """Close the connection, if it is open."""
        self.is_busy = False
        if self._socket is not None:
            self._socket.close()
            self._socket, self._send, self._receive = None, _fail, _fail
            self.number = -1

    @property
    def is_sending(self) -> bool:
        """Whether a part of the request has not been sent yet."""
        return bool(self._unsent)

    def begin(self, due: float, now: float) -> bool:
        """Send the request; return whether the system has taken all of it.

        Raises:
            OSError: the connection is broken.
        """
        self.is_busy = True
        self.due = due
        self.begun = now
        self._unsent = self._request
        return self._is_sent()

    def go_on(self) -> bool:
        """Send and receive what is possible now; return whether the answer is complete.

        Raises:
            InvalidAnswerError: the answer is invalid.
            OSError: the connection is broken.
        """
        if self._unsent:
            self._is_sent()
        while True:
            try:
                nbytes = self._receive(_SCRATCH)
            except _WOULD_BLOCK:
                return False
            self.received_bytes += nbytes
            if not nbytes:
                if self.answers.receive_eof():
                    return True
                raise ConnectionResetError("connection closed")
            if self.answers.receive(_SCRATCH[:nbytes]):
                return True

    def _is_sent(self) -> bool:
        try:
            while unsent := self._unsent:
                nbytes = self._send(unsent)
                self.sent_bytes += nbytes
                self._unsent = _NOTHING if nbytes == len(unsent) else unsent[nbytes:]
        except _WOULD_BLOCK:
            return False
        return True


def _fail(_: memoryview) -> int:
    """Take the place of the calls of a socket that is not open."""
    raise ConnectionResetError("connection closed")
