"""What observers of the guard are told, as for the access log."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from streamcodec.engine.errors import ErrorCode
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.service import Ending, RequestRecord
from streamcodec.service.observing import Observer
from streamcodec.service.replies import Reply
from tests.client.scripted import scripted
from tests.guard.serving import guarding, nobody
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request, post
from tests.waiting import until


class Records(Observer):
    def __init__(self) -> None:
        self.ended: list[RequestRecord] = []

    def request_ended(self, request: RequestRecord) -> None:
        self.ended.append(request)


def test_each_request_has_a_record() -> None:
    records, whole = Records(), infer_request()
    slow = infer_request("identity", "Connection: keep-alive, x")  # not plain
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", observer=records) as guard,
        Wire(guard) as wire,
    ):
        sizes = []
        for request in (whole, slow):
            answer = wire.send(request).response()
            assert floats(answer) == [0.0, 1.0, 2.0, 3.0]
            sizes.append(len(answer.body))
        wire.send(GET_LIVE).response()
        assert wire.send(post(b"{}")).response().status == 400
        assert wire.send(b"x\r\n\r\n").response().status == 400
    first, second, live, refused, nonsense = records.ended
    assert [record.status for record in records.ended] == [200, 200, 200, 400, 400]
    assert [record.model for record in records.ended] == ["identity", "identity", None, "identity", None]
    assert [record.bytes_in for record in records.ended[:4]] == [
        len(request) for request in (whole, slow, GET_LIVE, post(b"{}"))
    ]
    assert first.bytes_out > sizes[0]
    assert 0 < second.model_seconds < second.seconds
    assert first.client.startswith("127.0.0.1:")
    assert (live.target, live.method) == ("/v2/health/live", "GET")
    assert refused.code is ErrorCode.MISSING_MEMBER
    assert nonsense.code is ErrorCode.INVALID_HTTP
    assert {record.ending for record in records.ended} == {Ending.COMPLETE}


def test_each_record_has_the_head_of_its_own_request() -> None:
    records = Records()
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", observer=records) as guard,
        Wire(guard) as wire,
    ):
        for number in range(3):
            wire.send(infer_request("identity", f"traceparent: 00-{number}")).response()
    assert len(records.ended) == 3
    for number, record in enumerate(records.ended):
        assert record.head is not None
        assert record.field(b"traceparent") == record.head.fields.values(b"traceparent") == [b"00-%d" % number]


def test_answers_that_break_off_have_records() -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\nabc")

    records = Records()
    with scripted([answer]) as server, guarding(server.url, observer=[records]) as guard, Wire(guard) as wire:
        wire.send(GET_LIVE)
        while wire.sock.recv(1 << 16):
            pass
    assert [(record.status, record.ending) for record in records.ended] == [(200, Ending.CUT)]


def test_a_client_that_leaves_within_its_request_has_a_record() -> None:
    records = Records()
    with guarding(nobody(), observer=records) as guard, Wire(guard) as wire:
        wire.send(head("/v2/models/m/infer", "Content-Length: 9"))
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.response().status == 400
    assert [(record.status, record.ending) for record in records.ended] == [(400, Ending.COMPLETE)]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("cut", [20, -5], ids=["head", "body"])
def test_a_record_begins_with_the_first_bytes(backend: str, cut: int) -> None:
    records, request = Records(), infer_request()
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", observer=records, backend=backend) as guard,
        Wire(guard) as wire,
    ):
        wire.send(GET_LIVE).response()
        for _ in range(2):
            wire.send(request[:cut])
            time.sleep(0.1)
            assert wire.send(request[cut:]).response().status == 200
    assert [record.bytes_in for record in records.ended] == [len(GET_LIVE), len(request), len(request)]
    assert all(record.seconds >= 0.05 for record in records.ended[1:])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_head_that_never_ends_has_a_record_and_an_empty_line_has_none(backend: str) -> None:
    records = Records()
    with guarding(nobody(), observer=records, backend=backend) as guard:
        for data in (b"\r\n", GET_LIVE[:20]):
            with Wire(guard) as wire:
                wire.send(data).sock.shutdown(socket.SHUT_WR)
                while wire.sock.recv(1 << 16):
                    pass
        with Wire(guard) as wire:
            wire.send(GET_LIVE[:20])
            time.sleep(0.05)
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        until(lambda: len(records.ended) == 2)
    assert [(record.status, record.bytes_in, record.ending) for record in records.ended] == [
        (400, 20, Ending.COMPLETE),
        (None, 20, Ending.CLIENT_LEFT),
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("nbytes", [0, 9, -5], ids=["head", "header", "tensor"])
def test_the_record_of_a_client_that_resets_has_its_head(backend: str, nbytes: int) -> None:
    records, request = Records(), infer_request()
    body = request.index(b"\r\n\r\n") + 4
    with guarding(nobody(), observer=records, backend=backend) as guard, Wire(guard) as wire:
        wire.send(request[:body] + request[body:][:nbytes])
        time.sleep(0.05)
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.sock.close()
        until(lambda: len(records.ended) == 1)
    (record,) = records.ended
    assert (record.method, record.ending) == ("POST", Ending.CLIENT_LEFT)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("between", ["body", "line"])
def test_a_record_does_not_begin_between_two_requests(backend: str, between: str) -> None:
    """What is left of a refused request, and an empty line, are no part of the next one."""
    records = Records()
    with guarding(nobody(), observer=records, backend=backend) as guard, Wire(guard) as wire:
        wire.send(head("/nothing", "Content-Length: 9"))
        assert wire.response().status == 404
        wire.send(bytes(9))
        if between == "line":
            wire.send(b"\r\n")
        time.sleep(0.3)
        began = time.time()
        assert wire.send(head("/nothing", method="GET")).response().status == 404
    assert records.ended[1].started >= began - 0.2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_connection_that_others_need_within_its_head_has_a_record(backend: str) -> None:
    records, request = Records(), head("/metrics", method="GET")
    page = Reply(status=200, headers=(), buffers=(b"counted",), body_length=7)
    with (
        guarding(
            nobody(),
            observer=records,
            backend=backend,
            options=ServerOptions(max_connections=1),
            pages={"/metrics": lambda: page},
        ) as guard,
        Wire(guard) as first,
        Wire(guard) as second,
    ):
        assert first.send(request).response().status == 200
        first.send(request[:20])
        time.sleep(0.05)
        assert second.send(request).response().status == 200
        assert first.sock.recv(1) == b""
        until(lambda: len(records.ended) == 3)
    assert sorted((record.status or 0, record.ending) for record in records.ended) == [
        (0, Ending.ABANDONED),
        (200, Ending.COMPLETE),
        (200, Ending.COMPLETE),
    ]


def test_a_client_without_a_place_has_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "enter", lambda *_: False)
    records = Records()
    with guarding(nobody(), observer=records) as guard, Wire(guard) as wire:
        assert wire.response().status == 503
    (record,) = records.ended
    assert (record.status, record.head) == (503, None)


def test_pages_of_the_guard_are_not_passed_on() -> None:
    page = Reply(status=200, headers=(("Content-Type", "text/plain"),), buffers=(b"counted",), body_length=7)
    with guarding(nobody(), pages={"/metrics": lambda: page}) as guard, Wire(guard) as wire:
        for path in ("/metrics", "/metrics", "/metrics?x", "/%6detrics"):
            answer = wire.send(head(path, method="GET")).response()
            assert (answer.status, answer.body) == (200, b"counted")
        assert wire.send(head("/metrics", "Content-Length: 0")).response().status == 403
