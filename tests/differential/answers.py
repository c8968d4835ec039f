"""Answers: a server behind the guard that frames its answers in every way, each by the path that is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from hypothesis import strategies as st

from tests.differential.requests import Line, Request, written

_LIKE_CHUNKS: Final = b"0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"
_TYPED: Final = b"Content-Type: application/json"


def _answer(first: bytes, *lines: bytes, body: bytes = _LIKE_CHUNKS, is_counted: bool = True) -> tuple[bytes, bytes]:
    """Return head and body."""
    counted = [b"Content-Length: %d" % len(body)] if is_counted else []
    return b"\r\n".join((b"HTTP/" + first, *lines, *counted, b"", b"")), body


ANSWERS: Final = {
    "plain": _answer(b"1.1 200 OK", _TYPED),
    "named-length": _answer(b"1.1 200 OK", b"Connection: content-length"),
    "named-type": _answer(b"1.1 200 OK", b"Connection: Content-Type, x-note", b"X-Note: 1", _TYPED),
    "chunked": _answer(
        b"1.1 200 OK", b"Transfer-Encoding: chunked", body=b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", is_counted=False
    ),
    "empty": _answer(b"1.1 200 OK", body=b""),
    "204": _answer(b"1.1 204 No Content", body=b"", is_counted=False),
    "304-length": _answer(b"1.1 304 Not Modified", b"Content-Length: 5", body=b"", is_counted=False),
    "100": _answer(b"1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", _TYPED),
    "500": _answer(b"1.1 500 So", body=b'{"error":"so"}'),
    "close": _answer(b"1.1 200 OK", b"Connection: close"),
    "until-end": _answer(b"1.1 200 OK", b"Connection: close", is_counted=False),
    "1.0": _answer(b"1.0 200 OK"),
}
"""By name: what is answered to a GET of `/v2/models/NAME`."""


def names() -> st.SearchStrategy[frozenset[str]]:
    """Draw a few answers, of which a history asks for one again and again."""
    return st.frozensets(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=2)


@st.composite
def guarded_requests(draw: st.DrawFn, names: frozenset[str]) -> Request:
    """Draw a request for one of these answers."""
    name = draw(st.sampled_from(sorted(names)))
    trace = draw(st.sampled_from((b"", b"00-1", b"00-2")))
    extra: list[Line] = draw(
        st.sampled_from(
            (*[[]] * 6, [(b"Connection", b"close")], [(b"Connection", b"Traceparent")], [(b"X-Note", b"1")])
        )
    )
    method = draw(st.sampled_from((*[b"GET"] * 7, b"HEAD")))
    line = b"%b /v2/models/%b HTTP/1.1" % (method, name.encode())
    return written(line, [(b"Host", b"x"), *[(b"Traceparent", trace)] * bool(trace), *extra], b"")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer as written down."""
        head, body = ANSWERS.get(self.path.rpartition("/")[2], ANSWERS["empty"])
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.wfile.write(head if self.command == "HEAD" else head + body)
        self.close_connection = b"close" in head or head.startswith(b"HTTP/1.0")

    do_HEAD = do_POST = do_GET  # noqa: N815 - the standard library's names

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def scripted_server() -> Iterator[str]:
    """Run the server behind until the block ends; give its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
