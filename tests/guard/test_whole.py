"""The short cuts: what they accept, the ordinary way accepts, and both send the same."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from streamcodec import DATATYPES, NEED_DATA, EndOfMessage, Limits, MessageError, Tensor, WindowReceived, encode_request
from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.mutations import mutation, names
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.client.timeouts import Timeout
from streamcodec.engine.events import NEED_TURN, NeedData
from streamcodec.engine.record import replaced
from streamcodec.guard import GUARD_LIMITS, upstream, whole
from streamcodec.guard.answers import Answer, Answers, Asked
from streamcodec.guard.crossing import Crossing
from streamcodec.guard.routing import origin_form
from streamcodec.guard.whole import Alone, Incoming, Requests, Whole
from streamcodec.http import ClientConnection, ConnectionClosed, RequestHead, ServerConnection
from streamcodec.server import ServerOptions
from streamcodec.server.express import plain_head
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


def _find(requests: Requests, data: bytes) -> Whole | NeedData | None:
    """Recognize a request among bytes that have come, and receive its rest, as far as it has come, too."""
    connection = ServerConnection(GUARD_LIMITS, paced=True)
    taken = connection.feed(data)
    found = requests.find(connection.incoming, CLIENT)
    if isinstance(found, Whole) and found.missing:
        come = data[taken:][: len(found.missing)]
        found.missing[: len(come)] = come
        if len(come) < len(found.missing):
            return NEED_DATA
        try:
            assert [*found.check()]
        except MessageError:
            return None
    return found


def _fields(sent: bytes | None) -> tuple[bytes, list[bytes], bytes]:
    """Return the first line of a request, its fields without their order, and its body."""
    assert sent is not None
    text, _, body = sent.partition(b"\r\n\r\n")
    line, *fields = text.split(b"\r\n")
    parts = (field.partition(b":") for field in fields)
    return line, sorted(name.lower() + value for name, _, value in parts), body


@pytest.mark.slow
def test_what_is_whole_is_what_the_ordinary_way_accepts_and_sends() -> None:
    requests = Requests(GUARD_LIMITS, HOST, "/v")
    count = 0
    for data in _requests():
        for _ in range(2):  # the second time it is known
            found = _find(requests, data)
            if isinstance(found, Whole):
                count += 1
                assert _fields(b"".join(found.outgoing)) == _fields(_ordinary(found.text + found.beginning))
            elif data.startswith(b"POST /v2/models/identity/infer"):
                assert _ordinary(data) is None
            alone = requests.find_alone(data, CLIENT)
            assert isinstance(alone, Alone) == (isinstance(found, Whole) and found.text + found.beginning == data)
            if isinstance(alone, Alone):
                assert isinstance(found, Whole)
                assert (alone.head, alone.text, b"".join(alone.outgoing)) == (
                    found.head,
                    found.text,
                    b"".join(found.outgoing),
                )
                assert not any(isinstance(requests.find_alone(data[:end], CLIENT), Alone) for end in range(len(data)))
                assert requests.find_alone(data + b"x", CLIENT) is None
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
    begun = data.index(b"}]}") + 2  # within the JSON header
    connection.feed(data[:begun])
    assert incoming.next_event() is NEED_DATA
    assert incoming.awaits_rest
    connection.feed(data[begun:-1])
    assert isinstance(found := incoming.next_event(), Whole)
    assert incoming.next_event() is NEED_DATA
    connection.feed(data[-1:])
    assert isinstance(incoming.next_event(), EndOfMessage)
    assert [*found.check()]
    assert found.text + found.beginning == data
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
        infer_request(count=1 << 17),
        head("/v2/models/m/infer", "Content-Length: 8", "Inference-Header-Content-Length: 0") + bytes(8),
        head("/v2/repository/index", "Content-Length: 2") + b"{}",
        head("/v2//models/m/infer", "Content-Length: 2") + b"{}",
        head("/v2/models/m/infer", "Content-Length: 6000") + b'{"inputs":[]}' + 5987 * b" ",
    ],
)
def test_requests_that_are_not_short_cut(request_: bytes) -> None:
    assert _find(Requests(GUARD_LIMITS, HOST, ""), request_) is None


SHORT = OK + b"Content-Length: 3\r\nKeep-Alive: timeout=5\r\nX: y\r\n\r\nabc"
LONG = SHORT.replace(b"3", b"70000", 1).replace(b"abc", 70_000 * b"x")


def _event(
    asked: Asked, http: ClientConnection, came: bytes, *, ends: bool = False
) -> Answer | ConnectionClosed | NeedData:
    """Return what is said of an answer of which some bytes have come, and perhaps the end of the connection."""
    rest = memoryview(came)
    while (event := asked.next_event()) is NEED_DATA and rest:
        rest = rest[http.feed(rest) :]
    if event is NEED_DATA and ends:
        http.receive_eof()
        return asked.next_event()
    return event


def test_short_answers() -> None:
    answers = Answers(GUARD_LIMITS)
    assert answers.find_alone(SHORT) is None  # the first time, it goes through a connection
    for answer in (SHORT, SHORT, LONG):
        body = answer.partition(b"\r\n\r\n")[2]
        http = ClientConnection(GUARD_LIMITS)
        found = _event(Asked(http, answers), http, answer)
        assert isinstance(found, Answer)
        length = str(len(body))
        assert (found.status, found.fields) == (200, [("content-length", length), ("x", "y")])
        assert bytes(found.body) == body
        assert bytes(found.head) == OK + b"content-length: %b\r\nx: y\r\n\r\n" % length.encode()
        alone = answers.find_alone(answer)
        assert isinstance(alone, Answer)
        assert (alone.status, alone.fields, alone.body) == (200, found.fields, found.body)
        assert (
            answers.find_alone(answer[:-1])
            is answers.find_alone(answer[:20])
            is answers.find_alone(answer + b"x")
            is None
        )
        assert http.is_reusable
        asked = Asked(http, answers)
        assert _event(asked, http, answer[:-1]) is NEED_DATA
        assert isinstance(_event(asked, http, answer[-1:]), Answer)
        with pytest.raises(MessageError):
            _event(Asked(http, answers), http, answer[:-1], ends=True)
    http = ClientConnection(GUARD_LIMITS)
    assert _event(Asked(http, answers), http, b"") is NEED_DATA
    assert isinstance(_event(Asked(http, answers), http, SHORT + b"x"), ConnectionClosed)


OTHERS = [
    OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    OK + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 100 Continue\r\n\r\n" + SHORT,
    OK + b"Content-Length: 300000\r\n\r\n" + 300_000 * b"x",
    b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    OK + b"\r\nabc",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    OK + b"X: \xe4\r\nContent-Length: 3\r\n\r\nabc",
]
BROKEN = [b"nonsense\r\n\r\n", OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"]


@pytest.mark.parametrize("answer", [*OTHERS, *BROKEN, OK + b"Padding: " + 70_000 * b"x" + b"\r\n\r\n"])
def test_answers_that_are_not_short_cut(answer: bytes) -> None:
    http = ClientConnection(GUARD_LIMITS)
    assert isinstance(_event(Asked(http, Answers(GUARD_LIMITS)), http, answer), ConnectionClosed)


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
    quick = Timeout(connect=1, read=0.05, write=1, pool=1)
    with (
        scripted([0.5]) as server,  # a busy machine may look late
        guarding(server.url, timeout=quick) as guard,
        Wire(guard) as wire,
    ):
        assert wire.send(infer_request()).response().status == 504


def test_fields_that_change_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[bytes] = []

    def counted(text: bytes, limits: Limits) -> RequestHead | None:
        learned.append(text)
        return plain_head(text, limits)

    monkeypatch.setattr(whole, "plain_head", counted)
    requests = Requests(GUARD_LIMITS, HOST, "/v")
    for number in range(3):
        data = infer_request("identity", f"Id: {number}", "traceparent: 00-a-b")
        for _ in range(2):
            found = _find(requests, data)
            assert isinstance(found, Whole)
            assert _fields(b"".join(found.outgoing)) == _fields(_ordinary(data))
    assert len(learned) == 1
    for fields in (["Id:1", "id: 2"], ["Keep-Alive: 5", "X-Forwarded-For: 192.0.2.7"]):  # looked up as they are
        found = _find(requests, data := infer_request("identity", *fields))
        assert isinstance(found, Whole)
        assert b"".join(found.outgoing) == _ordinary(data)
    assert len(learned) == 3
    many = [f"X-{number}: y" for number in range(GUARD_LIMITS.max_head_fields)]
    assert _find(requests, infer_request("identity", *many)) is None
    small = Requests(replaced(GUARD_LIMITS, max_head_bytes=300), HOST, "")
    assert _find(small, infer_request("identity", "Id: " + "x" * 200)) is None


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


@pytest.mark.parametrize("most", [0, 100, 1000])
def test_a_server_that_takes_a_request_slowly(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    def little(sock: socket.socket, buffers: list[memoryview]) -> int:
        if not most:
            raise BlockingIOError
        return sock.send(b"".join(buffers)[:most])

    monkeypatch.setattr(upstream, "send_some", little)
    values = np.arange(1000, dtype=np.float32).tolist()
    with server_here(models()) as (_, (host, port)), guarding(f"http://{host}:{port}") as guard, Wire(guard) as wire:
        for _ in range(2):
            assert floats(wire.send(infer_request(count=1000)).response()) == values
