"""Responses in pieces: with a length, in chunks, and to clients of HTTP/1.0."""

from __future__ import annotations

import pytest

from streamcodec import NEED_DATA, LocalProtocolError
from streamcodec.guard.pieces import Pieces
from streamcodec.http import ClientConnection, ConnectionClosed, RequestHead, ResponseHead, ServerConnection

GET = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


def _asked(request: bytes = GET) -> ServerConnection:
    connection = ServerConnection()
    connection.feed(request)
    assert isinstance(connection.next_event(), RequestHead)
    return connection


def _sent(connection: ServerConnection, *pieces: bytes, fields: tuple[tuple[str, str], ...] = ()) -> bytes:
    sent = connection.begin_response(200, fields)
    for piece in pieces:
        sent += b"".join(connection.response_piece(piece))
    return sent + connection.end_response()


def test_with_a_length() -> None:
    connection = _asked()
    assert _sent(connection, b"ab", b"c", fields=(("Content-Length", "3"),)) == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    )
    assert connection.next_event() is NEED_DATA
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_in_chunks() -> None:
    connection = _asked()
    assert _sent(connection, b"ab", b"", b"c") == (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    )
    assert connection.next_event() is NEED_DATA


def test_to_the_end_of_the_connection() -> None:
    connection = _asked(b"GET /v2 HTTP/1.0\r\nHost: x\r\n\r\n")
    assert _sent(connection, b"ab") == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab"
    assert isinstance(connection.next_event(), ConnectionClosed)


def test_for_head() -> None:
    connection = _asked(GET.replace(b"GET", b"HEAD"))
    assert _sent(connection, fields=(("Content-Length", "3"),)).endswith(b"Content-Length: 3\r\n\r\n")


def test_a_request_that_has_not_come_whole() -> None:
    head = b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    assert b"Connection: close" in _sent(_asked(head % (1 << 20)))
    connection = _asked(head % 3)
    assert b"Connection: close" not in _sent(connection)
    connection.feed(b"abc")
    assert connection.next_event() is NEED_DATA
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_misuse() -> None:
    with pytest.raises(LocalProtocolError, match="answers a request, once"):
        ServerConnection().begin_response(200)
    connection = _asked()
    connection.begin_response(200, [("Content-Length", "1")])
    with pytest.raises(LocalProtocolError, match="answers a request, once"):
        connection.begin_response(200)
    with pytest.raises(LocalProtocolError, match="Too little data"):
        connection.end_response()
    connection = _asked()
    connection.begin_response(200, [("Content-Length", "1")])
    with pytest.raises(LocalProtocolError, match="Too much data"):
        connection.response_piece(b"ab")


@pytest.mark.parametrize("is_prompt", [False, True])
def test_a_prompt_body_is_passed_on_with_each_read(is_prompt: bool) -> None:
    connection = ClientConnection()
    connection.send_request("GET", "/", [("Host", "x")])
    connection.feed(b"HTTP/1.1 200 OK\r\n\r\n")
    connection.next_event()
    pieces = Pieces(None)
    connection.incoming.read_body(pieces, content_length=None, is_prompt=is_prompt)
    connection.get_buffer()[:4] = b"data"
    connection.buffer_updated(4)
    event = connection.next_event()
    assert (event is NEED_DATA) != is_prompt


def test_a_request_that_was_sent_without_the_connection() -> None:
    connection = ClientConnection()
    connection.feed(b"HTTP/1.1 204 No Content\r\n\r\n")
    with pytest.raises(LocalProtocolError, match="cannot take a request now"):
        connection.send_request("GET", "/", [("Host", "x")])
    connection.resume("GET", "/", [("Host", "x")])
    assert isinstance(connection.next_event(), ResponseHead)
