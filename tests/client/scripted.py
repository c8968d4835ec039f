"""Scripted servers: what a client says is ignored, what it is answered is written down beforehand."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.server.wire import TIMEOUT

Step = bytes | float | Callable[[socket.socket], None]
"""Bytes to be sent, seconds to wait, or anything else; an empty `bytes` only waits for a request."""


@dataclass(slots=True)
class Scripted:
    """A server that follows a script for each connection."""

    url: str
    accepted: int = 0
    requests: list[bytes] = field(default_factory=list)
    """What came before each answer."""
    _closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def has_closed(self) -> bool:
        """Wait until the server has closed its next connection."""
        return self._closed.acquire(timeout=TIMEOUT)


@contextmanager
def scripted(*connections: Sequence[Step]) -> Iterator[Scripted]:
    """Run a server; each step that is bytes answers one request, then comes the next; at the end it closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        server = Scripted(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_follow, args=(listener, server, connections))
        thread.start()
        try:
            yield server
        finally:
            thread.join()


def _follow(listener: socket.socket, server: Scripted, connections: Sequence[Sequence[Step]]) -> None:
    for steps in connections:
        sock, _ = listener.accept()
        server.accepted += 1
        sock.settimeout(TIMEOUT)
        with sock:
            try:
                for step in steps:
                    _do(sock, step, server)
            except ConnectionError:
                pass  # the client has gone, as it may
        server._closed.release()  # noqa: SLF001 - this is the server's own thread


def _do(sock: socket.socket, step: Step, server: Scripted) -> None:
    if isinstance(step, bytes):
        server.requests.append(read_request(sock))
        sock.sendall(step)
    elif callable(step):
        step(sock)
    else:
        time.sleep(step)


def hung_up(sock: socket.socket) -> None:
    """Wait, without reading, until the client has gone."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    assert poll.poll(TIMEOUT * 1000)


@contextmanager
def stalling() -> Iterator[Scripted]:
    """Run a server that reads nothing until the block ends; then it reads all, so that the connection can close."""
    has_ended = threading.Event()

    def stall(sock: socket.socket) -> None:
        assert has_ended.wait(TIMEOUT)
        while sock.recv(1 << 20):
            pass

    with scripted([stall]) as server:
        try:
            yield server
        finally:
            has_ended.set()


def read_request(sock: socket.socket) -> bytes:
    """Read one request with `Content-Length`, or none."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = sock.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0]):
        chunk = sock.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError
        body += chunk
    return head + b"\r\n\r\n" + body


def response(body: bytes, *fields: str, status: str = "200 OK", is_counted: bool = True) -> bytes:
    """Make a response."""
    lines = [f"HTTP/1.1 {status}", *fields, *([f"Content-Length: {len(body)}"] if is_counted else []), "", ""]
    return "\r\n".join(lines).encode() + body
