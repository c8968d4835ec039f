"""A known body: memory is filled as a decoder would fill it, in every cut, and the connection goes on after it."""

from __future__ import annotations

import pytest

from streamcodec import DEFAULT_LIMITS, NEED_DATA, EndOfMessage, ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.http import Collector, RequestHead, ServerConnection
from streamcodec.http.bodies.known import KnownBody
from streamcodec.http.connection import Incoming
from streamcodec.http.scratch import SCRATCH_BYTES
from tests.effort import places

SIZES = (5, 1, 300, 80_000)
DATA = bytes(range(256)) * (sum(SIZES) // 256 + 1)
DATA = DATA[: sum(SIZES)]
BEGINNING = b"known"
HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (len(BEGINNING) + len(DATA))
NEXT = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"


def _memory() -> list[bytearray]:
    return [bytearray(size) for size in SIZES]


def _body(memory: list[bytearray]) -> KnownBody:
    return KnownBody([memoryview(piece) for piece in memory], offset=len(BEGINNING))


def _plain_head() -> RequestHead:
    connection = ServerConnection()
    connection.feed(HEAD)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    return head


PLAIN_HEAD = _plain_head()
FIRST = len(HEAD) + len(BEGINNING)
WHOLE = HEAD + BEGINNING + DATA + NEXT


def _begun(first: int) -> tuple[ServerConnection, KnownBody, list[bytearray]]:
    """Return a connection that has read so many bytes, and then begun to fill memory."""
    connection, memory = ServerConnection(), _memory()
    assert connection.feed(WHOLE[:first]) == first
    connection.take_head(PLAIN_HEAD, HEAD)
    body = _body(memory)
    connection.incoming.fill(body)
    return connection, body, memory


CUTS = sorted(
    {FIRST, FIRST + 1, FIRST + 5, FIRST + 6, FIRST + 306, 60_000, SCRATCH_BYTES - 500}
    | {len(WHOLE) - len(NEXT) + by for by in (-1, 0, 1)}
)


@pytest.mark.parametrize("several", [False, True])
def test_every_cut_fills_the_same_memory(*, several: bool) -> None:
    for first in places([cut for cut in CUTS if cut < SCRATCH_BYTES]):
        for second in places([cut for cut in CUTS if cut >= first]):
            connection, body, memory = _begun(first)
            _bring(connection, WHOLE[first:second], several=several)
            _bring(connection, WHOLE[second:], several=several)
            assert b"".join(memory) == DATA
            assert body.is_complete
            assert connection.next_event() == EndOfMessage(nbytes=len(BEGINNING) + len(DATA))
            connection.send_response(200)
            incoming = connection.incoming
            assert incoming.received_direct + incoming.received_copied == len(DATA)
            connection.feed(WHOLE[incoming.received :])
            head = connection.next_event()
            assert isinstance(head, RequestHead)
            assert head.target == "/next"


def _bring(connection: ServerConnection, data: bytes, *, several: bool) -> None:
    while data and connection.incoming.wants_data:
        buffers = connection.get_buffers() if several else [connection.get_buffer()]
        count = 0
        for buffer in buffers:
            part = data[count : count + len(buffer)]
            buffer[: len(part)] = part
            count += len(part)
        connection.buffer_updated(count)
        data = data[count:]


def test_many_targets_are_offered_in_parts() -> None:
    body = KnownBody([memoryview(bytearray(1)) for _ in range(200)])
    assert len(body.following_buffers()) == 63
    body.buffer_updated(150)
    assert len(body.following_buffers()) == 49
    assert (body.remaining, body.offset, body.received_direct) == (50, 150, 150)


def test_a_body_without_bytes_is_complete() -> None:
    body = KnownBody([], offset=3)
    assert (body.is_complete, body.wants_data, body.get_buffer()) == (True, False, memoryview(b""))
    assert body.next_event() == EndOfMessage(nbytes=3)
    with pytest.raises(LocalProtocolError, match="complete"):
        body.next_event()
    assert not body.work()


def test_a_connection_that_ends_within_it() -> None:
    connection, body, _ = _begun(FIRST + 7)
    assert connection.next_event() is NEED_DATA
    connection.receive_eof()
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="ended in the middle") as caught:
            connection.next_event()
        assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, len(BEGINNING) + 7)
    assert not body.is_complete


def test_a_plain_answer_ends_a_request_that_has_been_read() -> None:
    connection, _, _ = _begun(FIRST)
    assert not connection.end_plain()
    _bring(connection, DATA, several=False)
    assert not connection.end_plain()
    connection.incoming.end_filling()
    assert connection.end_plain()
    connection.feed(NEXT)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    assert head.target == "/next"
    assert not connection.end_plain()


@pytest.mark.parametrize("line", [b"HEAD / HTTP/1.1", b"GET / HTTP/1.1\r\nConnection: close", b"GET / HTTP/1.0"])
def test_a_response_that_is_not_plain(line: bytes) -> None:
    connection = ServerConnection()
    connection.feed(line + b"\r\nHost: x\r\n\r\n")
    connection.next_event()
    connection.receive_body(Collector(0))
    assert connection.next_event() == EndOfMessage(nbytes=0)
    assert not connection.end_plain()
    assert connection.send_response(200)


def test_a_request_that_was_given_up_has_no_plain_answer() -> None:
    connection, _, _ = _begun(FIRST)
    _bring(connection, DATA, several=False)
    connection.incoming.end_filling()
    connection.give_up(RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW, status_hint=408))
    assert not connection.end_plain()
    assert b"Connection: close" in b"".join(connection.send_response(408))


def test_an_incoming_half_has_no_work_for_it() -> None:
    incoming = Incoming(DEFAULT_LIMITS, paced=True)
    incoming.feed(HEAD + BEGINNING)
    incoming.take_head(len(HEAD))
    incoming.fill(_body(_memory()))
    assert not incoming.inflates
    assert not incoming.work()
    assert incoming.remaining == len(DATA)


def test_peeking_at_a_part_copies_no_more_of_it() -> None:
    incoming = Incoming(DEFAULT_LIMITS)
    incoming.feed(WHOLE[:1000])
    assert incoming.peek(10) == WHOLE[:10]
    assert incoming.peek(10_000) == WHOLE[:1000]
    assert bytes(incoming.peek_from(3, 9)) == WHOLE[3:9]
    assert bytes(incoming.peek_from(990, 2000)) == WHOLE[990:1000]
