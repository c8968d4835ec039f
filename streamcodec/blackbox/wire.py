"""Wire: sends one request over a connection of its own, byte for byte, and records the answer.

This module does not judge. An exchange never fails. A refused connection, a closed connection, silence, and bytes that
are not HTTP are observations like any answer. Connecting, sending and reading have one deadline together. h11 reads all
answers, because the framing of a server cannot be trusted.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from select import select
from typing import Final

import h11

from streamcodec.blackbox.messages import AfterSending, RawRequest

_PIECE_SECONDS: Final = 0.005
"""Pause between two pieces of a request. On loopback it is long enough for the server to read the first one alone."""

_READ_BYTES: Final = 1 << 16
_MAX_ANSWER_BYTES: Final = 64 << 20
_MAX_HEAD_BYTES: Final = 64 << 10
_NEXT_ANSWER_SECONDS: Final = 1.0
"""How long a further answer may take, if its request was sent together with the first one."""


class WireOutcome(Enum):
    """The end of an exchange."""

    ANSWERED = "answered"
    """All expected answers came."""
    CLOSED = "closed"
    """The connection ended before."""
    SILENT = "silent"
    """Time ran out before."""
    GARBLED = "garbled"
    """The received bytes are not HTTP, or are truncated."""
    UNREACHABLE = "unreachable"
    """There was no connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer:
    """A response of the server."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    """Names in lower case."""
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all fields of a name (lower case)."""
        return [value for key, value in self.fields if key == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireResult:
    """The answers to a request, or how the exchange failed."""

    outcome: WireOutcome
    answers: tuple[WireAnswer, ...] = ()
    seconds: float = 0.0
    """Seconds from the connection to the end."""
    detail: str = ""
    """A description of the outcome, if it is not an answer."""


class OutOfRequestsError(Exception):
    """The largest number of requests has been sent."""


@dataclass(slots=True, kw_only=True)
class Pacer:
    """Bounds the requests in number and in rate."""

    max_requests: int
    max_rate: float
    """Requests per second."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    sent: int = 0
    _next: float = field(default=0.0)

    def take(self) -> None:
        """Wait until the next request may be sent.

        Raises:
            OutOfRequestsError: no more requests are allowed.
        """
        if self.sent == self.max_requests:
            raise OutOfRequestsError
        self.sent += 1
        now = self.clock()
        if now < self._next:
            self.sleep(self._next - now)
        self._next = max(now, self._next) + 1 / self.max_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Sends requests to a server."""

    address: tuple[str, int] | str
    """The address that was checked; or the path of a Unix socket. The name is not looked up again, so the address
    cannot change."""
    pacer: Pacer

    def exchange(self, request: RawRequest, timeout: float) -> WireResult:
        """Send a request and wait for its answers.

        Args:
            request: what is sent.
            timeout: seconds until the first answer must be complete. The pauses between the pieces of a request do not
                count. Each further answer may take a second more.

        Raises:
            OutOfRequestsError: no more requests are allowed.
        """
        self.pacer.take()
        began = time.monotonic()
        try:
            with connect(self.address, timeout) as sock:
                return _converse(sock, request, timeout, began)
        except OSError as error:
            return WireResult(outcome=WireOutcome.UNREACHABLE, seconds=time.monotonic() - began, detail=_said(error))


def connect(address: tuple[str, int] | str, timeout: float) -> socket.socket:
    """Connect to a host and a port, or to the path of a Unix socket.

    Raises:
        OSError: there is no connection within so many seconds.
    """
    if isinstance(address, tuple):
        sock = socket.create_connection(address, timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def _converse(sock: socket.socket, request: RawRequest, timeout: float, began: float) -> WireResult:
    deadline = began + timeout + _PIECE_SECONDS * (len(request.pieces) - 1)
    with suppress(OSError):  # the server may answer, or close, before all is sent, or read no more
        _send(sock, request, deadline)
    if request.ending is AfterSending.RESETS:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return WireResult(outcome=WireOutcome.CLOSED, seconds=time.monotonic() - began, detail="by the probe")
    reader = _AnswerReader(sock)
    answers: list[WireAnswer] = []
    outcome, detail = WireOutcome.ANSWERED, ""
    while len(answers) < request.answers:
        try:
            answers.append(reader.answer(deadline))
            deadline, timeout = time.monotonic() + _NEXT_ANSWER_SECONDS, _NEXT_ANSWER_SECONDS
        except TimeoutError:
            outcome, detail = WireOutcome.SILENT, f"no answer within {timeout:g} s"
            break
        except h11.RemoteProtocolError as error:
            outcome, detail = WireOutcome.GARBLED, str(error)
            break
        except OSError as error:
            outcome, detail = WireOutcome.CLOSED, _said(error)
            break
    seconds = time.monotonic() - began
    return WireResult(outcome=outcome, answers=tuple(answers), seconds=seconds, detail=detail)


def _send(sock: socket.socket, request: RawRequest, deadline: float) -> None:
    for index, piece in enumerate(request.pieces):
        if index and select([sock], [], [], _PIECE_SECONDS)[0]:
            break  # the server answered or closed before the request was complete
        sock.settimeout(max(0.0, deadline - time.monotonic()))
        sock.sendall(piece)
    if request.ending is AfterSending.CUTS:
        sock.shutdown(socket.SHUT_WR)


class _AnswerReader:
    """Reads answers, one after the other."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._unread = b""

    def answer(self, deadline: float) -> WireAnswer:
        """Read one answer.

        Raises:
            TimeoutError: it has not come by the deadline.
            ConnectionError: the connection ended before its first byte.
            h11.RemoteProtocolError: the received bytes are not an answer, or are truncated.
        """
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        # It waits for the answer to some POST.
        connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
        connection.send(h11.EndOfMessage())
        has_begun = bool(self._unread)
        if has_begun:
            connection.receive_data(self._unread)  # nothing at all would mean the end
        status, fields, body = 0, [], bytearray()
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                # Bytes that came before the deadline are read even after it.
                if not select([self._sock], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    raise TimeoutError
                data = self._sock.recv(_READ_BYTES)
                if not (data or has_begun):
                    raise ConnectionAbortedError("the connection was closed without an answer")
                has_begun = True
                connection.receive_data(data)
            elif isinstance(event, h11.Response):
                status, fields = event.status_code, list(event.headers)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MAX_ANSWER_BYTES:
                    raise h11.RemoteProtocolError(f"the answer is longer than {_MAX_ANSWER_BYTES:,} bytes")
        self._unread = connection.trailing_data[0]
        return WireAnswer(status=status, fields=tuple(fields), body=bytes(body))


def _said(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
