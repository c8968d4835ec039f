"""Clients of a cluster: many connections at once, each asking over and over, that count what fails and how."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from streamcodec import EncodedMessage
from tests.benchmarks import load
from tests.benchmarks.peers import Running
from tests.ray.cluster import PROXIED

_PAUSE: Final = 0.02
"""After a failed connection, before the next: a client that never waits would only measure refusals."""


@dataclass
class Outcome:
    """What many clients have seen."""

    seconds: list[float] = field(default_factory=list)
    """Of each request that was answered 200."""
    failed: Counter[str] = field(default_factory=Counter)
    """Others, by what the client saw, and whether its connection had brought answers before."""
    longest_gap: float = 0.0
    """Between two answers, of all clients together."""
    _last: float = field(default_factory=time.monotonic)

    def answered(self, began: float) -> None:
        """Count a request that was answered 200."""
        now = time.monotonic()
        self.seconds.append(now - began)
        self.longest_gap = max(self.longest_gap, now - self._last)
        self._last = now


def path_of(server: Running, model: str) -> str:
    """Return the path of a model, which begins with the name of the application where Ray routes."""
    prefix = f"/{server.name}" if server.name in PROXIED else ""
    return f"{prefix}/v2/models/{model}/infer"


def request_to(server: Running, model: str, message: EncodedMessage) -> load.Request:
    """Return a whole request."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
    head = f"POST {path_of(server, model)} HTTP/1.1\r\nHost: {server.host}\r\n{fields}\r\n"
    return load.Request(head.encode(), message.buffers)


class _Client(threading.Thread):
    """Asks over one connection, and over another where that one ends."""

    def __init__(self, server: Running, request: load.Request, outcome: Outcome, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._request = request
        self._outcome = outcome
        self._stop_asking = stop

    def run(self) -> None:
        while not self._stop_asking.is_set():
            answers = 0
            try:
                with closing(load.connect(self._server)) as sock:
                    while not self._stop_asking.is_set() and self._ask(sock):
                        answers += 1
            except (OSError, EOFError) as error:
                self._outcome.failed[f"{'kept' if answers else 'new'}: {type(error).__name__}"] += 1
                time.sleep(_PAUSE)

    def _ask(self, sock: socket.socket) -> bool:
        """Ask once; return whether the connection is kept."""
        began = time.monotonic()
        load.send(sock, self._request)
        status, is_kept = self._receive(sock)
        if status == "200":
            self._outcome.answered(began)
        else:
            self._outcome.failed[status] += 1
        return is_kept

    def _receive(self, sock: socket.socket) -> tuple[str, bool]:
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._some(sock)
        head = data[:end].lower() + b"\r\n"
        left = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]) - (len(data) - end - 4)
        while left > 0:
            left -= len(self._some(sock))
        return head[9:12].decode(), b"\r\nconnection: close\r\n" not in head

    def _some(self, sock: socket.socket) -> bytes:
        if not (data := sock.recv(1 << 18)):
            msg = "the server has closed the connection"
            raise EOFError(msg)
        return data


@contextmanager
def hammering(server: Running, request: load.Request, count: int) -> Iterator[Outcome]:
    """Ask all the time over so many connections, until this is left."""
    outcome, stop = Outcome(), threading.Event()
    clients = [_Client(server, request, outcome, stop) for _ in range(count)]
    for client in clients:
        client.start()
    try:
        yield outcome
    finally:
        stop.set()
        for client in clients:
            client.join(30)


def push(server: Running, model: str, nbytes: int, seconds: float) -> int:
    """Begin a request and send as much of it as is taken within a time; return how many bytes that were."""
    message = load.message_for(nbytes)
    sent = 0
    with closing(load.connect(server)) as sock:
        request = request_to(server, model, message)
        buffers = iter(request.buffers)
        sock.sendall(request.head + bytes(next(buffers)))
        body = memoryview(next(buffers)).cast("B")
        sock.setblocking(False)
        end = time.monotonic() + seconds
        while sent < len(body) and time.monotonic() < end:
            try:
                sent += sock.send(body[sent : sent + (1 << 18)])
            except BlockingIOError:
                time.sleep(0.001)
    return sent


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def abuse(server: Running, count: int) -> Counter[str]:
    """Do what clients do wrong, so many times; return how often what was seen.

    In turn: a request that is broken off in its body, an unknown model, a body that contradicts its header, one that is
    sent in full and not waited for, one that is well, and nothing at all.
    """
    seen: Counter[str] = Counter()
    small = load.message_for(4096)
    good, unknown = request_to(server, "identity", small), request_to(server, "unknown", small)
    whole = good.head + b"".join(bytes(buffer) for buffer in good.buffers)
    wrong = whole.replace(b'"FP32"', b'"FP64"')
    for number in range(count):
        with closing(load.connect(server)) as sock:
            match number % 6:
                case 0:
                    sock.sendall(whole[: len(whole) // 2])
                case 1:
                    load.send(sock, unknown)
                    seen[str(load.receive(sock).status)] += 1
                case 2:
                    sock.sendall(wrong)
                    seen[str(load.receive(sock).status)] += 1
                case 3:
                    sock.sendall(whole)
                case 4:
                    sock.sendall(whole)
                    seen[str(load.receive(sock).status)] += 1
                case _:
                    pass
    return seen
