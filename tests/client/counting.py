"""A server that counts what it would have run: a thread for each connection, each request read to its end."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.client.scripted import Scripted, read_request, response
from tests.server.wire import TIMEOUT

BUSY = response(b'{"error":"busy"}', "Retry-After: 0", status="503 Service Unavailable")

Handler = Callable[[int, socket.socket], None]
"""Answers a request: called with its number, from 0 on. The connection is closed afterwards."""


@contextmanager
def counting(handle: Handler) -> Iterator[Scripted]:
    """Run a server; its `requests` are those that it has read as a whole."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Scripted(f"http://127.0.0.1:{listener.getsockname()[1]}")
        threads: list[threading.Thread] = []
        lock = threading.Lock()

        def answer(sock: socket.socket) -> None:
            sock.settimeout(TIMEOUT)
            with sock, suppress(OSError):  # the client has gone, as it may
                request = read_request(sock)
                with lock:
                    number = len(server.requests)
                    server.requests.append(request)
                handle(number, sock)

        def accept() -> None:
            with suppress(OSError):  # the block has ended
                while True:
                    sock, _ = listener.accept()
                    server.accepted += 1
                    threads.append(threading.Thread(target=answer, args=(sock,)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join()


def answers(*steps: bytes | None) -> Handler:
    """Answer each request with its own bytes, the last ones with the last; None resets the connection."""

    def handle(number: int, sock: socket.socket) -> None:
        step = steps[min(number, len(steps) - 1)]
        if step is None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            sock.sendall(step)

    return handle
