"""The decoder: its pull and push interfaces, its states, the caller's callbacks, and the errors for misuse."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    Decoder,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    Into,
    LocalProtocolError,
    OutOfMemoryError,
    Placement,
    RemoteProtocolError,
    RequestHeader,
    TensorReceived,
    TensorSpec,
    new_array,
    request_decoder,
    response_decoder,
)
from streamcodec.testing import describe_error
from tests.formats.v2.messages import AnyDecoder, binary, jsonic, request

MIXED = request(
    binary("INT16", [2], 4, name="a"),
    jsonic("INT8", [1], [5], name="b"),
    binary("BYTES", [1], 5, name="c"),
    binary("FP32", [0], 0, name="d"),
    binary("BOOL", [3], 3, name="e"),
    payload=b"\1\0\2\0" + b"\1\0\0\0x" + b"\1\0\1",
)
START = MIXED.header_length or 0


def events_of(decoder: AnyDecoder) -> list[str]:
    """Take all events; return short names."""
    names = []
    while (event := decoder.next_event()) is not NEED_DATA:
        match event:
            case TensorReceived(spec=spec):
                names.append(spec.name)
            case HeaderReceived() | EndOfMessage():
                names.append(type(event).__name__)
        if isinstance(event, EndOfMessage):
            break
    return names


def make(
    *, check: Callable[[RequestHeader], None] | None = None, place: Callable[[TensorSpec], Placement] = new_array
) -> Decoder[RequestHeader]:
    return request_decoder(header_length=START, body_length=len(MIXED.body), check=check, place=place)


def test_each_event_comes_with_the_last_byte_it_needs() -> None:
    decoder = MIXED.decoder()
    log: dict[int, list[str]] = {}
    for i in range(len(MIXED.body)):
        assert decoder.needs_data
        assert not decoder.is_complete
        assert decoder.feed(MIXED.body[i : i + 1]) == 1
        assert decoder.offset == i + 1
        if names := events_of(decoder):
            log[i + 1 - START] = names
    assert log == {0: ["HeaderReceived"], 4: ["a", "b"], 9: ["c", "d"], 12: ["e", "EndOfMessage"]}
    assert decoder.is_complete


def test_end_of_message_says_how_long_it_was() -> None:
    decoder = MIXED.decoder()
    decoder.feed(MIXED.body)
    *_, last = [decoder.next_event() for _ in range(7)]
    assert last == EndOfMessage(nbytes=len(MIXED.body))


def test_what_is_needed_has_a_readable_name() -> None:
    assert repr(NEED_DATA) == "NEED_DATA"
    assert repr(NEED_TURN) == "NEED_TURN"
    assert MIXED.decoder().next_event() is NEED_DATA


@pytest.mark.parametrize("callback", ["check", "place"])
def test_where_memory_runs_out_the_peer_may_try_again_later(callback: str) -> None:
    def fail(_: object) -> NoReturn:
        raise MemoryError

    callbacks: dict[str, Any] = {callback: fail}
    decoder = request_decoder(header_length=MIXED.header_length, body_length=None, **callbacks)
    decoder.feed(MIXED.body)
    if callback == "place":
        assert isinstance(decoder.next_event(), HeaderReceived)
    with pytest.raises(OutOfMemoryError, match="no memory to read the message") as caught:
        decoder.next_event()
    assert (caught.value.code, caught.value.status_hint) == (ErrorCode.OUT_OF_MEMORY, 503)
    assert not decoder.needs_data


def test_pull_face_reads_from_a_file_exactly_to_the_end_of_the_message() -> None:
    stream = io.BytesIO(MIXED.body + b"next")
    decoder = MIXED.decoder()
    while decoder.needs_data:
        decoder.buffer_updated(stream.readinto(decoder.get_buffer()))
    assert stream.read() == b"next"
    assert events_of(decoder)[-1] == "EndOfMessage"


def test_targets_are_the_header_and_then_each_tensor() -> None:
    decoder = MIXED.decoder()
    sizes = []
    rest = memoryview(MIXED.body)
    while decoder.needs_data:
        buffer = decoder.get_buffer(65_536)
        sizes.append(len(buffer))
        buffer[:] = rest[: len(buffer)]
        decoder.buffer_updated(len(buffer))
        rest = rest[len(buffer) :]
    assert sizes == [START, 4, 5, 3]


def test_buffer_is_the_same_until_it_is_updated() -> None:
    decoder = MIXED.decoder()
    assert len(decoder.get_buffer()) == len(decoder.get_buffer(-1)) == len(decoder.get_buffer(0)) == START
    decoder.get_buffer()[:10] = MIXED.body[:10]
    decoder.buffer_updated(10)
    assert len(decoder.get_buffer(3)) == START - 10


def test_faces_may_be_mixed() -> None:
    decoder = MIXED.decoder()
    decoder.feed(MIXED.body[:7])
    buffer = decoder.get_buffer()
    buffer[: START - 6] = MIXED.body[7 : START + 1][: len(buffer)]
    decoder.buffer_updated(len(buffer))
    assert decoder.feed(MIXED.body[START:] + b"next") == len(MIXED.body) - START
    assert events_of(decoder) == ["HeaderReceived", "a", "b", "c", "d", "e", "EndOfMessage"]


@pytest.mark.parametrize("nbytes", [0, -1, START + 1, 10**30])
def test_impossible_updates(nbytes: int) -> None:
    decoder = MIXED.decoder()
    decoder.get_buffer()
    with pytest.raises(LocalProtocolError, match=f"{nbytes} bytes cannot"):
        decoder.buffer_updated(nbytes)
    decoder.feed(MIXED.body)
    assert decoder.is_complete


def test_update_of_0_bytes_hints_at_the_end_of_input() -> None:
    with pytest.raises(LocalProtocolError, match="receive_eof"):
        MIXED.decoder().buffer_updated(0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_chunks_of_any_kind(kind: Any) -> None:  # noqa: ANN401 - a parametrized class
    decoder = MIXED.decoder()
    assert decoder.feed(kind(b"")) == 0
    assert decoder.feed(kind(MIXED.body)) == len(MIXED.body)


def test_chunk_of_wider_items_is_taken_as_bytes() -> None:
    good = request(binary("INT32", [2, 2], 16), payload=b"")
    decoder = good.chunked().decoder()
    decoder.feed(good.body)
    values = np.arange(4, dtype="<i4").reshape(2, 2)
    assert decoder.feed(values.data) == 16
    assert decoder.next_event() is not NEED_DATA
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    np.testing.assert_array_equal(event.array, values)


@pytest.mark.parametrize("lengths", [(-1, None), (None, -1), (-1, 5), (5, -1)])
def test_negative_lengths_are_misuse(lengths: tuple[int | None, int | None]) -> None:
    for maker in (request_decoder, response_decoder):
        with pytest.raises(LocalProtocolError, match="negative"):
            maker(header_length=lengths[0], body_length=lengths[1])


# The caller's callbacks


def test_check_sees_the_header_before_its_event_and_before_any_memory() -> None:
    seen: list[str] = []

    def place(spec: TensorSpec) -> Placement:
        seen.append(f"place {spec.name}")
        return new_array(spec)

    decoder = make(check=lambda header: seen.append(f"check {len(header.tensors)}"), place=place)
    decoder.feed(MIXED.body[:START])
    assert seen == ["check 5", "place a"]
    decoder.feed(MIXED.body[START:])
    assert seen == ["check 5", "place a", "place b", "place d", "place e"]  # BYTES go nowhere else


def test_check_refuses() -> None:
    def check(_: RequestHeader) -> None:
        raise RemoteProtocolError("no such model", code=ErrorCode.NOT_FOUND, status_hint=404)

    decoder = make(check=check)
    assert decoder.feed(MIXED.body) == START
    with pytest.raises(RemoteProtocolError, match="no such model"):
        decoder.next_event()


def test_place_refuses_after_the_events_before_it() -> None:
    def place(spec: TensorSpec) -> Placement:
        if spec.name == "e":
            raise RemoteProtocolError("too much", code=ErrorCode.MODEL_MISMATCH, path="$.inputs[4]")
        return new_array(spec)

    decoder = make(place=place)
    decoder.feed(MIXED.body)
    names: list[str] = []
    for _ in range(5):
        event = decoder.next_event()
        names.append(event.spec.name if isinstance(event, TensorReceived) else "")
    assert names == ["", "a", "b", "c", "d"]
    with pytest.raises(RemoteProtocolError, match="too much"):
        decoder.next_event()


class CustomError(Exception):
    """What a program might raise."""


def test_exception_of_a_callback_comes_out_as_it_is_and_stays() -> None:
    def place(_: TensorSpec) -> Placement:
        raise CustomError

    decoder = make(place=place)
    chunk = bytearray(MIXED.body)
    assert decoder.feed(chunk) == START
    chunk.clear()
    assert isinstance(decoder.next_event(), HeaderReceived)
    for act in (decoder.next_event, decoder.get_buffer, lambda: decoder.buffer_updated(1)):
        with pytest.raises(CustomError):
            act()
    more = bytearray(b"more")
    with pytest.raises(CustomError):
        decoder.feed(more)
    more.clear()
    decoder.receive_eof()
    assert not decoder.needs_data
    assert not decoder.is_complete


def test_interrupted_callback_leaves_a_decoder_that_says_so() -> None:
    def check(_: RequestHeader) -> None:
        raise KeyboardInterrupt

    decoder = make(check=check)
    with pytest.raises(KeyboardInterrupt):
        decoder.feed(MIXED.body)
    with pytest.raises(LocalProtocolError, match="interrupted"):
        decoder.next_event()


def test_decoder_cannot_be_used_from_its_own_callbacks() -> None:
    acts: list[Callable[[Decoder[RequestHeader]], object]] = [
        lambda decoder: decoder.feed(b"x"),
        lambda decoder: decoder.get_buffer(),
        lambda decoder: decoder.buffer_updated(1),
        lambda decoder: decoder.next_event(),
        lambda decoder: decoder.receive_eof(),
    ]
    errors: list[LocalProtocolError] = []

    def check(_: RequestHeader) -> None:
        assert not decoder.needs_data
        for act in acts:
            with pytest.raises(LocalProtocolError, match="callbacks") as caught:
                act(decoder)
            errors.append(caught.value)

    decoder = make(check=check)
    decoder.feed(MIXED.body)
    assert len(errors) == len(acts)
    assert decoder.is_complete


def test_local_error_of_a_placement_stays() -> None:
    decoder = make(place=lambda _: Into(np.zeros(1)))
    decoder.feed(MIXED.body)
    decoder.next_event()
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="array is float64"):
            decoder.next_event()


# After the end


def test_eof_after_the_message_is_harmless() -> None:
    decoder = MIXED.decoder()
    decoder.feed(MIXED.body)
    decoder.receive_eof()
    decoder.receive_eof()
    assert decoder.is_complete
    assert len(events_of(decoder)) == 7


def test_error_is_the_same_at_every_call_and_its_traceback_does_not_grow() -> None:
    decoder = MIXED.decoder()
    decoder.receive_eof()
    raised = []
    for _ in range(3):
        with pytest.raises(RemoteProtocolError) as caught:
            decoder.next_event()
        raised.append((describe_error(caught.value), len(caught.traceback)))
    assert raised[0] == raised[1] == raised[2]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only what reference counting frees is freed."""
    gc.disable()
    yield
    gc.enable()


def _start(body: bytes) -> tuple[Decoder[RequestHeader], weakref.ref[Any]]:
    array = np.zeros(3, np.bool_)
    places = [Into(array)]
    good = request(binary("BOOL", [3], 3))
    decoder = request_decoder(header_length=len(good.body), body_length=None, place=lambda _: places.pop())
    decoder.feed(good.body + body)
    return decoder, weakref.ref(array)


def test_a_decoder_that_pauses_after_the_header_has_placed_nothing_until_it_goes_on() -> None:
    placed: list[str] = []

    def place(spec: TensorSpec) -> Placement:
        placed.append(spec.name)
        return new_array(spec)

    decoder = request_decoder(
        header_length=MIXED.header_length, body_length=MIXED.body_length, place=place, pause_after_header=True
    )
    taken = decoder.feed(MIXED.body)
    assert taken == MIXED.header_length
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert decoder.is_paused
    assert not decoder.needs_data
    assert not placed
    assert decoder.next_event() is NEED_DATA  # says to go on
    assert decoder.feed(MIXED.body[taken:]) == len(MIXED.body) - taken
    assert placed == ["a", "b", "d", "e"]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("body", [b"\1\2\1", b"\1"], ids=["refused", "truncated"])
def test_memory_of_a_refused_message_is_free_at_once(body: bytes) -> None:
    decoder, array = _start(body)
    decoder.receive_eof()
    decoder.next_event()
    with pytest.raises(RemoteProtocolError):
        decoder.next_event()
    assert array() is None


@pytest.mark.usefixtures("no_collector")
def test_memory_of_an_abandoned_message_is_free_at_once() -> None:
    decoder, array = _start(b"\1")
    assert array() is not None
    del decoder
    assert array() is None
