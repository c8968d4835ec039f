"""Resuming: a message that broke off is continued by a new decoder, at any byte, and ends as if it had not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    Decoder,
    EncodedMessage,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    Into,
    LocalProtocolError,
    Message,
    Placement,
    RemoteProtocolError,
    Rows,
    Slab,
    Tensor,
    TensorReceived,
    TensorSpec,
    Windows,
    encode_raw_request,
    encode_request,
    request_decoder,
)
from streamcodec.formats import npy, safetensors
from streamcodec.formats.frame import Checksum, Kind, encode_frame, request_frame_decoder
from tests.effort import places
from tests.formats.v2.messages import binary, jsonic, request

MIXED = request(
    binary("INT16", [2], 4, name="a"),
    jsonic("INT8", [1], [5], name="b"),
    binary("FP32", [0], 0, name="c"),
    binary("BOOL", [3], 3, name="d"),
    binary("FP64", [2], 16, name="e"),
    payload=b"\1\0\2\0" + b"\1\0\1" + np.array([0.5, 7]).tobytes(),
)
TEXTS = request(
    binary("INT16", [2], 4, name="a"),
    binary("BYTES", [1], 5, name="b"),
    binary("INT16", [2], 4, name="c"),
    payload=b"\1\0\2\0" + b"\1\0\0\0x" + b"\3\0\4\0",
)

Make = Callable[..., Decoder[Any]]


class Kept:
    """Memory that outlives decoders: an array for each name."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def place(self, spec: TensorSpec) -> Placement:
        array = self.arrays.setdefault(spec.name, np.zeros(spec.shape, spec.datatype.dtype))
        return Into(array)


def v2(**options: Any) -> Decoder[Any]:  # noqa: ANN401 - those of a decoder
    return request_decoder(header_length=MIXED.header_length, body_length=len(MIXED.body), **options)


def texts(**options: Any) -> Decoder[Any]:  # noqa: ANN401 - those of a decoder
    return request_decoder(header_length=TEXTS.header_length, body_length=len(TEXTS.body), **options)


def rest_of(decoder: Decoder[Any]) -> list[tuple[str, bytes]]:
    """Take the events of a message that is complete; return its tensors."""
    found = []
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            found.append((event.spec.name, event.array.tobytes()))
    return found


def bytes_of(message: EncodedMessage | Message) -> bytes:
    return b"".join(message.buffers)


def samples() -> Iterator[tuple[str, tuple[Make, bytes, int]]]:
    """Yield for each format a name; what makes decoders, a message, and the length of its header."""
    yield "v2", (v2, MIXED.body, MIXED.header_length or 0)
    array = np.arange(6, dtype="<i4")
    file = bytes_of(npy.encode(array))
    yield "npy", (npy.decoder, file, len(file) - array.nbytes)
    tensors = bytes_of(safetensors.encode({"x": array, "y": array[:2]}))
    make = partial(safetensors.decoder, length=len(tensors))
    yield "safetensors", (make, tensors, len(tensors) - 32)
    for checksum in Checksum:
        frame = bytes_of(encode_frame(encode_request({"x": array}), Kind.REQUEST, checksum))
        start = len(frame) - array.nbytes - 4 * (checksum is Checksum.CRC32)
        yield f"frame-{checksum.name}", (request_frame_decoder, frame, start)


SAMPLES = dict(samples())


@pytest.mark.parametrize("is_pushed", [True, False])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_message_that_is_continued_at_any_byte_ends_as_the_whole_one(name: str, *, is_pushed: bool) -> None:
    make, body, start = SAMPLES[name]
    whole = make()
    assert whole.feed(body) == len(body)
    expected = rest_of(whole)
    end = len(body) - 4 * (name == "frame-CRC32")  # the checksum itself is in no tensor
    for place in places(range(start, end + 1)):
        kept = Kept()
        broken = make(place=kept.place)
        broken.feed(body[:place])
        assert broken.offset == place
        del broken
        decoder = make(place=kept.place)
        decoder.feed(body[:start])
        assert decoder.resume_at(place) == decoder.offset == place
        rest = body[place:]
        if is_pushed:
            assert decoder.feed(rest + b"next") == len(rest)
        while rest and not is_pushed:
            buffer = decoder.get_buffer()[:3]
            buffer[:] = rest[: len(buffer)]
            decoder.buffer_updated(len(buffer))
            rest = rest[len(buffer) :]
        assert decoder.is_complete
        assert rest_of(decoder) == expected


def test_bytes_may_be_passed_over_in_several_steps_and_then_come() -> None:
    start = MIXED.header_length or 0
    kept = Kept()
    kept.arrays["a"] = np.array([1, 2], "<i2")
    decoder = v2(place=kept.place)
    decoder.feed(MIXED.body[:start])
    assert decoder.resume_at(start) == start
    assert [decoder.resume_at(start + count) - start for count in (1, 2, 4)] == [1, 2, 4]
    decoder.feed(MIXED.body[start + 4 :])
    assert decoder.is_complete
    assert kept.arrays["a"].tolist() == [1, 2]


def test_a_message_that_was_whole_already_is_complete_at_once() -> None:
    kept = Kept()
    v2(place=kept.place).feed(MIXED.body)
    decoder = v2(place=kept.place)
    decoder.feed(MIXED.body[: MIXED.header_length])
    assert decoder.resume_at(len(MIXED.body) + 100) == len(MIXED.body)
    assert decoder.is_complete
    assert decoder.resume_at(len(MIXED.body)) == len(MIXED.body)


def test_texts_come_again_and_what_follows_them_is_passed_over() -> None:
    kept = Kept()
    texts(place=kept.place).feed(TEXTS.body)
    start, end = TEXTS.header_length or 0, len(TEXTS.body)
    decoder = texts(place=kept.place)
    decoder.feed(TEXTS.body[:start])
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match=f"byte {start + 4} of the message has to come again"):
            decoder.resume_at(end)
        assert decoder.offset == start + 4
    decoder.feed(TEXTS.body[start + 4 : start + 9])
    assert decoder.resume_at(end) == end
    assert [name for name, _ in rest_of(decoder)] == ["a", "b", "c"]


def test_new_memory_holds_no_bytes_from_before() -> None:
    start = MIXED.header_length or 0
    windows = Windows(max_window_bytes=2)
    for options in ({}, {"place": lambda _: windows}):
        decoder = v2(**options)
        decoder.feed(MIXED.body[:start])
        with pytest.raises(LocalProtocolError, match="in memory that existed before"):
            decoder.resume_at(start + 1)
        assert decoder.offset == start
    decoder = v2()
    with pytest.raises(LocalProtocolError, match="byte 0 of the message has to come again"):
        decoder.resume_at(start)
    decoder.feed(MIXED.body)
    assert decoder.is_complete


def test_a_decoder_does_not_go_back() -> None:
    decoder = v2(place=Kept().place)
    decoder.feed(MIXED.body[:-1])
    with pytest.raises(LocalProtocolError, match="cannot go back to byte 5"):
        decoder.resume_at(5)
    decoder.feed(MIXED.body[-1:])
    assert decoder.is_complete


def test_what_is_passed_over_is_checked() -> None:
    start = MIXED.header_length or 0
    kept = Kept()
    v2(place=kept.place).feed(MIXED.body)
    kept.arrays["d"].view(np.uint8)[1] = 2
    decoder = v2(place=kept.place)
    decoder.feed(MIXED.body[:start])
    assert decoder.resume_at(len(MIXED.body)) == start + 7
    with pytest.raises(RemoteProtocolError) as caught:
        rest_of(decoder)
    assert (caught.value.code, caught.value.offset) == (ErrorCode.INVALID_BOOL, start + 5)
    with pytest.raises(RemoteProtocolError):
        decoder.resume_at(len(MIXED.body))


def test_a_checksum_finds_memory_that_has_changed() -> None:
    make, body, start = SAMPLES["frame-CRC32"]
    kept = Kept()
    make(place=kept.place).feed(body)
    kept.arrays["x"][0] ^= 1
    decoder = make(place=kept.place)
    decoder.feed(body[:start])
    decoder.feed(body[decoder.resume_at(len(body) - 4) :])
    with pytest.raises(RemoteProtocolError, match="checksum"):
        rest_of(decoder)


def test_a_decoder_that_waits_is_asked_again() -> None:
    start = MIXED.header_length or 0
    kept = Kept()
    v2(place=kept.place).feed(MIXED.body)
    decoder = v2(place=kept.place, pause_after_header=True)
    decoder.feed(MIXED.body[:start])
    assert decoder.resume_at(start + 5) == start
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert isinstance(decoder.next_event(), type(NEED_DATA))
    assert decoder.resume_at(start + 5) == start + 5


def test_a_paced_decoder_checks_what_is_passed_over_in_turns() -> None:
    array = np.ones(3 << 20, np.uint8)
    frame = bytes_of(encode_frame(encode_request({"x": array}), Kind.REQUEST))
    decoder = request_frame_decoder(place=lambda _: Into(array), paced=True)
    decoder.feed(frame[: len(frame) - array.nbytes - 4])
    offset, turns = 0, 0
    while offset < len(frame) - 4:
        while (event := decoder.next_event()) is not NEED_DATA:
            if event is NEED_TURN:
                decoder.work()
                turns += 1
        offset = decoder.resume_at(len(frame) - 4)
    while decoder.is_paused:
        decoder.work()
    decoder.feed(frame[-4:])
    assert decoder.is_complete
    assert turns > 1


def test_a_decoder_in_use_is_left_alone() -> None:
    failures: list[str] = []

    class Nosy:
        def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
            try:
                decoder.resume_at(10_000)
            except LocalProtocolError as failure:
                failures.append(str(failure))
            return Into(np.zeros(spec.shape, spec.datatype.dtype)).slabs(spec)

    decoder = v2(place=lambda _: Nosy())
    decoder.feed(MIXED.body)
    assert decoder.is_complete
    assert len(failures) == 5
    assert "own callbacks" in failures[0]


WINDOWS = [np.arange(4, dtype="<i2").reshape(2, 2), np.array([[4, 5]], "<i2")]
MESSAGES: dict[str, EncodedMessage | Message] = {
    "v2": encode_request([Tensor(name="x", array=np.arange(3)), Tensor(name="y", array=np.array([b"ab", b""]))]),
    "rows": encode_request([Tensor(name=name, array=Rows("INT16", (3, 2), WINDOWS)) for name in "xy"]),
    "raw": encode_raw_request(np.arange(3)),
    "empty": encode_raw_request(np.arange(0)),
    "npy": npy.encode(np.arange(3)),
    "frame of rows": encode_frame(encode_request({"x": Rows("INT16", (3, 2), WINDOWS)}), Kind.REQUEST),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_an_encoded_message_begins_at_any_byte(name: str) -> None:
    message = MESSAGES[name]
    whole = bytes_of(message)
    for offset in range(len(whole) + 1):
        parts = [bytes(part) for part in message.buffers_from(offset)]
        assert b"".join(parts) == whole[offset:]
        assert all(parts)
    for offset in (-1, len(whole) + 1):
        with pytest.raises(LocalProtocolError, match=f"has no byte {offset}"):
            message.buffers_from(offset)


def test_nothing_is_copied_or_made_that_is_not_sent() -> None:
    array = np.arange(1000, dtype="<i4")

    never = map(pytest.fail, ["made"])
    message = encode_request([Tensor(name="x", array=Rows("INT16", (3,), never)), Tensor(name="y", array=array)])
    (buffer,) = message.buffers_from(message.body_length - 100)
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)
