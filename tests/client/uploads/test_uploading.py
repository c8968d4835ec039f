"""Uploading without a network: which exchange comes next, how long the pause before it is, and when it is given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from streamcodec import DEFAULT_LIMITS, encode_request
from streamcodec.client.exchange import ClientExchange
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
        "fields": [("Host", "h")],
        "message": encode_request({"x": X}),
        "media_type": None,
        "limits": DEFAULT_LIMITS,
        "placing": None,
        "record": None,
        "outage": 60.0,
        "on_resume": None,
    }
    return Uploading(**{**usual, **options})


def _exchanged(uploading: Uploading, answer: bytes = b"") -> ClientExchange:
    """Return the next exchange, sent, and with its answer if there is one."""
    exchange, connection = uploading.next_exchange(), ClientConnection()
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


def _tell(uploading: Uploading, offset: int) -> None:
    told = response(b"", f"Upload-Offset: {offset}", status="204 No Content", is_counted=False)
    assert not uploading.succeeded(_exchanged(uploading, told))


def _break(uploading: Uploading, now: float) -> float:
    return uploading.failed(_exchanged(uploading), ConnectionResetError("reset"), now, is_over=False)


def test_a_server_that_loses_bytes_again_and_again_is_given_up() -> None:
    """Only more than it has ever had is progress."""
    uploading = _begun()
    _break(uploading, 0.0)
    _tell(uploading, 500)
    for now, offset in ((10.0, 100), (30.0, 499), (50.0, 500), (69.0, 0)):
        _break(uploading, now)
        _tell(uploading, offset)
    with pytest.raises(ConnectionError, match=r"after 5 failures in 60\.0 s without progress, the server had 0 of"):
        _break(uploading, 70.0)


def test_the_windows_of_lost_bytes_are_made_again() -> None:
    class Windows:
        def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
            return iter(np.split(X, 4))

    uploading = _begun(message=encode_request({"x": Rows("FP64", X.shape, Windows())}, request_id="i"))
    whole = b"".join(encode_request({"x": X}, request_id="i").buffers)
    for offset in (700, 300):
        _break(uploading, 0.0)
        _tell(uploading, offset)
        exchange = uploading.next_exchange()
        (rows,) = exchange.start(ClientConnection())[1:]
        assert isinstance(rows, Rows)
        assert b"".join(window.tobytes() for window in rows.windows) == whole[offset:]
