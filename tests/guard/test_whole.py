"""The short cuts: what they accept, the ordinary way accepts, and both send the same."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from streamcodec import DATATYPES, NEED_DATA, EndOfMessage, MessageError, WindowReceived
from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.mutations import mutation, names
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.client.timeouts import Timeout
from streamcodec.engine.events import NEED_TURN
from streamcodec.guard import GUARD_LIMITS
from streamcodec.guard.crossing import Crossing
from streamcodec.guard.routing import origin_form
from streamcodec.guard.whole import Answer, Answers, Asked, Incoming, Requests, Whole
from streamcodec.http import ClientConnection, ConnectionClosed, RequestHead, ServerConnection
from streamcodec.server import ServerOptions
from streamcodec.testing.chunkings import bytewise
from tests.client.scripted import scripted
from tests.guard.serving import guarding, nobody
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request

HOST, CLIENT = "behind:1", "192.0.2.1"
OK = b"HTTP/1.1 200 OK\r\n"
TARGET = Target(
    authority="x",
    prefix="",
    model="m",
    version=None,
    inputs=tuple(
        Input(name=name, datatype=DATATYPES[datatype], shape=(-1,))
        for name, datatype in (("x", "FP32"), ("s", "BYTES"), ("b", "BOOL"))
    ),
)


def _requests() -> list[bytes]:
    probes = [*(probe for probe in PROBES if not probe.is_heavy), *(mutation(TARGET, name) for name in names(1, 60))]
    found = [infer_request(), infer_request("identity", "X-Forwarded-For: 1.2.3.4", "Accept: *"), GET_LIVE]
    for probe in probes:
        with suppress(NotApplicableError):
            found.append(b"".join(probe.make(TARGET).pieces))
    return [request for request in found if len(request) < 1 << 16]


def _ordinary(data: bytes) -> bytes | None:
    """Return what the ordinary way sends to the server behind; None if it is nothing."""
    connection = ServerConnection(GUARD_LIMITS, paced=True)
    connection.feed(data)
    body = b""
    try:
        request = connection.next_event()
        if not isinstance(request, RequestHead):
            return None
        crossing = Crossing(request, GUARD_LIMITS)
        crossing.open(connection)
        while not isinstance(event := connection.next_event(), EndOfMessage):
            if isinstance(event, WindowReceived):
                body += event.array.tobytes()
            elif event is NEED_TURN:
                connection.work()
            elif event is NEED_DATA:
                return None
    except MessageError:
        return None
    body = crossing.beginning + body
    fields = crossing.fields(HOST, CLIENT)
    sent = ClientConnection().send_request(
        request.method, origin_form(request.target, "/v"), fields, [body] if body else []
    )
    return b"".join(bytes(part) for part in sent)


@pytest.mark.slow
def test_what_is_whole_is_what_the_ordinary_way_accepts_and_sends() -> None:
    requests = Requests(GUARD_LIMITS, HOST, "/v")
    count = 0
    for data in _requests():
        for _ in range(2):  # the second time it is known
            found = requests.find(data, CLIENT)
            if isinstance(found, Whole):
                count += 1
                assert found.outgoing == _ordinary(found.text + found.beginning)
            elif data.startswith(b"POST /v2/models/identity/infer"):
                assert _ordinary(data) is None
    assert count > 60


def test_requests_in_pieces() -> None:
    data = infer_request()
    requests = Requests(GUARD_LIMITS, HOST, "")
    incoming = Incoming(connection := ServerConnection(GUARD_LIMITS), requests, CLIENT)
    connection.feed(data + data)
    for _ in range(2):
        found = incoming.next_event()
        assert isinstance(found, Whole)
        assert (found.text + found.beginning, found.has_header, found.rest_bytes) == (data, True, 0)
        connection.send_response(200)
    assert incoming.next_event() is NEED_DATA
    connection.feed(data[:-1])
    assert incoming.next_event() is NEED_DATA
    assert incoming.awaits_rest
    connection.feed(data[-1:])
    assert isinstance(incoming.next_event(), Whole)
    connection.send_response(200)
    for piece in bytewise(data)[:-1]:  # the ordinary way, after one more read
        connection.feed(piece)
        if isinstance(event := incoming.next_event(), RequestHead):
            break
        assert event is NEED_DATA
    assert not incoming.awaits_rest


@pytest.mark.parametrize(
    "request_",
    [
        infer_request().replace(b"HTTP/1.1", b"HTTP/1.0"),
        infer_request("identity", "Expect: 100-continue"),
        infer_request("identity", "Connection: close"),
        infer_request(count=1 << 15),
        head("/v2/models/m/infer", "Content-Length: 8", "Inference-Header-Content-Length: 0") + bytes(8),
        head("/v2/repository/index", "Content-Length: 2") + b"{}",
        head("/v2//models/m/infer", "Content-Length: 2") + b"{}",
        head("/v2/models/m/infer", "Content-Length: 6000") + b'{"inputs":[]}' + 5987 * b" ",
    ],
)
def test_requests_that_are_not_short_cut(request_: bytes) -> None:
    assert Requests(GUARD_LIMITS, HOST, "").find(request_, CLIENT) is None


SHORT = OK + b"Content-Length: 3\r\nKeep-Alive: timeout=5\r\nX: y\r\n\r\nabc"


def test_short_answers() -> None:
    answers = Answers(GUARD_LIMITS)
    for _ in range(2):
        found = answers.find(SHORT)
        assert isinstance(found, Answer)
        assert (found.status, found.fields, found.body) == (200, [("content-length", "3"), ("x", "y")], b"abc")
        assert answers.find(SHORT[:-1]) is NEED_DATA
        assert answers.find(SHORT + b"x") is None
    assert answers.find(b"") is NEED_DATA
    assert answers.find(SHORT[:20]) is None


OTHERS = [
    OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    OK + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 100 Continue\r\n\r\n" + SHORT,
    OK + b"Content-Length: 70000\r\n\r\n" + 70_000 * b"x",
    b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    OK + b"\r\nabc",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    OK + b"X: \xe4\r\nContent-Length: 3\r\n\r\nabc",
]
BROKEN = [b"nonsense\r\n\r\n", OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"]


@pytest.mark.parametrize("answer", [*OTHERS, *BROKEN, OK + b"Padding: " + 70_000 * b"x" + b"\r\n\r\n"])
def test_answers_that_are_not_short_cut(answer: bytes) -> None:
    assert Answers(GUARD_LIMITS).find(answer) is None


def test_an_answer_with_the_end_of_its_connection_goes_the_ordinary_way() -> None:
    http = ClientConnection()
    asked = Asked(http, Answers(GUARD_LIMITS))
    assert asked.next_event() is NEED_DATA
    http.feed(SHORT)
    http.receive_eof()
    assert isinstance(asked.next_event(), ConnectionClosed)
    http.resume("POST", "/", [("Host", "x"), ("Content-Length", "0")])
    assert http.incoming.kept == len(SHORT)


# Between real sockets


def _once(answer: bytes) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(answer)

    return serve


@pytest.mark.parametrize("answer", OTHERS)
def test_whole_requests_get_every_answer(answer: bytes) -> None:
    with scripted([_once(answer)]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(infer_request())
        came = b""
        end = b"x" * 70_000 if b"70000" in answer else b"abc" if b"abc" in answer else b"\r\n\r\n"
        while end not in came:
            came += wire.sock.recv(1 << 16)
        assert came.startswith(b"HTTP/1.1 20")


@pytest.mark.parametrize("answer", BROKEN)
def test_whole_requests_without_an_answer(answer: bytes) -> None:
    with scripted([_once(answer)], [_once(SHORT)]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        assert wire.send(infer_request()).response().status == 502
        assert wire.send(infer_request()).response().status == 200


def test_a_whole_request_to_a_server_that_is_slow() -> None:
    quick = Timeout(connect=1, read=0.05, write=1, pool=1)
    with (
        scripted([0.5]) as server,  # a busy machine may look late
        guarding(server.url, timeout=quick) as guard,
        Wire(guard) as wire,
    ):
        assert wire.send(infer_request()).response().status == 504


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_many_in_all_ways(backend: str) -> None:
    data = infer_request()
    end = data.index(b"\r\n\r\n") + 4
    options = ServerOptions(max_requests_per_connection=9)
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", backend=backend, options=options) as guard,
        Wire(guard) as wire,
    ):
        wire.send(data * 3)
        for _ in range(3):
            assert floats(wire.response()) == [0.0, 1.0, 2.0, 3.0]
        for cut in (end, end + 10, end - 2, 20, len(data) - 1):
            wire.send(data[:cut]).send(data[cut:])
            assert floats(wire.response()) == [0.0, 1.0, 2.0, 3.0]
        answer = wire.send(data).response()
        assert floats(answer) == [0.0, 1.0, 2.0, 3.0]
        assert answer.is_last


def test_a_short_request_whose_rest_does_not_come() -> None:
    options = ServerOptions(read_timeout=0.05)
    with guarding(nobody(), options=options) as guard:
        for end in (30, 230):
            with Wire(guard) as wire:
                assert wire.send(infer_request()[:end]).response().status == 408
