"""A server that knows nothing of the protocol: it notes what clients send, byte for byte, and agrees to everything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ANSWER = b'{"model_name": "any", "outputs": []}'
_CORS = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "POST"),
    ("Access-Control-Allow-Headers", "Content-Type, Content-Encoding, Inference-Header-Content-Length"),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    """With names in lower case."""
    body: bytes

    def values(self, name: str) -> list[str]:
        """Return the values of all fields of a name."""
        return [value for other, value in self.fields if other == name.lower()]


class RecordingServer(ThreadingHTTPServer):
    """The server, with what it has noted."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen at a free port."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.recorded: list[Recorded] = []

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RecordingServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out apart

    def do_POST(self) -> None:
        self._note(self._read())
        self._reply(HTTPStatus.OK, _ANSWER)

    def do_OPTIONS(self) -> None:
        self._note(b"")
        self._reply(HTTPStatus.OK, b"")

    def _note(self, body: bytes) -> None:
        fields = [(name.lower(), value) for name, value in self.headers.items()]
        self.server.recorded.append(Recorded(self.command, self.path, fields, body))

    def _read(self) -> bytes:
        if "Transfer-Encoding" not in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _reply(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        for name, value in (*_CORS, ("Content-Type", "application/json"), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parameter of the class it is from
        """Say nothing: standard error is the tests'."""


@contextmanager
def recording() -> Iterator[RecordingServer]:
    """Run the server until it is no longer needed."""
    with RecordingServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
