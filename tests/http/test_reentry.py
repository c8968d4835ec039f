"""Calls at the wrong moment: from within a body's receiver, while an answer is made, with memory of long ago."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    ErrorCode,
    LocalProtocolError,
    NewArray,
    RemoteProtocolError,
    Rows,
    TensorReceived,
    TensorSpec,
    Windows,
    request_decoder,
)
from streamcodec.http import Collector, ConnectionClosed, RequestHead, ServerConnection
from tests.http.driver import raises_local
from tests.http.messages import BODY, GET, IHCL, REQUEST, VALUES, chunked, framed, length, post

ACTS: Final[dict[str, Callable[[ServerConnection], object]]] = {
    "get_buffer": lambda connection: connection.get_buffer(),
    "get_buffers": lambda connection: connection.get_buffers(),
    "buffer_updated": lambda connection: connection.buffer_updated(1),
    "receive_body": lambda connection: connection.receive_body(Collector(0)),
    "send_response": lambda connection: connection.send_response(400),
    "remaining": lambda connection: connection.incoming.remaining,
    "next_cycle": lambda connection: connection.incoming.next_cycle(),
    "close": lambda connection: connection.incoming.close(),
    "next_event": lambda connection: connection.next_event(),
}


def events_of(connection: ServerConnection) -> list[Any]:
    events: list[Any] = []
    while not isinstance(events[-1] if events else None, EndOfMessage):
        events.append(connection.next_event())
    return events


def pushed(connection: ServerConnection, data: bytes) -> None:
    assert connection.feed(data) == len(data)


def pulled(connection: ServerConnection, data: bytes) -> None:
    view = memoryview(data)
    while view:
        buffer = connection.get_buffer()
        count = min(len(buffer), len(view))
        buffer[:count] = view[:count]
        connection.buffer_updated(count)
        view = view[count:]


@pytest.mark.parametrize("bring", [pushed, pulled])
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("act", ACTS)
def test_callbacks_cannot_use_the_connection_and_the_request_arrives_all_the_same(
    act: str, is_chunked: bool, bring: Callable[[ServerConnection, bytes], None]
) -> None:
    count = 0

    def place(_: TensorSpec) -> NewArray:
        nonlocal count
        count += 1
        assert connection.feed(b"x") == 0
        raises_local(lambda: ACTS[act](connection))
        return NewArray()

    message = framed(BODY, IHCL, sizes=(50, 300) if is_chunked else None)
    start = message.index(b"\r\n\r\n") + 4
    connection = ServerConnection()
    connection.feed(message[:start])
    assert isinstance(connection.next_event(), RequestHead)
    decoder = request_decoder(header_length=REQUEST.header_length, body_length=None, place=place)
    connection.receive_body(decoder)
    bring(connection, message[start:])
    events = events_of(connection)
    assert count == 3
    assert [event.spec.name for event in events[1:-1]] == ["values", "as_json", "flags", "words"]
    assert np.array_equal(events[1].array, VALUES)
    connection.send_response(200)
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_what_waited_for_a_window_goes_on_after_the_next_tensor_too() -> None:
    connection = ServerConnection()
    connection.feed(post(IHCL, b"Transfer-Encoding: chunked") + chunked(BODY, (7, 300)))
    connection.next_event()
    connection.receive_body(
        request_decoder(
            header_length=REQUEST.header_length, body_length=None, place=lambda _: Windows(max_window_bytes=16)
        )
    )
    assert NEED_DATA not in events_of(connection)


def test_memory_from_before_the_end_of_input_is_no_longer_filled() -> None:
    connection = ServerConnection()
    connection.feed(post(IHCL, length(BODY)))
    connection.next_event()
    connection.receive_body(request_decoder(header_length=REQUEST.header_length, body_length=len(BODY)))
    size = len(connection.get_buffer())
    connection.receive_eof()
    assert "buffer of 0" in raises_local(lambda: connection.buffer_updated(size))
    with pytest.raises(RemoteProtocolError) as caught:
        connection.next_event()
    assert caught.value.code is ErrorCode.TRUNCATED


def test_memory_from_before_a_head_was_taken_is_no_longer_filled() -> None:
    connection = ServerConnection()
    connection.feed(GET)
    connection.get_buffer()
    connection.next_event()
    connection.send_response(200)
    raises_local(lambda: connection.buffer_updated(1))
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


@pytest.mark.parametrize("buffers", [[b"12345678"], [b"1"], []])
def test_after_an_answer_of_another_length_than_it_says_a_proper_one_can_be_sent(buffers: list[bytes]) -> None:
    connection = ServerConnection()
    connection.feed(GET)
    connection.next_event()
    raises_local(lambda: connection.send_response(200, [("Content-Length", "5")], buffers))
    assert connection.send_response(200, [("Content-Length", "5")], [b"12345"])[1:] == [b"12345"]
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def answering() -> ServerConnection:
    """Make a connection whose answer is made while the request still comes."""

    def windows() -> Iterator[np.ndarray[Any, Any]]:
        yield np.zeros((2, 2), "<i2")

    connection = ServerConnection()
    connection.feed(framed(BODY, IHCL)[:-5])
    connection.next_event()
    connection.receive_body(request_decoder(header_length=REQUEST.header_length, body_length=len(BODY)))
    connection.send_response(200, [], [Rows("INT16", (2, 2), windows())])
    return connection


def test_an_answer_that_is_being_made_is_the_only_one() -> None:
    connection = answering()
    assert "end_response() comes before" in raises_local(lambda: connection.send_response(500))
    connection.feed(BODY[-5:])
    assert any(isinstance(event, TensorReceived) for event in events_of(connection))
    connection.end_response()
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_a_request_that_is_given_up_while_it_is_answered_closes_the_connection() -> None:
    connection = answering()
    connection.give_up(RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW, status_hint=408))
    connection.end_response()
    assert isinstance(connection.next_event(), ConnectionClosed)
    assert connection.has_unread_body
    with pytest.raises(LocalProtocolError):
        connection.get_buffer()
