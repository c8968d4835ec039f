"""One frame: what is accepted, what is refused and where, and that a V2 body means in a frame what it means alone."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_TURN,
    Discard,
    EncodedMessage,
    EndOfMessage,
    ErrorCode,
    HeaderCache,
    HeaderReceived,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    Rows,
    Tensor,
    TensorSpec,
    Windows,
    compress_message,
    encode_raw_request,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
)
from streamcodec.formats.frame import Checksum, Kind, encode_frame, request_frame_decoder
from streamcodec.testing import assert_stops_at_end, describe_error, run_pull, run_push, run_scatter
from tests.corpus.notation import read_bytes
from tests.corpus.reading import Case, read_corpus
from tests.engine.triad import decode, refuse
from tests.formats.frame.samples import MAKERS, MESSAGES, NONE, REQUESTS, RESPONSES, joined, with_head
from tests.formats.v2.messages import Message

CASES = [case for case in read_corpus() if case.kind in {"request", "response"}]
BODY = b'{"inputs":[{"name":"x","shape":[2],"datatype":"UINT8","parameters":{"binary_data_size":2}}]}ab'
HEADER = len(BODY) - 2


@pytest.mark.parametrize("checksum", Checksum)
@pytest.mark.parametrize(("kind", "name", "message"), MESSAGES)
def test_a_frame_brings_its_message_however_it_is_cut(
    kind: Kind, name: str, message: EncodedMessage, checksum: Checksum
) -> None:
    del name
    frame = joined(message, kind, checksum)
    outcome = decode(MAKERS[kind], frame)
    alone = Message(
        body=b"".join(message.buffers),
        header_length=message.header_length,
        body_length=message.body_length,
        is_response=kind is Kind.RESPONSE,
    )
    wanted = run_push(alone.decoder, [alone.body])
    assert outcome.end == EndOfMessage(nbytes=len(frame))
    assert (outcome.log.header, outcome.log.tensors) == (wanted.log.header, wanted.log.tensors)
    assert_stops_at_end(MAKERS[kind], frame)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_body_is_read_in_a_frame_as_it_is_alone(case: Case) -> None:
    message = read_bytes(case.message)
    length = len(message.data) if message.header_end is None else message.header_end
    if not 0 < length <= len(message.data):
        return
    kind = Kind.RESPONSE if case.kind == "response" else Kind.REQUEST
    alone = Message(body=message.data, header_length=length, body_length=len(message.data), is_response=bool(kind))
    wanted = run_push(alone.decoder, [alone.body])
    for checksum in (b"", zlib.crc32):
        frame = with_head(alone.body, length, kind=kind, checksum=checksum != b"")
        if checksum:
            frame += zlib.crc32(frame).to_bytes(4, "little")
        for run in (run_push, run_pull, run_scatter):
            found = run(MAKERS[kind], [frame])
            assert (found.log.header, found.log.tensors) == (wanted.log.header, wanted.log.tensors)
            assert (found.error is None) == (wanted.error is None)
            if found.error is not None and wanted.error is not None:
                if wanted.error.offset is not None:
                    wanted_offset = wanted.error.offset + 24
                    assert found.error.offset == wanted_offset
                    found.error.offset = wanted.error.offset
                assert describe_error(found.error) == describe_error(wanted.error)


REFUSED = {
    "no magic": (b"\x89V2E" + bytes(20), ErrorCode.INVALID_FRAME, 0),
    "an HTTP request": (b"POST /v2/models/m/infer HTTP/1.1\r\n", ErrorCode.INVALID_FRAME, 0),
    "a wrong check": (with_head(BODY, HEADER, check=1), ErrorCode.INVALID_FRAME, 4),
    "version 0": (with_head(BODY, HEADER, version=0), ErrorCode.INVALID_FRAME, 8),
    "version 2": (with_head(BODY, HEADER, version=2), ErrorCode.INVALID_FRAME, 8),
    "a response": (with_head(BODY, HEADER, kind=1), ErrorCode.INVALID_FRAME, 9),
    "kind 2": (with_head(BODY, HEADER, kind=2), ErrorCode.INVALID_FRAME, 9),
    "checksum 2": (with_head(BODY, HEADER, checksum=2), ErrorCode.INVALID_FRAME, 10),
    "a reserved byte": (with_head(BODY, HEADER, reserved=128), ErrorCode.INVALID_FRAME, 11),
    "no JSON header": (with_head(BODY, 0), ErrorCode.INVALID_FRAME, 12),
    "no body": (with_head(b"", 0), ErrorCode.INVALID_FRAME, 12),
    "a header that is longer than the body": (with_head(BODY, len(BODY) + 1), ErrorCode.INVALID_FRAME, 12),
    "a header of 4 GiB": (with_head(BODY, 0xFFFFFFFF, body_length=1 << 33), ErrorCode.LIMIT_EXCEEDED, 24),
    "a body of 2**63": (with_head(BODY, HEADER, body_length=1 << 63), ErrorCode.LIMIT_EXCEEDED, 24),
    "a body of 2**64 - 1": (with_head(BODY, HEADER, body_length=(1 << 64) - 1), ErrorCode.LIMIT_EXCEEDED, 24),
    "a byte too few": (with_head(BODY, HEADER, body_length=len(BODY) - 1), ErrorCode.BODY_LENGTH_MISMATCH, None),
    "a byte too many": (with_head(BODY + b"c", HEADER), ErrorCode.BODY_LENGTH_MISMATCH, None),
    "a header that is a byte short": (with_head(BODY, HEADER - 1), ErrorCode.INVALID_JSON, None),
    "no JSON": (with_head(b"{" + bytes(9), 10), ErrorCode.INVALID_JSON, 25),
    "a wrong checksum": (with_head(BODY, HEADER, checksum=1) + bytes(4), ErrorCode.INVALID_CHECKSUM, 24 + len(BODY)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_frame_is_refused_where_it_is_wrong(name: str) -> None:
    frame, code, offset = REFUSED[name]
    error = refuse(request_frame_decoder, frame)
    assert error.code == code
    assert offset is None or error.offset == offset


def test_the_same_frame_without_anything_wrong_is_accepted() -> None:
    assert decode(request_frame_decoder, with_head(BODY, HEADER)).arrays[0].tolist() == [97, 98]


@pytest.mark.parametrize("checksum", Checksum)
def test_an_end_anywhere_is_truncated(checksum: Checksum) -> None:
    frame = joined(REQUESTS["small"], checksum=checksum)
    for end in range(len(frame)):
        for run in (run_push, run_pull):
            error = run(request_frame_decoder, [frame[:end]]).error
            assert error is not None
            assert (error.code, error.offset) == (ErrorCode.TRUNCATED, end)


def test_a_change_of_any_byte_is_found() -> None:
    frame = joined(REQUESTS["small"])
    for position in range(len(frame)):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(frame)
            damaged[position] ^= change
            error = run_push(request_frame_decoder, [bytes(damaged)]).error
            assert error is not None
            assert error.offset != position or error.code != ErrorCode.TRUNCATED


def test_the_checksum_depends_on_the_head() -> None:
    """As it would not if the check stood at the end of the head: then the CRC of any right head would be the same."""
    one, other = (with_head(b"", 1, body_length=length) for length in (5, 6))
    assert zlib.crc32(one) != zlib.crc32(other)


def test_limits_are_those_of_the_body() -> None:
    frame = with_head(BODY, HEADER)
    for name, most in (("max_message_bytes", len(BODY)), ("max_header_bytes", HEADER)):
        for limit, is_accepted in ((most, True), (most - 1, False)):
            limits = Limits(**{name: limit})
            outcome = run_push(partial(request_frame_decoder, limits=limits), [frame])
            assert (outcome.error is None) == is_accepted
            assert outcome.error is None or outcome.error.code == ErrorCode.LIMIT_EXCEEDED


def test_hostile_sizes_are_refused_with_the_head_and_take_no_memory() -> None:
    for header_length, body_length in (
        (1, 1 << 63),
        (1, (1 << 64) - 1),
        ((1 << 32) - 1, (1 << 34)),
        (1 << 27, 1 << 28),
    ):
        decoder = request_frame_decoder()
        assert decoder.feed(with_head(b"", header_length, body_length=body_length)) == 24
        with pytest.raises(RemoteProtocolError) as caught:
            decoder.next_event()
        assert caught.value.code == ErrorCode.LIMIT_EXCEEDED
        assert decoder.held_bytes == 24


def test_windows_and_what_nobody_wants_are_in_the_checksum() -> None:
    def place(spec: TensorSpec) -> Any:  # noqa: ANN401 - two kinds of placement
        return Windows(max_window_bytes=8) if spec.name == "x" else Discard()

    frame = joined(encode_request({"x": np.arange(6.0), "y": np.ones(3), "z": np.zeros(2, np.int8)}))
    outcome = decode(lambda: request_frame_decoder(place=place), frame)
    assert [window.row for window in outcome.windows] == [*range(6)]
    assert outcome.tensors == []
    assert outcome.end is not None
    damaged = frame[:-6] + bytes([frame[-6] ^ 1]) + frame[-5:]
    assert refuse(lambda: request_frame_decoder(place=place), damaged).code == ErrorCode.INVALID_CHECKSUM


def test_a_paced_decoder_pauses_while_it_computes_the_checksum() -> None:
    frame = joined(encode_request({"x": np.zeros(5 << 20, np.uint8)}))
    decoder, turns, position = request_frame_decoder(paced=True), 0, 0
    while not decoder.is_complete:
        event = decoder.next_event()
        if event is NEED_TURN:
            turns += 1
            decoder.work()
        else:
            position += decoder.feed(frame[position:])
    assert turns >= 5


def test_a_pause_after_the_header() -> None:
    decoder = request_frame_decoder(pause_after_header=True)
    frame = joined(REQUESTS["small"])
    assert decoder.feed(frame) == 24 + 128
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert decoder.is_paused


@pytest.mark.parametrize("kind", Kind)
def test_the_options_are_those_of_every_decoder(kind: Kind) -> None:
    x = {"x": np.zeros(3 << 20, np.uint8)}
    frame = joined(encode_request(x) if kind is Kind.REQUEST else encode_response(x, model_name="m"), kind)
    make = MAKERS[kind]
    seen: list[object] = []
    outcome = run_push(partial(make, check=seen.append, place=lambda _: Windows(max_window_bytes=1 << 20)), [frame])
    assert seen == [outcome.header]
    assert outcome.windows
    assert outcome.tensors == []
    error = run_push(partial(make, limits=Limits(max_tensors=0)), [frame]).error
    assert error is not None
    assert error.code == ErrorCode.LIMIT_EXCEEDED
    decoder = make(pause_after_header=True)
    decoder.feed(frame)
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert decoder.is_paused
    decoder = make(paced=True)
    assert decoder.feed(frame) < len(frame)  # then its checksum is computed in turns
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert decoder.next_event() is NEED_TURN


@pytest.mark.parametrize(
    ("kind", "parse"), [(Kind.REQUEST, parse_request_header), (Kind.RESPONSE, parse_response_header)]
)
def test_a_cache_of_headers(kind: Kind, parse: Any) -> None:  # noqa: ANN401 - parses headers of either kind
    message = REQUESTS["several"] if kind is Kind.REQUEST else RESPONSES["small"]
    headers = HeaderCache(parse, Limits(max_tensors=5))
    make = partial(MAKERS[kind], headers=headers)
    first, second = (run_push(make, [joined(message, kind)]) for _ in range(2))
    assert first.log == second.log == run_push(MAKERS[kind], [joined(message, kind)]).log
    assert first.header is second.header
    with pytest.raises(LocalProtocolError, match="limits of its header cache"):
        make(limits=Limits())


def test_a_check_of_the_header() -> None:
    def check(header: object) -> None:
        raise RemoteProtocolError(repr(type(header)), code=ErrorCode.MODEL_MISMATCH)

    assert run_push(lambda: request_frame_decoder(check=check), [joined(REQUESTS["small"])]).error is not None


# Writing


@pytest.mark.parametrize("checksum", Checksum)
def test_nothing_is_joined_and_nothing_copied(checksum: Checksum) -> None:
    array = np.arange(1000, dtype="<i8")
    message = encode_request({"x": array})
    frame = encode_frame(message, Kind.REQUEST, checksum)
    assert frame.parts[1:3] == message.parts
    assert np.shares_memory(np.frombuffer(memoryview(frame.parts[2]), np.uint8), array)  # type: ignore[arg-type] # no rows
    assert frame.nbytes == sum(map(len, frame.buffers))


def windows() -> Any:  # noqa: ANN401 - a generator that can be gone through once
    yield np.ones((2, 3), "<i4")
    yield np.zeros((2, 3), "<i4")


def test_rows_are_made_while_they_are_sent_and_so_is_the_checksum() -> None:
    message = encode_request({"x": Rows("INT32", (4, 3), windows())})
    frame = encode_frame(message, Kind.REQUEST)
    assert isinstance(frame.parts[1], Rows)
    data = b"".join(map(bytes, frame.buffers))
    assert frame.nbytes == len(data)
    assert data == joined(REQUESTS["rows"]) == joined(REQUESTS["rows"])  # as often as the windows can be had
    outcome = run_push(request_frame_decoder, [data])
    assert outcome.end is not None
    assert outcome.arrays[0].tolist() == [[1] * 3] * 2 + [[0] * 3] * 2


def test_windows_that_are_not_what_was_declared_leave_no_whole_frame() -> None:
    for given in ([np.ones((2, 3), "<i4")], [np.ones((5, 3), "<i4")]):
        sent: list[bytes] = []
        frame = encode_frame(encode_request({"x": Rows("INT32", (4, 3), given)}), Kind.REQUEST)
        with pytest.raises(LocalProtocolError, match="rows"):
            sent.extend(map(bytes, frame.buffers))
        assert len(b"".join(sent)) < frame.nbytes


async def asynchronous() -> AsyncIterator[np.ndarray[Any, Any]]:
    yield np.ones((4, 3), "<i4")


def test_asynchronous_windows_have_no_checksum() -> None:
    message = encode_request({"x": Rows("INT32", (4, 3), asynchronous())})
    assert encode_frame(message, Kind.REQUEST, NONE).parts[1:] == message.parts
    with pytest.raises(LocalProtocolError, match="asynchronous"):
        encode_frame(message, Kind.REQUEST)


def test_large_values_as_json_have_a_checksum() -> None:
    message = encode_request([Tensor(name="x", array=np.arange(100_000.0), is_binary=False)])
    assert message.is_streamed
    frame = joined(message)
    outcome = run_push(request_frame_decoder, [frame])
    assert outcome.end is not None
    assert outcome.arrays[0].tolist() == [*range(100_000)]
    assert json.loads(frame[24:-4])["inputs"][0]["data"] == [*range(100_000)]


def test_what_has_no_json_header_has_no_frame() -> None:
    compressed = compress_message(encode_request({"x": np.zeros(10_000)}), "gzip")
    for message in (encode_raw_request(np.zeros(3)), compressed):
        with pytest.raises(LocalProtocolError, match="JSON header"):
            encode_frame(message, Kind.REQUEST)


def test_the_codec_does_not_import_frames() -> None:
    code = "import sys; from streamcodec import *; assert Decoder; print([m for m in sys.modules if '.frame' in m])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"[]\n"
