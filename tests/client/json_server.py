"""A V2 server that reads JSON only, and takes binary tensors for JSON that is wrong: as there are some."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.server.wire import TIMEOUT


@dataclass(slots=True)
class JsonServer:
    """Such a server."""

    url: str = ""
    status: int = 500
    """What it answers to a request with binary tensors."""
    text: bytes = b"Internal Server Error"
    metadata: Mapping[str, Any] | None = field(default_factory=lambda: {"name": "little", "extensions": []})
    """What it says of itself; None if it answers 404."""
    requests: list[str] = field(default_factory=list)
    """Method and path of each request; of inference requests also the form."""
    ids: list[str] = field(default_factory=list)
    """Those of the inference requests."""
    outputs: list[list[str]] = field(default_factory=list)
    """The outputs that they list."""
    headers: list[str | None] = field(default_factory=list)
    """The field X-A of each request."""

    def infer(self, body: bytes, *, is_binary: bool) -> tuple[int, bytes]:
        """Answer an inference request with its inputs."""
        request, _ = json.JSONDecoder().raw_decode(body.decode("latin-1"))
        self.ids.append(request["id"])
        self.outputs.append([output["name"] for output in request.get("outputs", ())])
        if is_binary:
            return self.status, self.text
        request = json.loads(body)
        answer = {"model_name": "echo", "id": request["id"], "outputs": request["inputs"]}
        return 200, json.dumps(answer).encode()


@contextmanager
def json_server(**options: Any) -> Iterator[JsonServer]:  # noqa: ANN401 - the fields
    """Run a server until the block ends."""
    server = JsonServer(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = TIMEOUT

        def do_GET(self) -> None:
            server.requests.append(f"GET {self.path}")
            server.headers.append(self.headers["X-A"])
            known = server.metadata is not None
            self._answer(200 if known else 404, json.dumps(server.metadata).encode() if known else b"")

        def do_POST(self) -> None:
            is_binary = "Inference-Header-Content-Length" in self.headers
            server.requests.append(f"POST {self.path} {'bytes' if is_binary else 'JSON'}")
            server.headers.append(self.headers["X-A"])
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(*server.infer(body, is_binary=is_binary))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield server
        http.shutdown()
        thread.join()
