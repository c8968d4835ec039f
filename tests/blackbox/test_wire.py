"""The wire: what an exchange makes of all that a server can do, and how requests are paced."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from streamcodec.blackbox.messages import AfterSending, RawRequest
from streamcodec.blackbox.wire import OutOfRequestsError, Pacer, Wire, WireOutcome, WireResult
from streamcodec.server import open_unix_listener
from tests.client.scripted import Step, hung_up, response, scripted
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE

TIMEOUT = 60.0
QUESTION = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"


def _pacer() -> Pacer:
    return Pacer(max_requests=100, max_rate=1e6)


def _ask(*steps: Step, request: RawRequest | None = None, timeout: float = TIMEOUT) -> WireResult:
    with scripted(steps) as server:
        port = int(server.url.rpartition(":")[2])
        wire = Wire(address=("127.0.0.1", port), pacer=_pacer())
        return wire.exchange(request or RawRequest(pieces=(QUESTION,)), timeout)


def test_answer() -> None:
    seen = _ask(response(b"hello", "X: 1", "x: 2", status="404 x"))
    assert (seen.outcome, seen.detail) == (WireOutcome.ANSWERED, "")
    (answer,) = seen.answers
    assert (answer.status, answer.body, answer.values(b"x")) == (404, b"hello", [b"1", b"2"])


def test_answer_over_a_unix_socket(tmp_path: Path) -> None:
    with server_here(models(), listener=open_unix_listener(tmp_path / "s")):
        wire = Wire(address=str(tmp_path / "s"), pacer=_pacer())
        assert wire.exchange(RawRequest(pieces=(GET_LIVE,)), TIMEOUT).answers[0].status == 200
    seen = wire.exchange(RawRequest(pieces=(GET_LIVE,)), TIMEOUT)
    assert (seen.outcome, seen.detail) == (WireOutcome.UNREACHABLE, "No such file or directory")


def test_interim_answers_are_no_answers() -> None:
    (answer,) = _ask(b"HTTP/1.1 100 Continue\r\n\r\n" + response(b"")).answers
    assert answer.status == 200


def test_answers_in_chunks_and_without_length() -> None:
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    assert _ask(chunks).answers[0].body == b"ab"
    assert _ask(response(b"ab", is_counted=False)).answers[0].body == b"ab"


def test_two_answers_that_come_together() -> None:
    request = RawRequest(pieces=(QUESTION,), answers=2)
    assert [each.body for each in _ask(response(b"1") + response(b"2"), request=request).answers] == [b"1", b"2"]


def test_one_answer_of_two() -> None:
    seen = _ask(response(b"1"), request=RawRequest(pieces=(QUESTION,), answers=2))
    assert (seen.outcome, len(seen.answers)) == (WireOutcome.CLOSED, 1)


def test_no_answer() -> None:
    seen = _ask(b"", hung_up, timeout=0.1)
    assert (seen.outcome, seen.detail, seen.answers) == (WireOutcome.SILENT, "no answer within 0.1 s", ())
    assert _ask(b"").outcome is WireOutcome.CLOSED


def test_answer_in_drops_has_no_more_time_than_another() -> None:
    def drip(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        with suppress(ConnectionError):
            for _ in range(1000):
                sock.sendall(b"a")
                time.sleep(0.01)

    assert _ask(drip, timeout=0.1).outcome is WireOutcome.SILENT


def test_slow_reader_has_no_more_time_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is taken in time, but not all of them."""
    monkeypatch.setattr("streamcodec.blackbox.wire._PIECE_SECONDS", 0)
    pieces = tuple([bytes(1 << 20)] * 60)

    def read(sock: socket.socket) -> None:
        with sock.makefile("rb") as file:
            while len(file.read(1 << 20)) == 1 << 20:
                time.sleep(0.01)
        sock.sendall(response(b"all"))

    seen = _ask(read, request=RawRequest(pieces=pieces, ending=AfterSending.CUTS), timeout=0.2)
    assert (seen.outcome, seen.detail) == (WireOutcome.SILENT, "no answer within 0.2 s")


def test_answer_of_a_server_that_reads_no_more_is_read() -> None:
    def refuse(sock: socket.socket) -> None:
        sock.sendall(response(b"no", status="413 x"))
        assert is_over.wait(60)

    is_over = threading.Event()
    with scripted([refuse]) as server:
        wire = Wire(address=("127.0.0.1", int(server.url.rpartition(":")[2])), pacer=_pacer())
        seen = wire.exchange(RawRequest(pieces=(QUESTION + bytes(16 << 20),)), 0.5)
        is_over.set()
    assert [answer.status for answer in seen.answers] == [413]


def test_answer_without_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamcodec.blackbox.wire._MAX_ANSWER_BYTES", 100)
    assert _ask(response(bytes(100))).outcome is WireOutcome.ANSWERED
    seen = _ask(response(bytes(101)))
    assert (seen.outcome, seen.detail) == (WireOutcome.GARBLED, "the answer is longer than 100 bytes")


@pytest.mark.parametrize("text", [b"220 mail.example ESMTP\r\n\r\n", response(b"abc")[:-1], b"HTTP/1.1 200 OK\r\nx"])
def test_what_is_no_answer(text: bytes) -> None:
    seen = _ask(text)
    assert seen.outcome is WireOutcome.GARBLED
    assert seen.detail


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    seen = Wire(address=address, pacer=_pacer()).exchange(RawRequest(pieces=(QUESTION,)), TIMEOUT)
    assert (seen.outcome, seen.detail) == (WireOutcome.UNREACHABLE, "Connection refused")


def test_pieces_arrive_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamcodec.blackbox.wire._PIECE_SECONDS", 0.5)
    reads: list[bytes] = []

    def read(sock: socket.socket) -> None:
        while b"".join(reads) != QUESTION:
            reads.append(sock.recv(1000))
        sock.sendall(response(b""))

    pieces = (QUESTION[:10], QUESTION[10:])
    assert _ask(read, request=RawRequest(pieces=pieces)).outcome is WireOutcome.ANSWERED
    assert reads == list(pieces)


def test_an_early_answer_ends_the_sending() -> None:
    counts: list[int] = []

    def read(sock: socket.socket) -> None:
        counts.append(len(sock.recv(1000)))
        sock.sendall(response(b"no", status="400 x"))
        sock.shutdown(socket.SHUT_WR)
        while data := sock.recv(1000):
            counts.append(len(data))

    seen = _ask(read, request=RawRequest(pieces=(QUESTION, *[b"x"] * 2000)))
    assert [answer.status for answer in seen.answers] == [400]
    assert sum(counts) < len(QUESTION) + 2000


@pytest.mark.parametrize(("ending", "outcome"), [(AfterSending.CUTS, b""), (AfterSending.RESETS, "reset")])
def test_a_request_that_breaks_off(ending: AfterSending, outcome: bytes | str) -> None:
    ends: list[bytes | str] = []

    def read(sock: socket.socket) -> None:
        time.sleep(0.05)
        try:
            sock.recv(1000)
            ends.append(sock.recv(1000))
        except ConnectionResetError:
            ends.append("reset")

    assert _ask(read, request=RawRequest(pieces=(b"POST",), ending=ending)).outcome is WireOutcome.CLOSED
    assert ends == [outcome]


def test_pacer_keeps_the_rate() -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    pacer = Pacer(max_requests=5, max_rate=4, clock=lambda: now, sleep=sleep)
    times = []
    for _ in range(3):
        pacer.take()
        times.append(now)
    now += 10  # what was not used is not saved up
    for _ in range(2):
        pacer.take()
        times.append(now)
    assert times == [0, 0.25, 0.5, 10.5, 10.75]


def test_pacer_ends() -> None:
    pacer = _pacer()
    for _ in range(100):
        pacer.take()
    with pytest.raises(OutOfRequestsError):
        pacer.take()
    assert pacer.sent == 100
