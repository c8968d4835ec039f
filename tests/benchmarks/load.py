"""Load: one client on a raw socket, the same for every server.

It knows just enough HTTP to find the end of an answer, sends bytes that were made beforehand, and throws away what it
receives. So what it measures is the server.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Final

import numpy as np

from streamcodec import EncodedMessage, Tensor, encode_request
from streamcodec.client import Client
from tests.benchmarks.measure import Sample, Variant
from tests.benchmarks.peers import Running

_SCRATCH: Final = memoryview(bytearray(1 << 20))
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TIMEOUT: Final = 120.0
_OK: Final = 200

CONNECTIONS: Final = 4
"""Connections to each server, of which one at a time is used: how much the system lets be under way, and so the time,
differs from connection to connection by up to a factor of 4."""


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request."""

    head: bytes
    buffers: Iterable[bytes | memoryview]
    """The JSON, then the tensor, as one buffer or as many."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    nbytes: int
    """Of head and body."""


def floats(nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return a tensor of so many bytes, none of them fresh memory."""
    return np.full(nbytes // 4, 1.5, np.float32)


def message_for(nbytes: int) -> EncodedMessage:
    """Return a request with one FP32 tensor `x` of so many bytes, which wants its answer in binary."""
    return encode_request([Tensor(name="x", array=floats(nbytes))], parameters={"binary_data_output": True})


def request_to(server: Running, model: str, message: EncodedMessage) -> Request:
    """Return the whole request, ready to be sent any number of times; windows are made while it is sent."""
    return Request(head_of(server, model, message.headers), message.buffers)


def head_of(server: Running, model: str, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of an inference request."""
    return head_at(server.host, model, fields if server.tells_length else [*fields, ("Connection", "close")])


def head_at(host: str, model: str, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of an inference request to any server of a host."""
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", f"Host: {host}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in fields), "", ""]).encode()


class Connection:
    """A connection that is kept, or made anew for each request where the server's answers have no length."""

    def __init__(self, server: Running) -> None:
        """Prepare to talk to a server."""
        self._server = server
        self._socket: socket.socket | None = None

    def timed(self, request: Request, *, status: int = _OK) -> Sample:
        """Send a request and receive the answer; the CPU time is the server's.

        Raises:
            RuntimeError: the answer has another status.
        """
        sock = self._socket or connect(self._server)
        clock = self._server.cpu
        cpu, wall = clock(), time.perf_counter()
        send(sock, request)
        answer = receive(sock)
        wall = time.perf_counter() - wall
        cpu = clock() - cpu
        if answer.status != status:
            msg = f"{self._server.name} answered {answer.status}, not {status}"
            raise RuntimeError(msg)
        self._keep(sock)
        return Sample(wall=wall, cpu=cpu)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _keep(self, sock: socket.socket) -> None:
        if self._server.tells_length:
            self._socket = sock
        else:
            sock.close()


def connect(server: Running) -> socket.socket:
    """Open a connection."""
    sock = socket.create_connection((server.host, server.port), _TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if server.context is None else server.context.wrap_socket(sock, server_hostname=server.host)


def send(sock: socket.socket, request: Request) -> None:
    """Send a request: head and JSON together, the rest as it is."""
    buffers = iter(request.buffers)
    sock.sendall(b"".join((request.head, next(buffers))))
    for buffer in buffers:
        sock.sendall(buffer)


def receive(sock: socket.socket) -> Answer:
    """Receive an answer, to its declared length or to the end of the connection.

    Raises:
        EOFError: it was cut short.
    """
    start = b""
    while b"\r\n\r\n" not in start:
        start += _SCRATCH[: _some(sock)]
    head, _, rest = start.partition(b"\r\n\r\n")
    found = _LENGTH.search(head)
    received = len(rest)
    if found is None:
        while nbytes := sock.recv_into(_SCRATCH):
            received += nbytes
    else:
        while received < int(found[1]):
            received += _some(sock)
    return Answer(int(head.split(b" ", 2)[1]), len(head) + 4 + received)


def check(server: Running) -> None:
    """See that a server's models do what they shall, before anything of it is measured.

    Raises:
        RuntimeError: they do not.
    """
    values = np.arange(16, dtype=np.float32)
    with Client(server.url) as client:
        same = client.infer("identity", {"x": values})["x"]
        count = client.infer("sink", {"x": values})["COUNT"]
    if not np.array_equal(same, values) or count.tolist() != [values.nbytes]:
        msg = f"the models of {server.name} answer {same} and {count}"
        raise RuntimeError(msg)


@contextmanager
def senders(servers: Iterable[Running], model: str, message: EncodedMessage) -> Iterator[dict[str, Variant]]:
    """Yield, by name of the server, the sending of one message to it, over and over, by `CONNECTIONS` in turn."""
    with ExitStack() as stack:
        variants: dict[str, Variant] = {}
        for server in servers:
            connections = cycle([stack.enter_context(closing(Connection(server))) for _ in range(CONNECTIONS)])
            variants[server.name] = partial(_timed_by_next, connections, request_to(server, model, message))
        yield variants


def _timed_by_next(connections: Iterator[Connection], request: Request) -> Sample:
    return next(connections).timed(request)


def _some(sock: socket.socket) -> int:
    nbytes = sock.recv_into(_SCRATCH)
    if not nbytes:
        msg = "the server has closed the connection in the middle of its answer"
        raise EOFError(msg)
    return nbytes
