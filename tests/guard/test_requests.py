"""What a relay recognizes: the ordinary way accepts it, too, and both send the same."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from random import Random

import numpy as np
import pytest

from streamcodec import DATATYPES, NEED_DATA, EndOfMessage, MessageError, Tensor, WindowReceived, encode_request
from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.mutations import mutation, names
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.events import NEED_TURN
from streamcodec.engine.record import replaced
from streamcodec.guard import GUARD_LIMITS
from streamcodec.guard.relaying.requests import PlainAnswer, PlainAnswers, PlainRequest, PlainRequests
from streamcodec.guard.rules.crossing import Crossing
from streamcodec.guard.rules.fields import response_fields
from streamcodec.guard.rules.gate import Gate
from streamcodec.http import ClientConnection, RequestHead, ResponseHead, ServerConnection
from streamcodec.server import ServerOptions
from tests.client.scripted import hung_up, scripted
from tests.guard.serving import guarding, nobody
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request, post

HOST, CLIENT = "behind:1", "192.0.2.1"
GATE = Gate("/v")
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
        crossing = Crossing(request, GATE.judge(request), GUARD_LIMITS)
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
    sent = ClientConnection().send_request(request.method, crossing.permit.target, fields, [body] if body else [])
    return b"".join(bytes(part) for part in sent)


def _sent(requests: PlainRequests, data: bytes) -> bytes | None:
    """Return what a relay sends to the server behind for a request that has come whole; None if it sends nothing."""
    found = requests.find(data, CLIENT)
    if not isinstance(found, PlainRequest) or found.size != len(data):
        return None
    body = data[len(found.text) :]
    try:
        if found.check is not None:
            found.check(memoryview(body)[found.known.header_length :])
    except MessageError:
        return None
    return found.known.outgoing + body


@pytest.mark.slow
def test_what_is_passed_on_is_what_the_ordinary_way_accepts_and_sends() -> None:
    requests = PlainRequests(GUARD_LIMITS, HOST, GATE)
    count = 0
    for data in _requests():
        for _ in range(2):  # the second time it is known
            sent = _sent(requests, data)
            if sent is not None:
                count += 1
                assert sent == _ordinary(data)
            elif data.startswith(b"POST /v2/models/identity/infer"):
                assert _ordinary(data) is None
            if sent is not None:
                assert not any(_sent(requests, data[:end]) for end in range(len(data)))
                assert requests.find(data + b"x", CLIENT) is None
    assert count > 60


def test_requests_in_pieces() -> None:
    data = infer_request()
    requests = PlainRequests(GUARD_LIMITS, HOST, Gate())
    end = data.index(b"\r\n\r\n") + 4
    assert all(requests.find(data[:cut], CLIENT) is None for cut in range(end))
    assert requests.find(data[:end], CLIENT) is NEED_DATA
    found = requests.find(data, CLIENT)
    assert isinstance(found, PlainRequest)
    header = end + found.known.header_length
    assert all(requests.find(data[:cut], CLIENT) is None for cut in range(end + 1, header))
    for cut in range(header, len(data) + 1):
        found = requests.find(data[:cut], CLIENT)
        assert isinstance(found, PlainRequest)
        assert (found.text, found.size, found.check) == (data[:end], len(data), None)
    assert requests.find(data + b"x", CLIENT) is None


@pytest.mark.parametrize(
    "request_",
    [
        infer_request().replace(b"HTTP/1.1", b"HTTP/1.0"),
        infer_request("identity", "Expect: 100-continue"),
        infer_request("identity", "Connection: close"),
        post(b"{}"),
        head("/v2/models/m/infer", "Content-Length: 8", "Inference-Header-Content-Length: 0") + bytes(8),
        head("/v2/repository/index", "Content-Length: 2") + b"{}",
        head("/v2//models/m/infer", "Content-Length: 2") + b"{}",
        head("/v2/models/m/infer", "Content-Length: 6000") + b'{"inputs":[]}' + 5987 * b" ",
    ],
)
def test_requests_that_are_not_short_cut(request_: bytes) -> None:
    assert _sent(PlainRequests(GUARD_LIMITS, HOST, Gate()), request_) is None


SHORT = OK + b"Content-Length: 3\r\nKeep-Alive: timeout=5\r\nX: y\r\n\r\nabc"
LONG = SHORT.replace(b"3", b"70000", 1).replace(b"abc", 70_000 * b"x")


def test_plain_answers() -> None:
    for answer in (SHORT, LONG):
        text, end, body = answer.partition(b"\r\n\r\n")
        for come in (answer, text + end, answer + b"x"):
            found = PlainAnswers(GUARD_LIMITS).find(come)
            assert isinstance(found, PlainAnswer)
            assert (found.status, found.text, found.length) == (200, text + end, len(body))
            assert found.outgoing == OK + b"content-length: %d\r\nx: y\r\n\r\n" % len(body)
        assert not any(PlainAnswers(GUARD_LIMITS).find(text[:cut]) for cut in range(len(text)))


@pytest.mark.slow
def test_plain_answers_are_what_h11_reads_and_writes() -> None:
    random = Random(7)  # noqa: S311 - the cases are the same in each run
    lines = [b"HTTP/1.1 200 OK", b"HTTP/1.1 404 ", b"HTTP/1.1 204 No", b"HTTP/1.0 200 OK", b"HTTP/1.1 599 x"]
    usual = [
        b"Content-Length: 3",
        b"content-length: 03",
        b"X: y",
        b"Date: now",
        b"Keep-Alive: 5",
        b"Connection: Keep-Alive",
    ]
    other = [
        b"Connection: close",
        b"Transfer-Encoding: chunked",
        b"Upgrade: x",
        b"TE: x",
        b"Trailer: x",
        b"X: ",
        b" folded",
    ]
    odd = [
        b"x:y",
        b"X: a  b",
        b"X-\xe4: 1",
        b"X: \xe4",
        b"X: a\tb",
        b"X_y: 1",
        b"Content-Length: 3, 3",
        b"Content-Length: +3",
    ]
    pieces = [*usual, *other, *odd]
    count = 0
    for _ in range(20_000):
        text = b"\r\n".join([random.choice(lines), *random.sample(pieces, random.randrange(4)), b"", b""])
        if (found := PlainAnswers(GUARD_LIMITS).find(text)) is None:
            continue
        count += 1
        http, server = ClientConnection(GUARD_LIMITS), ServerConnection(GUARD_LIMITS)
        http.send_request("POST", "/", [("Host", "x"), ("Content-Length", "0")])
        http.feed(text)
        head = http.next_event()
        assert isinstance(head, ResponseHead)
        assert (head.status, head.content_length) == (found.status, found.length)
        server.feed(GET_LIVE)
        server.next_event()
        assert server.begin_response(head.status, response_fields(head, is_last=False)) == found.outgoing
    assert count > 200


OTHERS = [
    OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    OK + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 100 Continue\r\n\r\n" + SHORT,
    b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    OK + b"\r\nabc",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    OK + b"Upgrade: x\r\nContent-Length: 3\r\n\r\nabc",
]
LATIN = OK + b"X: \xe4\r\nContent-Length: 3\r\n\r\nabc"
BROKEN = [b"nonsense\r\n\r\n", OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"]


@pytest.mark.parametrize("answer", [*OTHERS, *BROKEN, OK + b"Padding: " + 70_000 * b"x" + b"\r\n\r\n"])
def test_answers_that_are_not_plain(answer: bytes) -> None:
    assert PlainAnswers(GUARD_LIMITS).find(answer) is None


def test_limits_of_answers() -> None:
    assert PlainAnswers(replaced(GUARD_LIMITS, max_head_fields=3)).find(SHORT) is not None
    assert PlainAnswers(replaced(GUARD_LIMITS, max_head_fields=2)).find(SHORT) is None
    assert PlainAnswers(replaced(GUARD_LIMITS, max_head_bytes=60)).find(SHORT) is None


# Between real sockets


def _once(answer: bytes) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(answer)

    return serve


@pytest.mark.parametrize("answer", [*OTHERS, LATIN])
def test_whole_requests_get_every_answer(answer: bytes) -> None:
    with scripted([_once(answer)]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(infer_request())
        came = b""
        end = b"x" * 300_000 if b"300000" in answer else b"abc" if b"abc" in answer else b"\r\n\r\n"
        while end not in came:
            came += wire.sock.recv(1 << 16)
        assert came.startswith(b"HTTP/1.1 20")


@pytest.mark.parametrize("answer", BROKEN)
def test_whole_requests_without_an_answer(answer: bytes) -> None:
    with scripted([_once(answer)], [_once(SHORT)]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        assert wire.send(infer_request()).response().status == 502
        assert wire.send(infer_request()).response().status == 200


def test_a_whole_request_to_a_server_that_is_slow() -> None:
    quick = Timeout(connect=60, read=0.05, write=60, pool=60)
    with (
        scripted([hung_up]) as server,
        guarding(server.url, timeout=quick) as guard,
        Wire(guard) as wire,
    ):
        assert wire.send(infer_request()).response().status == 504


def test_fields_are_passed_on() -> None:
    requests = PlainRequests(GUARD_LIMITS, HOST, GATE)
    for fields in (
        ["Id: 1", "traceparent: 00-a-b"],
        ["Id:1", "id: 2"],
        ["Keep-Alive: 5", "X-Forwarded-For: 192.0.2.7"],
    ):
        for _ in range(2):
            data = infer_request("identity", *fields)
            assert _sent(requests, data) == _ordinary(data)
    many = [f"X-{number}: y" for number in range(GUARD_LIMITS.max_head_fields)]
    assert _sent(requests, infer_request("identity", *many)) is None
    small = PlainRequests(replaced(GUARD_LIMITS, max_head_bytes=300), HOST, Gate())
    assert _sent(small, infer_request("identity", "Id: " + "x" * 200)) is None


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("count", [4, 1 << 14, 1 << 16])
def test_many_in_all_ways(backend: str, count: int) -> None:
    data = infer_request(count=count)
    end = data.index(b"\r\n\r\n") + 4
    values = np.arange(count, dtype=np.float32).tolist()
    options = ServerOptions(max_requests_per_connection=9)
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", backend=backend, options=options) as guard,
        Wire(guard) as wire,
    ):
        wire.send(data * 3)
        for _ in range(3):
            assert floats(wire.response()) == values
        for cut in (end, end + 10, end - 2, 20, len(data) - 1):
            wire.send(data[:cut]).send(data[cut:])
            assert floats(wire.response()) == values
        answer = wire.send(data).response()
        assert floats(answer) == values
        assert answer.is_last


def test_a_short_request_whose_rest_does_not_come() -> None:
    options = ServerOptions(read_timeout=0.05)
    with guarding(nobody(), options=options) as guard:
        data = infer_request()
        for end in (30, data.index(b"{") + 9, len(data) - 1):
            with Wire(guard) as wire:
                assert wire.send(data[:end]).response().status == 408


def _booleans(count: int, last: int) -> bytes:
    message = encode_request([Tensor(name="x", array=np.ones(count, bool))])
    fields = [f"{name}: {value}" for name, value in message.headers]
    request = bytearray(b"".join((head("/v2/models/identity/infer", *fields), *message.buffers)))
    request[-1] = last
    return bytes(request)


def test_long_requests_are_checked_before_anything_is_sent() -> None:
    wrong = _booleans(200_000, 2)
    with guarding(nobody()) as guard, Wire(guard) as wire:
        for cut in (2_000, 100_000, 199_999):
            answer = wire.send(wrong[:cut]).send(wrong[cut:]).response()
            assert (answer.status, b"BOOL" in answer.body) == (400, True)
        assert wire.send(_booleans(200_000, 1)).response().status == 502
    with guarding(nobody()) as guard, Wire(guard) as wire:
        wire.send(wrong[:100_000])
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.response().status == 400
