"""Retries: a call is made again only where that is safe, from the same buffers, within its time; nothing is doubled."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError, MessageError, RemoteProtocolError, Rows
from streamcodec.client import Client, ServerError, Timeout
from streamcodec.client.connections.timeouts import Times
from streamcodec.client.exchange import ClientExchange
from streamcodec.client.repeating.retries import LONGEST_PAUSE, Retries
from streamcodec.engine.limits import DEFAULT_LIMITS
from streamcodec.transports.timelimit import TimeLimit
from tests.client.answers.test_answers import GOOD, INPUTS, VALUES
from tests.client.counting import BUSY, answers, counting
from tests.client.drivers import KINDS, Driver, Kind
from tests.client.scripted import response
from tests.server.wire import TIMEOUT

DOCUMENT = response(b'{"name":"s"}')
CUT = GOOD[:-1]
LATER = response(b'{"error":"busy"}', "Retry-After: 3", status="503 Service Unavailable")
UNWILLING = response(b'{"error":"no"}', status="503 Service Unavailable")
DATED = response(b"", "Retry-After: Fri, 27 Nov 2026 07:00:00 GMT", status="503 Service Unavailable")
RAW = {"model": "m", "tensor": np.zeros(3, np.float32)}


@KINDS
def test_a_busy_server_gets_the_same_bytes_again(kind: Kind) -> None:
    with counting(answers(BUSY, BUSY.replace(b"503", b"429"), GOOD)) as server, kind.client(server.url) as client:
        assert np.array_equal(client.infer("m", INPUTS, retries=2)["y"], VALUES)
        assert len(set(server.requests)) == 1
        assert len(server.requests) == 3


@KINDS
def test_a_lost_answer_is_asked_for_again_only_if_that_does_no_harm(kind: Kind) -> None:
    for end in (b"", None):
        calls: dict[str, tuple[Callable[[Driver], Any], int]] = {
            "POST": (lambda client: client.infer("m", INPUTS), 1),
            "raw POST": (lambda client: client.call("infer_raw", **RAW), 1),
            "idempotent POST": (lambda client: client.infer("m", INPUTS, idempotent=True), 3),
            "idempotent raw POST": (lambda client: client.call("infer_raw", **RAW, idempotent=True), 3),
            "GET": (lambda client: client.call("server_metadata"), 3),
            "health": (lambda client: client.call("is_server_live"), 1),
        }
        for name, (call, count) in calls.items():
            with counting(answers(end)) as server, kind.client(server.url, retries=2) as client:
                with pytest.raises((OSError, RemoteProtocolError)) as caught:
                    call(client)
                assert len(server.requests) == count, name
                expected = ["3 attempts were made"] if count > 1 else []
                assert getattr(caught.value, "__notes__", []) == expected, name


@KINDS
def test_after_the_first_byte_of_an_answer_nothing_is_sent_again(kind: Kind) -> None:
    for answer in (CUT, b"H", UNWILLING, DATED, response(b"", status="502 Bad Gateway")):
        with counting(answers(answer)) as server, kind.client(server.url, retries=3) as client:
            with pytest.raises((OSError, MessageError)):
                client.infer("m", INPUTS, idempotent=True)
            assert len(server.requests) == 1


@KINDS
def test_a_stalled_server_is_asked_again(kind: Kind) -> None:
    def stall_first(number: int, sock: socket.socket) -> None:
        if number == 0:
            assert not sock.recv(1)  # the client goes
        else:
            sock.sendall(GOOD)

    with counting(stall_first) as server, kind.client(server.url, timeout=Timeout(read=1)) as client:
        assert client.infer("m", INPUTS, retries=1, idempotent=True)["y"] is not None
        assert len(server.requests) == 2


@KINDS
def test_a_server_that_is_not_there_yet(kind: Kind) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))

        def come() -> None:
            time.sleep(0.2)
            listener.listen()
            listener.settimeout(TIMEOUT)
            sock, _ = listener.accept()
            with sock:
                sock.recv(1 << 16)
                sock.sendall(GOOD)

        thread = threading.Thread(target=come)
        thread.start()
        with kind.client(f"http://127.0.0.1:{listener.getsockname()[1]}", retries=10) as client:
            assert client.infer("m", INPUTS)["y"] is not None
        thread.join()


@KINDS
def test_a_kept_connection_that_has_died_is_no_attempt(kind: Kind) -> None:
    """A request that found a dead connection was not run; so the refusal of the new one may be followed by another."""

    def handle(number: int, sock: socket.socket) -> None:
        sock.sendall(GOOD if number != 1 else BUSY)

    with counting(handle) as server, kind.client(server.url) as client:
        for count in (1, 3):
            client.infer("m", INPUTS, retries=1, idempotent=True)
            assert len(server.requests) == count


@KINDS
def test_pauses_count_for_the_time_of_the_call(kind: Kind) -> None:
    with counting(answers(LATER)) as server, kind.client(server.url, retries=9) as client:
        for options in ({"total_timeout": 2.5}, {"timeout": 2.5}):
            with pytest.raises(ServerError, match="busy"):
                client.infer("m", INPUTS, **options)
        assert len(server.requests) == 2
    with counting(answers(BUSY)) as server, kind.client(server.url, retries=99) as client:
        with pytest.raises(ServerError, match="busy") as caught:
            client.infer("m", INPUTS, total_timeout=2)
        assert 1 < len(server.requests) < 9
        assert caught.value.__notes__ == [f"{len(server.requests)} attempts were made"]


@KINDS
def test_windows_that_can_be_made_only_once(kind: Kind) -> None:
    for windows, count in ((iter([VALUES]), 1), ([VALUES], 3)):
        with counting(answers(BUSY)) as server, kind.client(server.url, retries=2) as client:
            with pytest.raises(ServerError):
                client.infer("m", {"x": Rows("FP32", VALUES.shape, windows)})
            assert len(server.requests) == count


def test_health_is_told_as_it_is() -> None:
    with counting(answers(BUSY)) as server, Client(server.url, retries=3) as client:
        assert not client.is_server_ready()
        assert len(server.requests) == 1
        with pytest.raises(ServerError):
            client.server_metadata()
        assert len(server.requests) == 5


def test_pauses_double_and_differ() -> None:
    exchange = ClientExchange("GET", "/", [("Host", "x")], None, DEFAULT_LIMITS)
    times = Times(timeout=Timeout(), limit=TimeLimit(None))
    rule = Retries(most=2000)
    for failures, longest in ((1, 0.1), (2, 0.2), (5, 1.6), (8, LONGEST_PAUSE), (2000, LONGEST_PAUSE)):
        pauses = [rule.pause(exchange, ConnectionResetError(), failures, times) for _ in range(20)]
        assert all(pause is not None and longest / 2 <= pause <= longest for pause in pauses)
        assert len(set(pauses)) > 1
    assert rule.pause(exchange, ConnectionResetError(), 2001, times) is None


@KINDS
def test_arguments_that_mean_nothing(kind: Kind) -> None:
    for retries in (-1, 1.5, True, "2"):
        with pytest.raises(LocalProtocolError, match="retries"), kind.client("http://127.0.0.1:1", retries=retries):
            pass
        with kind.client("http://127.0.0.1:1") as client, pytest.raises(LocalProtocolError, match="retries"):
            client.infer("m", INPUTS, retries=retries)
