"""Peers: a small server of the V2 protocol that is right but for one flaw, and what stands around an examination.

It reads requests with `Content-Length` and echoes their tensors. The flaw is a function that is asked first: it sees
the request and what a right server would answer, and says what happens.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from streamcodec import (
    DATATYPES,
    EndOfMessage,
    HeaderReceived,
    RemoteProtocolError,
    Tensor,
    TensorReceived,
    encode_response,
    parse_header_length,
    request_decoder,
)
from streamcodec.blackbox.examination import Examiner, Result
from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.learning import find_baseline
from streamcodec.blackbox.mutations import mutation, names
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.wire import Pacer, Wire

TIMEOUT = 60.0
SHORT = 3.0
"""Seconds, where an answer is not to be expected."""

PLENTY = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request, and the right answer to it."""

    line: bytes
    fields: dict[bytes, bytes]
    body: bytes
    status: int
    answer: bytes
    """The right one, whole."""


@dataclass(slots=True)
class FlawedServer:
    """The server. What a flaw returns is sent, and then the connection is closed; it may also sleep, or raise."""

    flaw: Callable[[FlawedServer, Received], bytes]
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    requests: list[Received] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    def run(self) -> None:
        with ThreadPoolExecutor() as connections:
            while not self.stop.is_set():
                with suppress(OSError):  # the door is closed while somebody waits at it
                    sock, _ = self.listener.accept()
                    connections.submit(self._connection, sock)

    def die(self) -> None:
        """Close the door, with whoever stands before it."""
        self.stop.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _connection(self, sock: socket.socket) -> None:
        with sock, suppress(OSError):
            sock.settimeout(TIMEOUT)
            self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        received = _receive(sock)
        self.requests.append(received)
        sock.sendall(self.flaw(self, received))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass  # so that no reset overtakes the answer


@contextmanager
def flawed(flaw: Callable[[FlawedServer, Received], bytes]) -> Iterator[FlawedServer]:
    """Run a server with a flaw."""
    server = FlawedServer(flaw)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        if not server.stop.is_set():
            server.die()
        thread.join()


def inputs(*described: tuple[str, str, tuple[int, ...]]) -> tuple[Input, ...]:
    return tuple(Input(name=name, datatype=DATATYPES[datatype], shape=shape) for name, datatype, shape in described)


MIXED = inputs(("x", "FP32", (-1,)), ("s", "BYTES", (-1, 2)), ("b", "BOOL", (-1,)), ("n", "INT64", (-1, 1)))


def examiner(
    address: tuple[str, int],
    of: tuple[Input, ...] = MIXED,
    *,
    model: str = "identity",
    is_declared: bool = False,
    max_requests: int = PLENTY,
    timeout: float = TIMEOUT,
    recovery: float = 0.01,
) -> Examiner:
    """Learn what has to be known of a server, as the command does."""
    wire = Wire(address=address, pacer=Pacer(max_requests=max_requests, max_rate=PLENTY))
    target = Target(authority="x", prefix="", model=model, inputs=of, is_declared=is_declared)
    target, baseline = find_baseline(wire, target, timeout)
    return Examiner(wire=wire, target=target, baseline=baseline, timeout=timeout, recovery=recovery)


def named(*chosen: str) -> list[Probe]:
    by_name = {probe.name: probe for probe in PROBES}
    return [by_name[name] for name in chosen]


def mutations(target: Target, seed: int, count: int) -> list[Probe]:
    return [mutation(target, name) for name in names(seed, count)]


def examine(server: FlawedServer, *chosen: str, timeout: float = TIMEOUT, recovery: float = 0.01) -> list[Result]:
    """Run some probes."""
    return list(examiner(server.address, timeout=timeout, recovery=recovery).examine(named(*chosen)))


def response(status: int, body: bytes, *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status} x", *fields, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def _receive(sock: socket.socket) -> Received:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.split(b"\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (each.partition(b":") for each in lines)}
    length = int(fields.get(b"content-length", b"0"))
    while len(body) < length:
        body += _some(sock)
    body = body[:length]  # a second request is not waited for
    status, answer = _answer(line, fields, body)
    return Received(line=line, fields=fields, body=body, status=status, answer=answer)


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 16)
    if not data:
        raise ConnectionAbortedError
    return data


def _answer(line: bytes, fields: dict[bytes, bytes], body: bytes) -> tuple[int, bytes]:
    if line.startswith(b"GET"):
        return 200, response(200, b"{}")
    try:
        header_length = parse_header_length([fields[b"inference-header-content-length"]] if len(fields) > 3 else [])
        return 200, echo(body, header_length)
    except RemoteProtocolError as error:
        return 400, response(400, json.dumps({"error": str(error)}).encode())


def echo(body: bytes, header_length: int | None) -> bytes:
    """Answer a request with its tensors, in binary."""
    decoder = request_decoder(header_length=header_length, body_length=len(body))
    decoder.feed(body)
    decoder.receive_eof()
    tensors, request_id = [], None
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            tensors.append(Tensor(name=event.spec.name, array=event.array))
        elif isinstance(event, HeaderReceived):
            request_id = event.header.id
    message = encode_response(tensors, model_name="identity", request_id=request_id)
    return response(200, b"".join(message.buffers), *(f"{key}: {value}" for key, value in _fields(message.headers)))


def _fields(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((key, value) for key, value in pairs if key.lower() != "content-length")
