"""Client: connections that send bytes as they are told, and take answers one by one, as h11 reads them."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

import h11

Address = tuple[str, int]

GET_LIVE: Final = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
_PATIENCE: Final = 20.0
_IMPATIENCE: Final = 3.0
_ENOUGH: Final = 3
_SHOWN: Final = 400


class Waiting:
    """How long a client waits before it says that no answer comes: less when that has happened some times."""

    missed: int = 0

    @classmethod
    def seconds(cls) -> float:
        return _PATIENCE if cls.missed < _ENOUGH else _IMPATIENCE


def shown(data: bytes) -> str:
    """Return bytes as a finding shows them: the first ones of many."""
    return repr(data) if len(data) <= _SHOWN else f"{data[:_SHOWN]!r} and {len(data) - _SHOWN} more"


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """An answer, without its date."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Answer({self.status}, {dict(self.fields)}, {shown(self.body)})"

    @property
    def says_close(self) -> bool:
        return any(name.lower() == b"connection" and value.lower() == b"close" for name, value in self.fields)

    def without_connection(self) -> Answer:
        """Return the same without what the server says of its connection."""
        return replace(self, fields=tuple(field for field in self.fields if field[0].lower() != b"connection"))


NO_ANSWER: Final = Answer(-1)
"""Nothing has come for a long time."""
NO_HTTP: Final = Answer(-2)
"""What has come is no answer; its bytes are the body."""
END: Final = Answer(-3)
"""The connection has ended without an answer."""


class Connection:
    """One connection to a server."""

    def __init__(self, address: Address, host: str = "") -> None:
        """Connect; from a host of one's own, of 127.0.0.0/8, if a server tells no ports."""
        self.sock = socket.create_connection(address, _PATIENCE, (host, 0) if host else None)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name = host or "{}:{}".format(*self.sock.getsockname())
        """As an observer is told."""
        self._unread = b""
        self._has_ended = False

    def send(self, data: bytes) -> None:
        with suppress(ConnectionError):  # refused before the end
            self.sock.sendall(data)

    def answer(self, method: bytes = b"GET") -> Answer:
        """Take the next answer, to a request of this method."""
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        http.send(h11.EndOfMessage())
        begun, unread = b"", self._unread
        try:
            response, body = None, b""
            if unread:  # nothing would be the end
                http.receive_data(unread)
            while not isinstance(event := http.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    response = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif event is h11.NEED_DATA:
                    begun += unread
                    unread = self._read()
                    if not unread and response is None:
                        return END if not begun else Answer(NO_HTTP.status, body=begun)
                    http.receive_data(unread)
            self._unread = http.trailing_data[0]
        except TimeoutError:
            Waiting.missed += 1
            return NO_ANSWER if not begun else Answer(NO_ANSWER.status, body=begun)
        except h11.RemoteProtocolError:
            return Answer(NO_HTTP.status, body=begun + unread)
        assert response is not None
        fields = [(name, value) for name, value in response.headers.raw_items() if name.lower() != b"date"]
        return Answer(response.status_code, tuple(fields), body)

    def is_answered(self) -> bool:
        """Ask whether the server lives: whether this connection is kept, and in step."""
        self.send(GET_LIVE)
        return self.answer().status == 200

    def ends(self) -> bool:
        """Whether the connection ends without another byte."""
        return not self._unread and self.answer() is END

    def _read(self) -> bytes:
        self.sock.settimeout(Waiting.seconds())
        try:
            return self.sock.recv(1 << 16)
        except ConnectionError:
            return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.sock.close()


def ask_alone(address: Address, data: bytes) -> Answer:
    """Have one request answered on a connection of its own."""
    with Connection(address) as connection:
        connection.send(data)
        return connection.answer()
