"""Wire: HTTP on a raw socket, byte for byte as a test wants it; nothing waits for longer than `TIMEOUT`."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamcodec import Tensor, encode_request

TIMEOUT = 60.0
GET_LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response."""

    status: int
    fields: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of an error, which is JSON with this one member."""
        assert self.fields["content-type"] == "application/json"
        assert list(self.document) == ["error"]
        return str(self.document["error"])

    @property
    def is_last(self) -> bool:
        return self.fields.get("connection") == "close"


class Wire:
    """One connection to a server."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        """Connect to a host and port, or to the path of a Unix socket."""
        self.sock = _at_path(address) if isinstance(address, str) else socket.create_connection(address, TIMEOUT)
        self._unread = b""

    def send(self, *parts: bytes) -> Self:
        for part in parts:
            self.sock.sendall(part)
        return self

    def response(self, *, has_body: bool = True) -> Answer:
        """Read one response, and not a byte more."""
        while b"\r\n\r\n" not in self._unread:
            self._read()
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("ascii").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        fields = {name.lower(): value for name, value in pairs}
        length = int(fields.get("content-length", "0")) if has_body else 0
        while len(self._unread) < length:
            self._read()
        body, self._unread = self._unread[:length], self._unread[length:]
        return Answer(status=int(status_line.split()[1]), fields=fields, body=body)

    def is_closed(self) -> bool:
        """Whether the server closes the connection without another byte."""
        assert self._unread == b""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.sock.close()

    def _read(self) -> None:
        chunk = self.sock.recv(1 << 16)
        if not chunk:
            msg = f"the connection ended in the middle of {self._unread[:200]!r}"
            raise ConnectionError(msg)
        self._unread += chunk


def _at_path(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(TIMEOUT)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def head(target: str, *fields: str, method: str = "POST", version: str = "1.1") -> bytes:
    """Make a head."""
    return "\r\n".join((f"{method} {target} HTTP/{version}", "Host: x", *fields, "", "")).encode()


def infer_request(model: str = "identity", *fields: str, count: int = 4, request_id: str | None = None) -> bytes:
    """Make a whole inference request with `count` floats."""
    tensors = [Tensor(name="x", array=np.arange(count, dtype=np.float32))]
    message = encode_request(tensors, request_id=request_id, parameters={"binary_data_output": True})
    lines = [f"{name}: {value}" for name, value in message.headers]
    return b"".join((head(f"/v2/models/{model}/infer", *lines, *fields), *message.buffers))


def post(body: bytes, *fields: str, model: str = "identity") -> bytes:
    """Make a whole request with any body."""
    return head(f"/v2/models/{model}/infer", f"Content-Length: {len(body)}", *fields) + body


def chunked(body: bytes, sizes: Iterable[int]) -> bytes:
    """Frame a body in chunks; the last one takes the rest."""
    framed = b""
    for size in sizes:
        piece, body = body[:size], body[size:]
        framed += b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
    return framed + (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"


def floats(answer: Answer) -> list[float]:
    """Return the values of the one binary FP32 output."""
    assert answer.status == 200
    start = int(answer.fields["inference-header-content-length"])
    values: list[float] = np.frombuffer(answer.body[start:], "<f4").tolist()
    return values
