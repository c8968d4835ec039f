"""Several targets: small tensors are placed a little ahead, so that one read fills many; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from streamcodec import (
    Decoder,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    Into,
    LocalProtocolError,
    Place,
    Placement,
    RemoteProtocolError,
    RequestHeader,
    Slab,
    TensorReceived,
    TensorSpec,
    Windows,
    encode_request,
    new_array,
    request_decoder,
)
from streamcodec.formats.frame import Kind, encode_frame, request_frame_decoder
from streamcodec.testing import run_pull, run_scatter
from tests.engine.triad import accept, cuts
from tests.formats.v2.messages import Members, Message, binary, jsonic, request

SMALL = [binary("INT16", [3], 6, name=f"t{index}") for index in range(100)]
BODY = np.arange(300, dtype="<i2")
MANY = request(*SMALL, payload=BODY.tobytes())


def after_header(message: Message, place: Place = new_array) -> Decoder[RequestHeader]:
    """Make a decoder that has read the header."""
    length = message.header_length
    decoder = request_decoder(header_length=length, body_length=message.body_length, place=place)
    decoder.feed(message.body[:length])
    assert isinstance(decoder.next_event(), HeaderReceived)
    return decoder


def fill(decoder: Decoder[RequestHeader], rest: bytes) -> int:
    """Fill all buffers there are, with one update; return how many bytes went into them."""
    count = 0
    for buffer in decoder.get_buffers():
        part = rest[count : count + len(buffer)]
        buffer[: len(part)] = part
        count += len(part)
    decoder.buffer_updated(count)
    return count


def test_at_most_64_small_tensors_at_once() -> None:
    decoder = after_header(MANY)
    counts = []
    rest = BODY.tobytes()
    while rest:
        buffers = decoder.get_buffers(65_536)
        assert len(buffers[0]) == len(decoder.get_buffer())
        assert all((buffer.format, buffer.readonly) == ("B", False) for buffer in buffers)
        counts.append(len(buffers))
        rest = rest[fill(decoder, rest) :]
    assert counts == [64, 36]
    arrays = [event.array for _ in range(100) if isinstance(event := decoder.next_event(), TensorReceived)]
    np.testing.assert_array_equal(np.concatenate(arrays), BODY)
    assert isinstance(decoder.next_event(), EndOfMessage)


@pytest.mark.parametrize("step", [1, 5, 6, 7, 100, 385])
def test_reads_that_fill_any_part_of_the_buffers(step: int) -> None:
    decoder = after_header(MANY)
    rest = BODY.tobytes()
    while rest:
        rest = rest[fill(decoder, rest[:step]) :]
    arrays = [event.array for _ in range(100) if isinstance(event := decoder.next_event(), TensorReceived)]
    np.testing.assert_array_equal(np.concatenate(arrays), BODY)
    assert decoder.is_complete


def test_nothing_is_placed_ahead_while_the_header_is_read_or_when_nobody_asks() -> None:
    seen: list[str] = []

    def place(spec: TensorSpec) -> Placement:
        seen.append(spec.name)
        return new_array(spec)

    decoder = request_decoder(header_length=MANY.header_length, body_length=len(MANY.body), place=place)
    assert len(decoder.get_buffers()) == 1
    decoder.feed(MANY.body[: MANY.header_length])
    decoder.get_buffer()
    assert seen == ["t0"]
    decoder.get_buffers()
    assert seen == [f"t{index}" for index in range(64)]
    decoder.get_buffers()
    assert len(seen) == 64


LARGE = 16 << 10


@pytest.mark.parametrize(
    ("second", "known"),
    [
        pytest.param([binary("INT8", [LARGE], LARGE)], 3, id="16 KiB"),
        pytest.param([binary("INT8", [LARGE + 1], LARGE + 1)], 1, id="more than 16 KiB"),
        pytest.param([binary("INT8", [0], 0)], 2, id="empty"),
        pytest.param([jsonic("INT8", [2], [1, 2])], 2, id="JSON"),
        pytest.param([jsonic("INT8", [LARGE + 1], [1] * (LARGE + 1))], 1, id="large JSON"),
        pytest.param([binary("BYTES", [1], 5)], 1, id="BYTES"),
        pytest.param([binary("BOOL", [2], 2)], 3, id="BOOL"),
    ],
)
def test_what_is_known_to_follow(second: list[Members], known: int) -> None:
    nbytes = int(second[0].get("parameters", {}).get("binary_data_size", 0))
    message = request(
        binary("INT8", [1], 1, name="first"), *second, binary("INT8", [2], 2, name="last"), payload=bytes(3 + nbytes)
    )
    assert len(after_header(message).get_buffers()) == known


def test_what_follows_a_large_target_does_not_matter_yet() -> None:
    large = 65_537
    message = request(binary("INT8", [large], large, name="a"), binary("INT8", [1], 1), payload=bytes(large + 1))
    decoder = after_header(message)
    assert list(map(len, decoder.get_buffers())) == [large]
    decoder.feed(b"x")
    assert list(map(len, decoder.get_buffers())) == [large - 1, 1]


@pytest.mark.parametrize("buffer_count", [1, 2])
def test_nothing_is_known_behind_a_window_that_is_waited_for(buffer_count: int) -> None:
    message = request(*(binary("INT8", [2], 2, name=name) for name in "abcd"), payload=bytes(8))
    windows = Windows(max_window_bytes=1, buffer_count=buffer_count)
    assert len(after_header(message, lambda _: windows).get_buffers()) == 1
    whole = Windows(max_window_bytes=2, buffer_count=buffer_count)
    assert len(after_header(message, lambda _: whole).get_buffers()) == (1 if buffer_count == 1 else 4)


def test_a_window_may_be_the_last_that_is_known() -> None:
    message = request(*(binary("INT8", [2], 2, name=name) for name in "abcd"), payload=bytes(8))
    places: dict[str, Placement] = {"b": Windows(max_window_bytes=1)}
    decoder = after_header(message, lambda spec: places.get(spec.name) or new_array(spec))
    assert list(map(len, decoder.get_buffers())) == [2, 1]
    fill(decoder, b"abc")
    assert decoder.is_paused


@pytest.mark.parametrize("excess", [1, 10])
def test_more_than_the_buffers_hold_is_misuse(excess: int) -> None:
    decoder = after_header(MANY)
    room = sum(map(len, decoder.get_buffers()))
    for nbytes in (room + excess, 0, -1):
        with pytest.raises(LocalProtocolError, match=f"{nbytes} bytes cannot"):
            decoder.buffer_updated(nbytes)
    decoder.buffer_updated(room)


def test_an_error_between_the_tensors_drops_what_was_written_behind_it() -> None:
    message = request(
        binary("INT8", [1], 1, name="a"),
        binary("BOOL", [2], 2, name="b"),
        binary("INT8", [3], 3, name="c"),
        payload=b"\1\1\2abc",
    )
    decoder = after_header(message)
    assert fill(decoder, message.body[-6:]) == 6
    assert not decoder.needs_data
    assert isinstance(decoder.next_event(), TensorReceived)
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_event()
    assert (caught.value.code, caught.value.offset) == (ErrorCode.INVALID_BOOL, len(message.body) - 4)
    assert decoder.offset == len(message.body) - 3


class CustomError(Exception):
    """What a program might raise."""


def failing(error: Exception) -> Callable[[TensorSpec], Placement]:
    def place(spec: TensorSpec) -> Placement:
        if spec.name == "t2":
            raise error
        return new_array(spec)

    return place


@dataclass(frozen=True)
class Slabs:
    """Slabs of these sizes, whatever the tensor's size."""

    sizes: tuple[int, ...]

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        assert spec.name
        for size in self.sizes:
            array = np.zeros(size, np.uint8)
            yield Slab(buffer=array.data, array=array)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (failing(CustomError()), CustomError),
        (failing(RemoteProtocolError("no", code=ErrorCode.MODEL_MISMATCH)), RemoteProtocolError),
        (lambda spec: Into(np.zeros(2)) if spec.name == "t2" else new_array(spec), LocalProtocolError),
        (lambda spec: Slabs(()) if spec.name == "t2" else new_array(spec), LocalProtocolError),
        (lambda spec: Slabs((7,)) if spec.name == "t2" else new_array(spec), LocalProtocolError),
        (lambda spec: Slabs((5,)) if spec.name == "t2" else new_array(spec), LocalProtocolError),
    ],
    ids=["place", "refusal", "into", "nothing", "too much", "too little"],
)
def test_what_goes_wrong_ahead_is_reported_when_its_turn_comes(place: Place, expected: type[Exception]) -> None:
    decoder = after_header(MANY, place)
    assert len(decoder.get_buffers()) in {2, 3}
    fill(decoder, BODY.tobytes())
    while decoder.needs_data:
        fill(decoder, b"x")
    received: list[object] = []
    with pytest.raises(expected):
        received.extend(iter(decoder.next_event, None))
    # A slab that is too small is reported before the next one turns out to be missing.
    assert 2 <= len(received) <= 3


def test_callbacks_that_run_ahead_cannot_use_the_decoder_and_an_interruption_is_noticed() -> None:
    raised: list[str] = []

    def place(spec: TensorSpec) -> Placement:
        if spec.name == "t1":
            with pytest.raises(LocalProtocolError, match="callbacks") as caught:
                decoder.feed(b"x")
            raised.append(str(caught.value))
        if spec.name == "t2":
            raise KeyboardInterrupt
        return new_array(spec)

    decoder = after_header(MANY, place)
    with pytest.raises(KeyboardInterrupt):
        decoder.get_buffers()
    assert raised
    with pytest.raises(LocalProtocolError, match="interrupted"):
        decoder.next_event()


def test_every_cut_through_several_targets_is_the_same_as_through_one() -> None:
    message = request(
        binary("INT16", [2], 4, name="a"),
        jsonic("INT8", [1], [5], name="b"),
        binary("BOOL", [3], 3, name="c"),
        binary("BYTES", [1], 5, name="d"),
        binary("FP32", [0], 0, name="e"),
        binary("INT8", [2], 2, name="f"),
        binary("INT8", [], 1, name="g"),
        payload=b"\1\0\2\0" + b"\1\0\1" + b"\1\0\0\0x" + b"abc",
    )
    assert len(accept(message)) == 7
    for form, step in ((message, 1), (message.chunked(), 7), (message.headerless(), 7)):
        for pieces in [*cuts(message.body)][::step]:
            pulled, scattered = (run(form.decoder, pieces, has_eof=False) for run in (run_pull, run_scatter))
            assert pulled.end is not None
            assert scattered.log == pulled.log


SLICE = 1 << 20
"""BOOL is checked, and a checksum computed, in slices of this size."""


@pytest.mark.parametrize("step", [1, 65_536])
@pytest.mark.parametrize("is_frame", [False, True])
def test_what_follows_a_slice_is_the_next_slice_and_not_the_next_tensor(step: int, is_frame: bool) -> None:
    mask = np.zeros(2 * SLICE + 3, bool)
    encoded = encode_request({"mask": np.ones_like(mask), "next": np.ones(4, np.uint8)})
    buffers = (encode_frame(encoded, Kind.REQUEST) if is_frame else encoded).buffers
    rest = b"".join(buffers)

    def place(spec: TensorSpec) -> Placement:
        return Into(mask) if spec.name == "mask" else new_array(spec)

    decoder = (
        request_frame_decoder(place=place)
        if is_frame
        else request_decoder(header_length=encoded.header_length, body_length=len(rest), place=place)
    )
    while not isinstance(decoder.next_event(), EndOfMessage):
        if decoder.needs_data:  # as much as leaves a little room in the target, and then more than that
            room = len(decoder.get_buffer())
            rest = rest[fill(decoder, rest[: room - step if room > step else step + 1]) :]
    assert mask.all()
