"""Whole frames: they mean what the decoder says, also those that it has not read because their like came before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import (
    EncodedMessage,
    ErrorCode,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    MessageError,
    RemoteProtocolError,
    encode_request,
    request_decoder,
)
from streamcodec.formats.frame import HEAD_BYTES, Checksum, Kind, WholeFrames, request_frame_decoder
from streamcodec.testing import describe_array, describe_error, describe_header, run_push
from tests.formats.frame.samples import MAKERS, MESSAGES, NONE, REQUESTS, joined
from tests.formats.frame.test_frames import REFUSED

SMALL = {"x": np.array([1, -2, 300], np.int16), "y": np.arange(4.0).reshape(2, 2)}
KNOWN = {"small", "several", "no tensors", "no bytes", "rows"}
"""Messages whose like is not read by the decoder."""


HEAD_CODES = {ErrorCode.INVALID_FRAME, ErrorCode.LIMIT_EXCEEDED}


def read(frames: WholeFrames[Any], data: Any) -> object:  # noqa: ANN401 - bytes of any type
    """Return everything that is told of a frame."""
    try:
        frame = frames.read(data)
    except MessageError as error:
        return describe_error(error)
    return describe_header(frame.header), [(name, describe_array(array)) for name, array in frame.arrays.items()]


def decoded(make: Any, data: bytes) -> object:  # noqa: ANN401 - makes a decoder of either kind
    """Return what the decoder tells."""
    outcome = run_push(make, [data])
    if outcome.error is not None:
        return describe_error(outcome.error)
    assert outcome.header is not None
    arrays = [(tensor.spec.name, describe_array(tensor.array)) for tensor in outcome.tensors]
    return describe_header(outcome.header), arrays


@pytest.mark.parametrize("checksum", Checksum)
@pytest.mark.parametrize(("kind", "name", "message"), MESSAGES)
def test_a_frame_is_read_as_by_the_decoder_again_and_again(
    kind: Kind, name: str, message: EncodedMessage, checksum: Checksum
) -> None:
    data = joined(message, kind, checksum)
    frames: WholeFrames[Any] = WholeFrames(MAKERS[kind])
    wanted = decoded(MAKERS[kind], data)
    assert [read(frames, data) for _ in range(3)] == [wanted] * 3
    assert (frames.read(data).header is frames.read(data).header) is (name in KNOWN)


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_frame_is_refused_before_and_after_a_right_one(name: str) -> None:
    data = REFUSED[name][0]
    frames = WholeFrames(request_frame_decoder)
    wanted = decoded(request_frame_decoder, data)
    assert read(frames, data) == wanted
    frames.read(joined(REQUESTS["small"]))
    assert read(frames, data) == wanted


@pytest.mark.parametrize("checksum", Checksum)
@pytest.mark.parametrize("name", ["small", "texts"])
def test_whatever_changes_the_verdict_is_that_of_the_decoder(name: str, checksum: Checksum) -> None:
    data = joined(REQUESTS[name], checksum=checksum)
    frames = WholeFrames(request_frame_decoder)
    for position in range(len(data)):
        for change in (1, 0x80):
            frames.read(data)
            changed = data[:position] + bytes([data[position] ^ change]) + data[position + 1 :]
            assert read(frames, changed) == decoded(request_frame_decoder, changed), position


def test_the_end_of_the_data_is_the_end_of_the_frame() -> None:
    data = joined(REQUESTS["small"])
    frames = WholeFrames(request_frame_decoder)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="3 bytes follow the frame") as caught:
            frames.read(data + b"abc")
        assert (caught.value.code, caught.value.offset) == (ErrorCode.TRAILING_BYTES, len(data))
        with pytest.raises(RemoteProtocolError) as caught:
            frames.read(data[:-3])
        assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, len(data) - 3)
        frames.read(data)


def test_frames_of_other_forms_may_come_in_between() -> None:
    samples = [
        joined(REQUESTS[name], checksum=NONE) for name in ("small", "several", "small", "JSON", "small", "texts")
    ]
    frames = WholeFrames(request_frame_decoder)
    for data in samples:
        assert read(frames, data) == decoded(request_frame_decoder, data)


def test_tensors_are_views_that_cannot_be_written_and_keep_the_frame() -> None:
    frames = WholeFrames(request_frame_decoder)
    for value in (1, 2):
        data = joined(encode_request({name: value * array for name, array in SMALL.items()}), checksum=NONE)
        arrays = frames.read(data).arrays
        memory = np.frombuffer(data, np.uint8)
        assert [np.shares_memory(array, memory) for array in arrays.values()] == [True, True]
        assert not any(array.flags.writeable for array in arrays.values())
        del data, memory
        assert {name: array.tolist() for name, array in arrays.items()} == {
            name: (value * array).tolist() for name, array in SMALL.items()
        }


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_arrays_in_memory_of_ones_own_can_be_written(kind: Any) -> None:  # noqa: ANN401 - a type of bytes
    frames = WholeFrames(request_frame_decoder)
    for checksum in (*Checksum, *Checksum):
        own = bytearray(joined(encode_request(SMALL), checksum=checksum))
        data = own if kind is bytearray else np.frombuffer(own, np.int8).data
        assert read(frames, data) == decoded(request_frame_decoder, bytes(own))
        array = frames.read(data).arrays["x"]
        array[0] = 7
        assert own.count(b"\7\0\xfe\xff") == 1
        with pytest.raises(BufferError):
            own.clear()


@pytest.mark.parametrize("checksum", Checksum)
def test_the_head_says_how_long_a_frame_is(checksum: Checksum) -> None:
    frames = WholeFrames(request_frame_decoder)
    for name in ("small", "several", "small", "small"):
        data = joined(REQUESTS[name], checksum=checksum)
        assert frames.length_of(bytearray(data[:HEAD_BYTES])) == frames.length_of(data) == len(data)
        frames.read(data)
        assert frames.length_of(data) == len(data)


@pytest.mark.parametrize("name", [name for name, (_, code, _) in REFUSED.items() if code in HEAD_CODES])
def test_a_head_is_refused_as_by_the_decoder(name: str) -> None:
    frames, data = WholeFrames(request_frame_decoder), REFUSED[name][0]
    for _ in range(2):
        with pytest.raises(MessageError) as caught:
            frames.length_of(data)
        assert describe_error(caught.value) == decoded(request_frame_decoder, data)
        frames.read(joined(REQUESTS["small"]))


def test_a_head_has_all_of_its_bytes() -> None:
    frames = WholeFrames(request_frame_decoder)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as caught:
            frames.length_of(joined(REQUESTS["small"])[: HEAD_BYTES - 1])
        assert caught.value.code == ErrorCode.TRUNCATED
        frames.read(joined(REQUESTS["small"]))


def test_limits_hold() -> None:
    data = joined(encode_request(SMALL))
    assert len(WholeFrames(request_frame_decoder, limits=Limits(max_tensors=2)).read(data).arrays) == 2
    with pytest.raises(LimitExceededError, match="2 entries"):
        WholeFrames(request_frame_decoder, limits=Limits(max_tensors=1)).read(data)


def test_others_are_not_the_decoders_of_frames() -> None:
    with pytest.raises(LocalProtocolError, match="request_frame_decoder"):
        WholeFrames(request_decoder)
