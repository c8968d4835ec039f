"""Bare: a process that does nothing but receive so many bytes and answer, the yardstick of a whole server.

It knows how long each request is, has memory for it from the beginning, and looks at none of its bytes.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from streamcodec import EncodedMessage
from tests.benchmarks import load
from tests.benchmarks.peers import Running
from tests.processes import cpu_clock

BARE: Final = "bare receiver"

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def receiving(model: str, message: EncodedMessage) -> Iterator[Running]:
    """Run a process that receives requests with this message; they come one after the other, over any connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        nbytes = len(load.head_at(host, model, message.headers)) + message.body_length
        process = multiprocessing.get_context("fork").Process(target=_receive, args=(listener, nbytes), daemon=True)
        process.start()
        pid = process.pid or 0
        try:
            yield Running(name=BARE, version="", url=f"http://{host}:{port}", pid=pid, cpu=cpu_clock(pid))
        finally:
            process.kill()
            process.join()


def _receive(listener: socket.socket, nbytes: int) -> None:
    memory = memoryview(bytearray(nbytes))
    while True:
        threading.Thread(target=_serve, args=(listener.accept()[0], memory)).start()


def _serve(sock: socket.socket, memory: memoryview) -> None:
    with sock, suppress(ConnectionError):
        while _fill(sock, memory):
            sock.sendall(_ANSWER)


def _fill(sock: socket.socket, memory: memoryview) -> bool:
    """Receive one request; return whether it has come."""
    received = 0
    while received < len(memory):
        if not (count := sock.recv_into(memory[received:])):
            return False
        received += count
    return True
