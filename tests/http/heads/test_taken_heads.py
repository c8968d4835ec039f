"""Taken heads: a head that its owner has read gets the bytes that one read by the connection gets, in every state."""

from __future__ import annotations

from typing import Any

import h11
import numpy as np
import pytest

from streamcodec import NEED_DATA, ErrorCode, LocalProtocolError, RemoteProtocolError, Rows
from streamcodec.http import Collector, RequestHead, ServerConnection
from streamcodec.http.connection import State
from tests.http.heads.plainheads import CLIENTS
from tests.http.messages import head

TEXT = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
BODY = b"body"
GET = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"


def _head() -> RequestHead:
    """Return what such a head means, as an owner has it from an earlier connection."""
    connection = ServerConnection()
    connection.feed(TEXT)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    return head


def begun(data: bytes, *, is_recognized: bool) -> ServerConnection:
    """Return a connection that has received this, and has taken the first head of it."""
    connection = ServerConnection()
    assert connection.feed(data) == len(data)
    if is_recognized:
        connection.take_head(_head(), TEXT)
    else:
        connection.next_event()
    return connection


def rows() -> Rows:
    return Rows("UINT8", (3,), iter([np.zeros(3, np.uint8)]))


RESPONSES: dict[str, tuple[int, list[tuple[str, str]], tuple[Any, ...]]] = {
    "usual": (200, [("Content-Type", "a/b"), ("Date", "now")], (b"abc", memoryview(b"de"))),
    "its own length": (200, [("content-length", "3")], (b"abc",)),
    "empty": (404, [], ()),
    "unknown status": (299, [], (b"x",)),
    "without a body": (204, [], ()),
    "closing": (200, [("Connection", "close")], (b"abc",)),
    "chunked": (200, [("Transfer-Encoding", "chunked"), ("Content-Length", "3")], (b"abc",)),
    "rows": (200, [], (b"abc", rows())),
}


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("received", ["all", "a part", "no body"])
@pytest.mark.parametrize("is_answered_early", [False, True])
def test_a_response_is_that_of_a_parsed_head(name: str, received: str, *, is_answered_early: bool) -> None:
    data = {"all": TEXT + BODY + GET, "a part": TEXT + BODY[:2], "no body": TEXT}[received]
    found: list[tuple[object, ...]] = []
    for is_recognized in (False, True):
        connection = begun(data, is_recognized=is_recognized)
        if not is_answered_early:
            assert connection.receive_body(Collector(100)) == b""
            if received == "all":
                connection.next_event()
        status, headers, parts = RESPONSES[name]
        try:
            sent = connection.send_response(status, headers, parts)
        except LocalProtocolError as error:
            found.append((str(error),))
            continue
        texts = b"".join(part for part in sent if not isinstance(part, Rows))
        connection.end_response()
        found.append((texts, len(sent), connection.incoming.state, connection.has_unread_body, after(connection)))
    assert found[0] == found[1]


def after(connection: ServerConnection) -> str:
    """Say what comes next."""
    return repr(connection.next_event())


def test_the_responses_after_one_another() -> None:
    for is_recognized in (False, True):
        connection = begun((TEXT + BODY) * 2 + GET, is_recognized=is_recognized)
        for _ in range(2):
            connection.receive_body(Collector(100))
            connection.next_event()
            assert b"".join(connection.send_response(200)).startswith(b"HTTP/1.1 200 OK\r\n")
            if connection.incoming.peek().startswith(TEXT):
                connection.take_head(_head(), TEXT)
        head = connection.next_event()
        assert isinstance(head, RequestHead)
        assert head.target == "/next"


def test_invalid_fields_are_refused_and_another_response_can_be_sent() -> None:
    connection = begun(TEXT + BODY, is_recognized=True)
    connection.receive_body(Collector(100))
    connection.next_event()
    for _ in range(2):
        with pytest.raises(LocalProtocolError):
            connection.send_response(200, [("X", "a\nb")])
    assert connection.send_response(500)[0].startswith(b"HTTP/1.1 500")
    assert connection.next_event() is NEED_DATA


def test_its_client_can_be_probed() -> None:
    connection = begun(TEXT + BODY, is_recognized=True)
    connection.receive_body(Collector(100))
    connection.next_event()
    assert connection.interim() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert b"".join(connection.send_response(200)) == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert connection.incoming.state is State.HEAD


def test_a_request_that_is_given_up_is_closed() -> None:
    connection = begun(TEXT, is_recognized=True)
    connection.receive_body(Collector(100))
    connection.give_up(RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW))
    assert b"Connection: close" in b"".join(connection.send_response(408))
    assert connection.incoming.state is State.CLOSED


def test_a_connection_needs_h11_only_for_other_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(h11.Connection):
        def __init__(self, role: type[h11.SERVER]) -> None:
            made.append(role)
            super().__init__(role)

    monkeypatch.setattr(h11, "Connection", Counted)
    for text in [*CLIENTS.values(), head(b"GET / HTTP/1.0")]:
        assert not made
        connection = ServerConnection()
        connection.feed(text)
        event = connection.next_event()
        assert isinstance(event, RequestHead)
        connection.send_response(200, [("X", "y")], [b"z"])
    assert len(made) == 1
