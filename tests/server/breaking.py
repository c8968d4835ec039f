"""Breaking: a proxy that cuts connections, each after so many bytes of the client, as a bad link does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

_PIECE = 1 << 16


class Link:
    """A link that breaks.

    Attributes:
        breaks: how often it has broken.
        passed: bytes that have passed from clients.
    """

    def __init__(self, server: tuple[str, int], cuts: Iterator[int]) -> None:
        self._server = server
        self._cuts = cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.breaks = 0
        self.passed = 0

    def run(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client, next(self._cuts, None)), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def _carry(self, client: socket.socket, left: int | None) -> None:
        with closing(client), socket.create_connection(self._server) as server:
            back = threading.Thread(target=_pass_all, args=(server, client), daemon=True)
            back.start()
            with suppress(OSError):
                while data := client.recv(_PIECE if left is None else min(left, _PIECE)):
                    server.sendall(data)
                    self.passed += len(data)
                    if left is not None:
                        left -= len(data)
                        if not left:
                            self.breaks += 1
                            break
            for sock in (client, server):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            back.join()


def _pass_all(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_PIECE):
            target.sendall(data)


@contextmanager
def breaking(server: tuple[str, int], cuts: Iterator[int]) -> Iterator[Link]:
    """Run a link to a server; each connection breaks after the next number of bytes, those after the last do not."""
    link = Link(server, cuts)
    thread = threading.Thread(target=link.run, daemon=True)
    thread.start()
    try:
        yield link
    finally:
        link.close()
        thread.join()
