"""Zero copy: proven by shared memory, by counters and by poisoned sources."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    ErrorCode,
    HeaderReceived,
    Into,
    RemoteProtocolError,
    Tensor,
    TensorReceived,
    TensorSpec,
    encode_request,
    request_decoder,
)
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import ClientConnection, Collector, ConnectionClosed, RequestHead, ServerConnection
from tests.http.messages import GET, chunked, length, post

NBYTES = 1 << 20
ARRAY = np.arange(NBYTES // 4, dtype="<f4")
MESSAGE = encode_request([Tensor(name="x", array=ARRAY)])
HEADER = bytes(next(iter(MESSAGE.buffers)))
BODY = b"".join(MESSAGE.buffers)
IHCL = b"Inference-Header-Content-Length: %d" % len(HEADER)


def begin(*fields: bytes, first: bytes = b"") -> ServerConnection:
    """Make a connection that has read a head, and what came with it, and decodes into `target`."""
    connection = ServerConnection()
    connection.feed(post(IHCL, *fields) + first)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    connection.receive_body(request_decoder(header_length=header_length_of(head.fields), body_length=head.body_length))
    return connection


def received(connection: ServerConnection) -> TensorReceived:
    """Return the one tensor of the message, and finish the cycle."""
    connection.next_event()
    event = connection.next_event()
    assert isinstance(event, TensorReceived)
    connection.next_event()
    connection.send_response(200)
    return event


@pytest.mark.parametrize("step", [4096, 65_537, NBYTES])
def test_the_buffer_for_the_socket_is_the_memory_of_the_array(step: int) -> None:
    connection = begin(length(BODY), first=HEADER)
    views = []
    position = len(HEADER)
    while position < len(BODY):
        buffer = connection.get_buffer()
        assert len(buffer) == len(BODY) - position
        count = min(step, len(buffer))
        buffer[:count] = BODY[position : position + count]
        connection.buffer_updated(count)
        views.append(np.frombuffer(buffer, np.uint8))
        position += count
    array = received(connection).array
    assert np.shares_memory(array, views[0])
    assert all(np.shares_memory(array, view) for view in views)
    assert array.tobytes() == ARRAY.tobytes()
    assert (connection.incoming.received_direct, connection.incoming.received_copied) == (NBYTES, len(HEADER))


def test_the_buffer_may_be_the_owners_own_array() -> None:
    target = np.empty_like(ARRAY)

    def into(_: TensorSpec) -> Into:
        return Into(target)

    connection = ServerConnection()
    connection.feed(post(IHCL, length(BODY)) + HEADER)
    connection.next_event()
    connection.receive_body(request_decoder(header_length=len(HEADER), body_length=len(BODY), place=into))
    assert np.shares_memory(np.frombuffer(connection.get_buffer(), np.uint8), target)


@pytest.mark.parametrize("first", [0, 1, len(HEADER), len(HEADER) + 1, 60_000])
def test_only_what_came_with_the_head_is_copied_once(first: int) -> None:
    connection = begin(length(BODY), first=BODY[:first])
    assert connection.feed(BODY[first:] + GET) == len(BODY) - first
    received(connection)
    incoming = connection.incoming
    assert (incoming.received_copied, incoming.received_direct) == (first, len(BODY) - first)
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_counters_add_up_over_requests_and_refusals() -> None:
    connection = begin(length(BODY), first=BODY[:100])
    connection.feed(BODY[100:1000])
    connection.send_response(503, [("Connection", "close")])
    assert connection.incoming.received_copied + connection.incoming.received_direct == 1000
    small = b"{}"
    connection = ServerConnection()
    for _ in range(3):
        connection.feed(post(length(small)))
        connection.next_event()
        connection.receive_body(Collector(9))
        connection.feed(small)
        connection.send_response(200)
    assert connection.incoming.received_direct == 6


def test_a_refused_body_is_counted_although_its_rest_is_dropped() -> None:
    connection = begin(b"Content-Length: 9000", first=HEADER)
    with pytest.raises(RemoteProtocolError):
        connection.next_event()
    connection.send_response(400)
    assert (connection.incoming.received_copied, connection.incoming.received_direct) == (len(HEADER), 0)


def test_a_chunked_body_is_copied_and_counted_so() -> None:
    connection = begin(b"Transfer-Encoding: chunked")
    data = chunked(BODY, [50_000])
    taken = 0
    while taken < len(data):
        taken += connection.feed(data[taken:])
    assert received(connection).array.tobytes() == ARRAY.tobytes()
    assert (connection.incoming.received_direct, connection.incoming.received_copied) == (0, len(BODY))


@pytest.mark.parametrize("framing", [length(BODY), b"Transfer-Encoding: chunked"])
def test_what_was_fed_may_be_overwritten_at_once(framing: bytes) -> None:
    connection = begin(framing)
    data = BODY if framing.startswith(b"Content") else chunked(BODY, [9999])
    for start in range(0, len(data), 10_007):
        chunk = bytearray(data[start : start + 10_007])
        view = memoryview(chunk)
        while view:
            view = view[connection.feed(view) :]
        chunk[:] = b"\xee" * len(chunk)
        view.release()
        chunk.clear()  # which only works if nobody holds on to it
    assert received(connection).array.tobytes() == ARRAY.tobytes()


def test_a_body_of_gigabytes_takes_no_memory_before_it_comes() -> None:
    connection = ServerConnection()
    connection.feed(post(IHCL, b"Content-Length: 6000000000"))
    event = connection.next_event()
    assert isinstance(event, RequestHead)
    connection.receive_body(request_decoder(header_length=len(HEADER), body_length=event.body_length))
    assert len(connection.get_buffer()) == len(HEADER)


def test_buffers_of_a_response_come_out_as_they_went_in() -> None:
    connection = ServerConnection()
    connection.feed(GET)
    connection.next_event()
    given: list[bytes | memoryview] = [b"head", memoryview(bytearray(8)), ARRAY.view(np.uint8).data]
    sent = connection.send_response(200, (), given)
    assert len(sent) == 4
    assert all(mine is theirs for mine, theirs in zip(sent[1:], given, strict=True))


def test_buffers_of_a_request_come_out_as_they_went_in() -> None:
    sent = ClientConnection().send_request("POST", "/x", [("Host", "x"), *MESSAGE.headers], MESSAGE.buffers)
    assert bytes(sent[0]).startswith(b"POST /x HTTP/1.1\r\nHost: x\r\n")
    assert all(mine is theirs for mine, theirs in zip(sent[1:], MESSAGE.buffers, strict=True))


def test_a_request_given_up_within_a_tensor_ends_the_connection_at_once() -> None:
    connection = begin(length(BODY), first=HEADER)
    assert isinstance(connection.next_event(), HeaderReceived)
    for taken in (10, 20):
        assert connection.feed(BODY[:10]) == 10
        assert connection.next_event() is NEED_DATA
        assert connection.incoming.remaining == NBYTES - taken
    connection.feed(BODY[:10])
    connection.give_up(RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW, status_hint=408))
    connection.send_response(408)
    assert isinstance(connection.next_event(), ConnectionClosed)
    assert connection.incoming.received_direct == 30
