"""Uploading without a network: which exchange comes next, how long the pause before it is, and when it is given up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import DEFAULT_LIMITS, encode_request
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange
from streamcodec.client.uploads.record import Record
from streamcodec.client.uploads.uploading import Uploading
from streamcodec.engine.memory.rows import Rows
from streamcodec.http.client import ClientConnection
from tests.client.scripted import response

CREATED = response(b"", "Location: /v2/uploads/x", status="201 Created")
X = np.arange(100.0)


def _uploading(**options: Any) -> Uploading:  # noqa: ANN401 - those of `Uploading`
    usual: dict[str, Any] = {
        "origin": "http://h",
        "target": "/v2/models/m/infer",
        "make_fields": lambda: [("Host", "h")],
        "message": encode_request({"x": X}),
        "media_type": None,
        "limits": DEFAULT_LIMITS,
        "placing": None,
        "record": None,
        "outage": 60.0,
        "on_resume": None,
    }
    return Uploading(**{**usual, **options})


def _exchanged(uploading: Uploading, answer: bytes = b"", now: float = 0.0) -> ClientExchange:
    """Return the next exchange, sent, and with its answer if there is one."""
    exchange, connection = uploading.next_exchange(now), ClientConnection()
    exchange.start(connection)
    if answer:
        connection.feed(answer)
        while not exchange.has_ended:
            exchange.receive(connection, connection.next_event())  # type: ignore[arg-type]  # the answer is whole
    return exchange


def _begun(**options: Any) -> Uploading:  # noqa: ANN401 - those of `Uploading`
    uploading = _uploading(**options)
    assert not uploading.succeeded(_exchanged(uploading, CREATED))
    return uploading


def _tell(uploading: Uploading, offset: int, now: float = 0.0) -> None:
    told = response(b"", f"Upload-Offset: {offset}", status="204 No Content", is_counted=False)
    assert not uploading.succeeded(_exchanged(uploading, told, now))


def _break(uploading: Uploading, begun: float, now: float, error: OSError | None = None) -> float:
    """Let the next exchange begin, and fail later."""
    exchange = _exchanged(uploading, now=begun)
    uploading.timeout(Timeout())
    return uploading.failed(exchange, error or ConnectionResetError("reset"), now, is_over=False)


def _refuse(uploading: Uploading, status: str, *fields: str, now: float = 0.0) -> float:
    exchange = _exchanged(uploading, response(b"", *fields, status=status), now)
    with pytest.raises(ServerError) as caught:
        exchange.check_status()
    return uploading.failed(exchange, caught.value, now, is_over=False)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "upload"


def _recorded(path: Path) -> Uploading:
    """Return one that has begun by itself, or goes on where the record says."""
    uploading = _uploading(record=Record(str(path)), message=encode_request({"x": X}, request_id="i"))
    uploading.begin()
    if not path.exists():
        assert not uploading.succeeded(_exchanged(uploading, CREATED))
    return uploading


@pytest.mark.parametrize("status", ["429 Too Many Requests", "425 Too Early", "503 Busy", "500 Oops"])
def test_a_refusal_that_passes_is_waited_out(record: Path, status: str) -> None:
    """Before the upload has begun, in place of its offset, and in place of the model's answer."""
    assert 0 < _refuse(_uploading(), status) < 1
    uploading = _recorded(record)
    for _ in range(2):
        assert 0 < _refuse(uploading, status) < 1
    _tell(uploading, 5)
    assert 0 < _refuse(uploading, status) < 1
    assert record.exists()


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Busy"])
def test_a_server_that_asks_for_a_longer_pause_gets_it(status: str) -> None:
    uploading = _begun()
    assert 30 < _refuse(uploading, status, "Retry-After: 30") < 31
    assert 0 < _refuse(uploading, status, "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", now=30.0) < 1
    assert 29 < _refuse(uploading, status, "Retry-After: 29", now=30.9) <= 29.1, "no longer than the outage"
    words = r"left alone for 30 s; gave up after 4 failures in 31\.0 s without progress, the server had 0 of"
    with pytest.raises(ConnectionError, match=words):
        _refuse(uploading, status, "Retry-After: 30", now=31.0)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "302 Found", "413 Too Large"])
def test_after_a_refusal_that_is_raised_the_upload_can_go_on(record: Path, status: str) -> None:
    """Whoever gives another token goes on with the same record."""
    uploading = _recorded(record)
    with pytest.raises(ServerError):
        _refuse(uploading, status, "Location: /login")
    _tell(_recorded(record), 5)


def test_a_record_is_removed_when_the_model_has_refused(record: Path) -> None:
    uploading = _recorded(record)
    with pytest.raises(ServerError):
        _refuse(uploading, "429 Too Many Requests", "Upload-Complete: ?1")
    assert not record.exists()


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone"])
def test_an_upload_that_is_gone_begins_anew(record: Path, status: str) -> None:
    uploading = _recorded(record)
    assert 0 < _refuse(uploading, status) < 1
    assert not record.exists()
    assert not uploading.succeeded(_exchanged(uploading, CREATED))
    assert record.exists()


def test_a_server_that_loses_bytes_again_and_again_is_given_up() -> None:
    """Only more than it has ever had is progress."""
    uploading = _begun()
    _break(uploading, 0.0, 0.0)
    _tell(uploading, 500, 10.0)
    for now, offset in ((10.0, 100), (25.0, 499), (40.0, 500), (55.0, 0)):
        _break(uploading, now, now)
        _tell(uploading, offset, now + 15.0)
    with pytest.raises(ConnectionError, match=r"after 5 failures in 60\.0 s without progress, the server had 0 of"):
        _break(uploading, 70.0, 70.0)


def test_a_message_that_moves_is_no_outage() -> None:
    """Nor if the one before it has brought nothing, and the server has not been asked since."""
    uploading = _begun()
    _break(uploading, 0.0, 0.0)
    _tell(uploading, 0, 10.0)
    _break(uploading, 10.0, 1000.0)
    _tell(uploading, 5, 1001.0)
    assert uploading.timeout(Timeout()).connect == 30


def test_a_stall_counts_from_the_last_progress() -> None:
    """Nothing had moved for the timeout of writing; half of the outage is left for a new connection."""
    uploading, usual = _begun(), Timeout(connect=100, read=200, write=None, pool=300)
    exchange = _exchanged(uploading, now=0.0)
    assert uploading.timeout(usual) == Timeout(connect=30, read=200, write=30, pool=300)
    assert uploading.failed(exchange, TimeoutError("nothing has moved"), 100.0, is_over=False) > 0
    exchange = _exchanged(uploading, now=110.0)
    assert uploading.timeout(usual) == Timeout(connect=20, read=20, write=20, pool=300), "30 + 10 s are over"
    with pytest.raises(TimeoutError, match=r"gave up after 2 failures in 60\.0 s without progress"):
        uploading.failed(exchange, TimeoutError("nothing has moved"), 130.0, is_over=False)


def test_the_timeouts_of_an_attempt_are_those_of_the_call_if_these_are_shorter() -> None:
    usual = Timeout(connect=2, read=3, write=4, pool=5)
    for uploading in (_uploading(), _begun(), _begun(outage=math.inf)):
        uploading.next_exchange(0.0)
        assert uploading.timeout(usual) == usual
    endless = Timeout(connect=None, read=None, write=None, pool=None)
    assert uploading.timeout(endless) == endless


def test_a_last_attempt_has_time_for_some_round_trips() -> None:
    for outage, shortest in ((60.0, 1.0), (0.5, 0.25)):
        uploading = _begun(outage=outage)
        _break(uploading, 0.0, 0.0)
        uploading.next_exchange(outage)
        assert uploading.timeout(Timeout()).read == shortest


def test_the_windows_of_lost_bytes_are_made_again() -> None:
    class Windows:
        def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
            return iter(np.split(X, 4))

    uploading = _begun(message=encode_request({"x": Rows("FP64", X.shape, Windows())}, request_id="i"))
    whole = b"".join(encode_request({"x": X}, request_id="i").buffers)
    for offset in (700, 300):
        _break(uploading, 0.0, 0.0)
        _tell(uploading, offset)
        exchange = uploading.next_exchange(0.0)
        (rows,) = exchange.start(ClientConnection())[1:]
        assert isinstance(rows, Rows)
        assert b"".join(window.tobytes() for window in rows.windows) == whole[offset:]
