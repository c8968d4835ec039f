"""Bodies that somebody else has taken out of HTTP, in any pieces, and heads that somebody else has parsed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    Decoder,
    EndOfMessage,
    ErrorCode,
    Into,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    MessageError,
    Placement,
    RemoteProtocolError,
    RequestHeader,
    TensorReceived,
    TensorSpec,
    encode_request,
    request_decoder,
)
from streamcodec.http import Collector, Fields, RequestHead
from streamcodec.http.bodies.fed import FedBody, fed_head
from tests.effort import examples, places
from tests.http.messages import BODY, REQUEST

GZIPPED = gzip.compress(BODY, mtime=0)
ENCODED = {"identity": BODY, "gzip": GZIPPED, "deflate": zlib.compress(BODY)}

each_encoding = pytest.mark.parametrize("encoding", ENCODED)


def head_of(length: int | None, encoding: str = "identity") -> RequestHead:
    fields = Fields(((b"content-encoding", encoding.encode()),))
    return RequestHead(method="POST", target="/", fields=fields, content_length=length)


def decoder(body_length: int | None = None) -> Decoder[RequestHeader]:
    return request_decoder(header_length=REQUEST.header_length, body_length=body_length)


def come_to(body: FedBody, pieces: Iterable[bytes], *, is_direct: bool = False) -> list[str]:
    """Bring pieces and then the end; return what events there were, an error as the last one."""
    seen: list[str] = []
    coming = iter([piece for piece in pieces if piece])
    while True:
        try:
            event = body.next_event()
        except MessageError as error:
            return [*seen, f"{error.code} at {error.offset}"]
        if event is NEED_TURN:
            body.work()
        elif event is NEED_DATA:
            piece = next(coming, b"")
            if not piece:
                body.receive_eof()
            elif is_direct:
                _write(body, piece)
            else:
                body.feed(piece)
        else:
            seen.append(event.spec.name if isinstance(event, TensorReceived) else type(event).__name__)
            if isinstance(event, EndOfMessage):
                return seen


def _write(body: FedBody, piece: bytes) -> None:
    """Write a piece as `readinto` would, as far as each buffer reaches."""
    while piece:
        (buffer,) = body.get_buffers()
        count = min(len(buffer), len(piece))
        buffer[:count] = piece[:count]
        body.buffer_updated(count)
        piece = piece[count:]
        if piece and body.next_event() is not NEED_DATA:
            raise AssertionError("an event came before the piece had been written")


WHOLE = ["HeaderReceived", "values", "as_json", "flags", "words", "EndOfMessage"]


def every_cut(data: bytes) -> Iterator[list[bytes]]:
    yield [data]
    yield [data[index : index + 1] for index in range(len(data))]
    for cut in places(range(1, len(data))):
        yield [data[:cut], data[cut:]]


@each_encoding
@pytest.mark.parametrize("is_paced", [False, True], ids=["", "paced"])
@pytest.mark.parametrize("has_length", [False, True], ids=["no length", "length"])
def test_a_body_comes_to_the_same_however_it_is_cut(encoding: str, is_paced: bool, has_length: bool) -> None:
    data = ENCODED[encoding]
    for pieces in every_cut(data):
        body = FedBody(head_of(len(data) if has_length else None, encoding), decoder(), paced=is_paced)
        assert come_to(body, pieces) == WHOLE
        assert body.received == len(data)
        assert body.has_ended


@settings(max_examples=examples(200))
@given(st.data())
def test_pieces_of_any_size_come_to_the_same(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(GZIPPED)), max_size=20)))
    pieces = [GZIPPED[a:b] for a, b in zip([0, *cuts], [*cuts, len(GZIPPED)], strict=True)]
    assert come_to(FedBody(head_of(len(GZIPPED), "gzip"), decoder(), paced=True), pieces) == WHOLE


def test_what_is_read_into_its_memory_is_not_copied() -> None:
    given_to: list[memoryview] = []
    x = np.arange(1 << 16, dtype=np.uint8)
    target = np.empty_like(x)

    def place(_: TensorSpec) -> Placement:
        return Into(target)

    message = encode_request({"x": x})
    data = b"".join(message.buffers)
    receiver = request_decoder(header_length=message.header_length, body_length=len(data), place=place)
    body = FedBody(head_of(len(data)), receiver)
    view = memoryview(data)
    while not isinstance(event := body.next_event(), EndOfMessage):
        if event is NEED_DATA:
            buffer = body.get_buffer()
            given_to.append(buffer)
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            body.buffer_updated(count)
    assert np.array_equal(target, x)
    assert body.received == len(data)
    assert any(np.shares_memory(np.frombuffer(buffer, np.uint8), target) for buffer in given_to)
    assert body.unsettled == 0
    assert body.remaining == 0


@each_encoding
def test_reading_into_scratch_comes_to_the_same(encoding: str) -> None:
    data = ENCODED[encoding]
    body = FedBody(head_of(len(data), encoding), decoder(), paced=True)
    for start in range(0, len(data), 7):
        while body.next_event() is not NEED_DATA:
            body.work()
        for byte in data[start : start + 7]:
            while body.next_event() is not NEED_DATA:
                body.work()
            body.get_buffer()[:1] = bytes([byte])
            body.buffer_updated(1)
    assert body.received == len(data)


def test_without_a_buffer_nothing_can_have_been_written() -> None:
    with pytest.raises(LocalProtocolError, match="get_buffer"):
        FedBody(head_of(10, "gzip"), decoder()).buffer_updated(1)


def test_what_follows_a_pause_is_passed_on_after_it() -> None:
    receiver = request_decoder(header_length=REQUEST.header_length, body_length=None, pause_after_header=True)
    assert come_to(FedBody(head_of(None), receiver, paced=True), [BODY]) == WHOLE


def test_a_piece_does_not_replace_one_that_waits() -> None:
    receiver = request_decoder(header_length=REQUEST.header_length, body_length=None, pause_after_header=True)
    body = FedBody(head_of(None), receiver)
    body.feed(BODY[:-2])
    body.feed(BODY[-2:-1])
    with pytest.raises(LocalProtocolError, match=r"next_event\(\) until it returns NEED_DATA"):
        body.feed(BODY[-1:])
    assert come_to(body, [BODY[-1:]]) == WHOLE


def test_the_end_may_be_told_while_work_is_left() -> None:
    body = FedBody(head_of(None, "gzip"), decoder(), paced=True)
    body.feed(GZIPPED)
    body.receive_eof()
    assert come_to(body, []) == WHOLE


def test_there_is_one_buffer_at_a_time() -> None:
    (buffer,) = FedBody(head_of(len(BODY)), decoder()).get_buffers()
    assert len(buffer) == REQUEST.header_length


def test_memory_that_is_offered_ends_with_the_body() -> None:
    body = FedBody(head_of(10, "gzip"), decoder())
    assert len(body.get_buffer()) == 10, "a readinto that filled more would take the next request's bytes"


def test_a_body_that_ends_early_is_truncated() -> None:
    for encoding, data in ENCODED.items():
        body = FedBody(head_of(len(data), encoding), decoder())
        assert come_to(body, [data[:-3]])[-1].startswith(ErrorCode.TRUNCATED), encoding
        body = FedBody(head_of(None, encoding), decoder())
        assert come_to(body, [data[:-3]])[-1].split(" ")[0] in {ErrorCode.TRUNCATED, ErrorCode.INVALID_COMPRESSION}


@pytest.mark.parametrize("length", [None, len(BODY)])
def test_a_connection_that_ends_amid_a_body_truncates_it_whether_it_has_a_length_or_not(length: int | None) -> None:
    for end in (0, 10, len(BODY) - 1):
        body = FedBody(head_of(length), decoder())
        if end:
            body.feed(BODY[:end])
        body.break_off()
        assert body.has_ended
        assert come_to(body, [])[-1].startswith(ErrorCode.TRUNCATED)
    whole = FedBody(head_of(len(BODY)), decoder())
    whole.feed(BODY)
    whole.break_off()
    assert come_to(whole, []) == WHOLE, "it had come"


def test_bytes_behind_the_message_are_refused_where_they_belong_to_the_body() -> None:
    assert come_to(FedBody(head_of(None), decoder()), [BODY, b"x"])[-1].startswith(ErrorCode.TRAILING_BYTES)
    damaged = GZIPPED + b"x"
    for pieces in ([damaged], [GZIPPED, b"x"]):
        assert come_to(FedBody(head_of(None, "gzip"), decoder()), pieces)[-1].startswith("invalid-compression")


def test_bytes_behind_a_body_of_known_length_are_no_part_of_it() -> None:
    assert come_to(FedBody(head_of(len(BODY)), decoder()), [BODY + b"GET / HTTP/1.1"]) == WHOLE


@each_encoding
def test_what_a_framework_has_decompressed_is_not_decompressed_again(encoding: str) -> None:
    body = FedBody(head_of(len(ENCODED[encoding]), encoding), decoder(), is_decoded=True)
    assert come_to(body, [BODY]) == WHOLE


def test_that_many_compressed_bytes_wait_can_be_told() -> None:
    for size, inflates in ((16 << 10, False), ((16 << 10) + 1, True)):
        body = FedBody(head_of(None, "gzip"), Collector(10), paced=True)
        body.feed(bytes(size))
        assert body.inflates is inflates


def test_of_an_empty_body_nothing_is_awaited() -> None:
    body = FedBody(head_of(0), Collector(10))
    assert body.has_ended
    assert isinstance(body.next_event(), EndOfMessage)
    assert not body.work()


def test_a_bomb_is_refused() -> None:
    bomb = gzip.compress(bytes(1 << 20), mtime=0)
    body = FedBody(head_of(len(bomb), "gzip"), Collector(1 << 21), Limits(max_compression_ratio=10))
    assert come_to(body, [bomb])[-1].startswith(ErrorCode.LIMIT_EXCEEDED)


def test_work_is_told_of_while_it_waits() -> None:
    body = FedBody(head_of(len(GZIPPED), "gzip"), decoder(), paced=True)
    body.feed(GZIPPED)
    assert body.next_event() is NEED_TURN
    assert body.has_work
    while body.next_event() is NEED_TURN:
        body.work()
    assert not body.has_work


# Heads

HOST = (b"host", b"x")


def test_a_head_of_http_1_1_has_a_host() -> None:
    with pytest.raises(RemoteProtocolError, match="Host is missing"):
        fed_head("GET", "/v2", ())
    assert fed_head("GET", "/v2", (), http_version="1.0").method == "GET"
    assert fed_head("GET", "/v2", (), http_version="2").method == "GET"


def test_a_head_says_how_long_its_body_is() -> None:
    def length(*fields: tuple[bytes, bytes], version: str = "1.1") -> int | None:
        return fed_head("POST", "/v2", [HOST, *fields], http_version=version).content_length

    assert length((b"content-length", b"12")) == 12
    assert length() == 0
    assert length(version="1.0") == 0
    assert length((b"transfer-encoding", b"chunked")) is None
    assert length(version="2") is None, "a body needs no field there"
    assert length((b"content-length", b"0"), version="2") == 0


@pytest.mark.parametrize(
    ("fields", "code", "status"),
    [
        ([(b"content-length", b"1"), (b"content-length", b"1")], ErrorCode.AMBIGUOUS_FRAMING, 400),
        ([(b"content-length", b"+1")], ErrorCode.AMBIGUOUS_FRAMING, 400),
        ([(b"content-length", b"1, 1")], ErrorCode.AMBIGUOUS_FRAMING, 400),
        ([(b"content-length", b"")], ErrorCode.AMBIGUOUS_FRAMING, 400),
        ([(b"content-length", b"9" * 5000)], ErrorCode.AMBIGUOUS_FRAMING, 400),
        ([(b"content-length", b"1"), (b"transfer-encoding", b"chunked")], ErrorCode.AMBIGUOUS_FRAMING, 400),
        ([(b"transfer-encoding", b"gzip, chunked")], ErrorCode.INVALID_HTTP, 501),
        ([(b"host", b"a"), (b"host", b"a")], ErrorCode.INVALID_HTTP, 400),
        ([(b"host", b"a b")], ErrorCode.INVALID_HTTP, 400),
        ([(b"expect", b"magic")], ErrorCode.UNSUPPORTED_EXPECTATION, 417),
    ],
    ids=str,
)
def test_a_head_is_refused_as_a_connection_would(
    fields: list[tuple[bytes, bytes]], code: ErrorCode, status: int
) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        fed_head("POST", "/v2", fields if fields[0][0] == b"host" else [HOST, *fields])
    assert (caught.value.code, caught.value.status_hint) == (code, status)


def test_chunks_are_unknown_to_http_1_0() -> None:
    with pytest.raises(RemoteProtocolError, match=r"HTTP/1\.0"):
        fed_head("POST", "/v2", ((b"transfer-encoding", b"chunked"),), http_version="1.0")


def test_a_value_is_without_the_white_space_around_it() -> None:
    assert fed_head("POST", "/v2", [HOST, (b"content-length", b" 12\t")]).content_length == 12


def test_control_characters_are_refused() -> None:
    for field in ((b"a", b"b\x1b"), (b"a\x00", b"b")):
        with pytest.raises(RemoteProtocolError, match="control character"):
            fed_head("GET", "/v2", [HOST, field])


def test_fields_are_counted() -> None:
    limits = Limits(max_head_fields=2)
    assert len(fed_head("GET", "/v2", [HOST, (b"a", b"")], limits=limits).fields.items) == 2
    with pytest.raises(LimitExceededError) as caught:
        fed_head("GET", "/v2", [HOST, (b"a", b""), (b"a", b"")], limits=limits)
    assert caught.value.status_hint == 431


def test_another_coding_is_told_the_one_that_is_known() -> None:
    with pytest.raises(RemoteProtocolError, match="chunked is the only supported Transfer-Encoding"):
        fed_head("POST", "/v2", [HOST, (b"transfer-encoding", b"gzip")])


def test_a_tunnel_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="CONNECT") as caught:
        fed_head("CONNECT", "x:1", [HOST])
    assert caught.value.status_hint == 501


def test_what_is_expected_may_be_a_hundred() -> None:
    assert fed_head("POST", "/v2", [HOST, (b"expect", b"100-Continue")]).method == "POST"
