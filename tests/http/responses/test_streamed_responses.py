"""Responses of which parts are made while they are sent: the request goes on meanwhile; and heads read beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    HeaderReceived,
    LocalProtocolError,
    Rows,
    Tensor,
    TensorReceived,
    encode_request,
    encode_response,
    request_decoder,
)
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import RequestHead, ServerConnection

ARRAY = np.arange(1000, dtype=np.float64)
GET = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


def _post(*extra: str) -> tuple[bytes, bytes]:
    message = encode_request([Tensor(name="x", array=ARRAY)])
    fields = [f"{name}: {value}" for name, value in message.headers]
    head = "\r\n".join(("POST /v2/models/m/infer HTTP/1.1", "Host: x", *fields, *extra, "", ""))
    return head.encode(), b"".join(message.buffers)


def _begun(*extra: str) -> tuple[ServerConnection, bytes]:
    """A connection that has its head and the JSON header, and the bytes that are missing."""
    head, body = _post(*extra)
    connection = ServerConnection()
    connection.feed(head)
    request = connection.next_event()
    assert isinstance(request, RequestHead)
    length = header_length_of(request.fields)
    assert length is not None
    connection.receive_body(request_decoder(header_length=length, body_length=request.body_length))
    connection.feed(body[:length])
    assert isinstance(connection.next_event(), HeaderReceived)
    return connection, body[length:]


def _answer(connection: ServerConnection) -> bytes:
    rows = Rows("FP64", ARRAY.shape, ())
    message = encode_response([Tensor(name="y", array=rows)], model_name="m")
    head, _, part = connection.send_response(200, message.headers, message.parts)
    assert part is rows
    return bytes(head)  # type: ignore[arg-type] # it is no Rows


def test_the_request_goes_on_while_its_answer_is_made() -> None:
    connection, rest = _begun()
    assert b"Connection: close" not in _answer(connection)
    assert connection.feed(rest) == len(rest)
    assert isinstance(connection.next_event(), TensorReceived)
    assert isinstance(connection.next_event(), EndOfMessage)
    connection.end_response()
    assert connection.next_event() is NEED_DATA
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_what_is_left_of_the_request_is_dropped_when_the_answer_has_been_sent() -> None:
    connection, rest = _begun()
    _answer(connection)
    connection.feed(rest[:100])
    connection.end_response()
    assert connection.next_event() is NEED_DATA
    connection.feed(rest[100:])
    assert connection.next_event() is NEED_DATA
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_a_client_that_wants_to_close_is_not_read_from_any_more() -> None:
    connection, rest = _begun("Connection: close")
    assert b"Connection: close" in _answer(connection)
    connection.feed(rest[:100])
    connection.end_response()
    assert connection.has_unread_body


def test_the_end_of_a_response_is_without_effect_on_one_that_was_there_whole() -> None:
    connection = ServerConnection()
    connection.feed(GET)
    connection.next_event()
    connection.send_response(200)
    connection.end_response()
    assert connection.next_event() is NEED_DATA


def test_the_next_request_has_to_wait_for_the_end_of_the_response() -> None:
    connection = ServerConnection()
    connection.feed(GET)
    connection.next_event()
    connection.send_response(200, [], [Rows("UINT8", (3,), ())])
    with pytest.raises(LocalProtocolError, match="a request is waiting"):
        connection.next_event()
    connection.end_response()
    assert connection.next_event() is NEED_DATA


def test_requests_can_be_seen_and_left_out_before_they_begin() -> None:
    connection = ServerConnection()
    assert connection.incoming.peek() == b""
    connection.feed(GET + GET[:10])
    assert connection.incoming.peek() == GET + GET[:10]
    connection.incoming.skip(len(GET))
    assert connection.incoming.peek() == GET[:10]
    connection.feed(GET[10:])
    assert isinstance(connection.next_event(), RequestHead)
    assert connection.incoming.peek() == b"", "it has begun"
