"""A recording server: keeps what it was sent, byte for byte, and answers what it was told to."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

_TIMEOUT = 60.0
_OF_THE_TRANSPORT = {"accept", "connection", "host", "user-agent"}
"""Fields that say who asks, and not what."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    """Names in lower case, sorted."""
    body: bytes

    @property
    def plain(self) -> dict[str, Any]:
        """What it means: with the JSON parsed, its members in order, and the body decompressed."""
        own = {name: value for name, value in self.fields if name not in _OF_THE_TRANSPORT}
        body = self.body
        if encoding := own.get("content-encoding"):
            body = gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body)
            own["content-length"] = str(len(body))
        length = int(own.get("inference-header-content-length", len(body)))
        header = _members(body[:length]) if body else None
        path, _, query = self.target.partition("?")  # aiohttp escapes fewer characters
        line = (self.method, unquote(path), parse_qsl(query, keep_blank_values=True))
        return {"line": line, "fields": own, "header": header, "tensors": body[length:]}


def _members(text: bytes) -> Any:  # noqa: ANN401 - any JSON value; objects as lists of pairs
    return json.loads(text, object_pairs_hook=list, parse_constant=str)


@dataclass(slots=True)
class Recorder:
    """A server that runs."""

    address: str
    """HOST:PORT."""
    answer: bytes = b""
    """The whole next answer, and all after it."""
    requests: list[Recorded] = field(default_factory=list)

    def answers(self, body: bytes, *fields: str, status: int = 200) -> None:
        """Answer this from now on, and forget the requests so far."""
        head = "\r\n".join([f"HTTP/1.1 {status} -", *fields, f"Content-Length: {len(body)}", "", ""])
        self.answer = head.encode() + body
        self.requests.clear()


@contextmanager
def recording() -> Iterator[Recorder]:
    """Run a server until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        recorder = Recorder(f"127.0.0.1:{listener.getsockname()[1]}")
        threading.Thread(target=_accept, args=(listener, recorder), daemon=True).start()
        yield recorder


def _accept(listener: socket.socket, recorder: Recorder) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:  # the block has ended
            return
        threading.Thread(target=_serve, args=(sock, recorder), daemon=True).start()


def _serve(sock: socket.socket, recorder: Recorder) -> None:
    sock.settimeout(_TIMEOUT)
    with suppress(ConnectionError), sock, sock.makefile("rb") as file:
        while line := file.readline():
            method, target, _ = line.decode("latin-1").split()
            fields = []
            while (line := file.readline().strip()) != b"":
                name, _, value = line.decode("latin-1").partition(":")
                fields.append((name.lower(), value.strip()))
            data = file.read(int(dict(fields).get("content-length", "0")))
            recorder.requests.append(Recorded(method, target, sorted(fields), data))
            sock.sendall(recorder.answer)
