"""Windows: whole rows in memory that is used again, the same in every cut, and never before the consumer is done."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    NEED_DATA,
    Decoder,
    Discard,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    LimitExceededError,
    LocalProtocolError,
    Placement,
    RemoteProtocolError,
    RequestHeader,
    Slab,
    TensorReceived,
    TensorSpec,
    WindowReceived,
    Windows,
    new_array,
    request_decoder,
)
from streamcodec.testing import Outcome
from tests.engine.triad import decode, refuse
from tests.formats.v2.messages import Message, binary, jsonic, request

Values = np.ndarray[Any, Any]

ROWS = np.arange(10, dtype="<i2").reshape(5, 2)
BITS = np.array([[0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0]], np.bool_)
MIXED = request(
    binary("INT16", [5, 2], 20, name="rows"),
    jsonic("INT16", [5, 2], ROWS.tolist(), name="json"),
    binary("BYTES", [1], 5, name="bytes"),
    binary("FP32", [0, 3], 0, name="empty"),
    binary("FP64", [], 8, name="scalar"),
    binary("BOOL", [4, 3], 12, name="bits"),
    payload=ROWS.tobytes() + b"\1\0\0\0x" + np.float64(7).tobytes() + BITS.tobytes(),
)


def place_all(placement: Placement, _: TensorSpec) -> Placement:
    return placement


def make(message: Message, placement: Placement) -> Decoder[RequestHeader]:
    return request_decoder(
        header_length=message.header_length,
        body_length=message.body_length,
        place=partial(place_all, placement),
        allow_headerless=message.allow_headerless,
    )


def windows_of(outcome: Outcome) -> list[tuple[object, ...]]:
    """Names, first rows and shapes."""
    return [(name, row, description[1], last) for name, row, description, last in outcome.windows]


def content(outcome: Outcome, name: str) -> bytes:
    return b"".join(description[2] for other, _, description, _ in outcome.windows if other == name)


@pytest.mark.parametrize("buffer_count", [1, 2])
@pytest.mark.parametrize("form", ["whole", "chunked", "headerless"])
def test_every_cut_gives_the_same_windows(buffer_count: int, form: str) -> None:
    message = {"whole": MIXED, "chunked": MIXED.chunked(), "headerless": MIXED.headerless()}[form]
    outcome = decode(partial(make, message, Windows(max_window_bytes=8, buffer_count=buffer_count)), MIXED.body)
    assert outcome.error is None
    assert windows_of(outcome) == [
        ("rows", 0, (2, 2), False),
        ("rows", 2, (2, 2), False),
        ("rows", 4, (1, 2), True),
        ("json", 0, (2, 2), False),
        ("json", 2, (2, 2), False),
        ("json", 4, (1, 2), True),
        ("empty", 0, (0, 3), True),
        ("scalar", 0, (), True),
        ("bits", 0, (2, 3), False),
        ("bits", 2, (2, 3), True),
    ]
    assert content(outcome, "rows") == content(outcome, "json") == ROWS.tobytes()
    assert content(outcome, "bits") == BITS.tobytes()
    assert content(outcome, "scalar") == np.float64(7).tobytes()
    assert [event.spec.name for event in outcome.tensors] == ["bytes"]
    assert outcome.end == EndOfMessage(nbytes=len(MIXED.body))


@pytest.mark.parametrize("shape", [[0], [0, 3], [5, 0], [2, 0, 3]])
def test_a_tensor_without_elements_is_one_window(shape: list[int]) -> None:
    message = request(binary("INT8", shape, 0))
    outcome = decode(partial(make, message, Windows(max_window_bytes=1)), message.body)
    assert windows_of(outcome) == [("x", 0, tuple(shape), True)]


def test_windows_are_a_column_of_numbers_too() -> None:
    message = request(binary("INT16", [10], 20), payload=ROWS.tobytes())
    outcome = decode(partial(make, message, Windows(max_window_bytes=7)), message.body)
    assert [entry[1:3] for entry in windows_of(outcome)] == [(0, (3,)), (3, (3,)), (6, (3,)), (9, (1,))]


@pytest.mark.parametrize(("shape", "nbytes"), [([3, 5], 10), ([], 1)])
def test_a_row_that_is_larger_than_a_window_is_refused_before_memory_is_taken(shape: list[int], nbytes: int) -> None:
    size = 2 * int(np.prod(shape))
    message = request(binary("INT16", shape, size), payload=bytes(size))
    error = refuse(partial(make, message, Windows(max_window_bytes=nbytes - 1 or 1)), message.body)
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.status_hint) == ("max_window_bytes", 413)
    if nbytes > 1:
        decode(partial(make, message, Windows(max_window_bytes=nbytes)), message.body)


@pytest.mark.parametrize("arguments", [{"max_window_bytes": 0}, {"buffer_count": 0}, {"buffer_count": 3}])
def test_windows_that_could_never_be_meant(arguments: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError, match="at least 1 byte and 1 or 2 buffers"):
        Windows(**arguments)


def test_a_byte_of_bool_is_checked_in_its_window() -> None:
    message = request(binary("BOOL", [6], 6), payload=b"\1\0\1\1\2\0")
    outcome = decode(partial(make, message, Windows(max_window_bytes=2)), message.body)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.offset) == (ErrorCode.INVALID_BOOL, len(message.body) - 2)
    assert [entry[1] for entry in windows_of(outcome)] == [0, 2]


@pytest.mark.parametrize("missing", [1, 3, 5])
def test_windows_that_have_come_are_reported_before_the_end_that_came_too_early(missing: int) -> None:
    message = request(binary("INT8", [6], 6), payload=bytes(6))
    outcome = decode(partial(make, message, Windows(max_window_bytes=2)), message.body[:-missing])
    assert outcome.error is not None
    assert outcome.error.code == ErrorCode.TRUNCATED
    assert len(outcome.windows) == (6 - missing) // 2


# The waiting rule


def start(buffer_count: int) -> Decoder[RequestHeader]:
    """Make a decoder that has read a header of a tensor of four windows of two bytes, and a second tensor's."""
    message = request(binary("UINT8", [8], 8, name="a"), binary("UINT8", [2], 2, name="b"))
    decoder = request_decoder(
        header_length=len(message.body),
        body_length=None,
        place=partial(place_all, Windows(max_window_bytes=2, buffer_count=buffer_count)),
    )
    decoder.feed(message.body)
    assert isinstance(decoder.next_event(), HeaderReceived)
    return decoder


def window(decoder: Decoder[RequestHeader]) -> Values:
    event = decoder.next_event()
    assert isinstance(event, WindowReceived)
    return event.array


def assert_is_paused(decoder: Decoder[RequestHeader], rest: bytes = b"more") -> None:
    assert decoder.is_paused
    assert not decoder.needs_data
    assert not decoder.is_complete
    assert decoder.feed(rest) == 0
    for act in (decoder.get_buffer, decoder.get_buffers, lambda: decoder.buffer_updated(1)):
        with pytest.raises(LocalProtocolError, match=r"next_event\(\) until"):
            act()


def test_with_one_buffer_a_window_is_valid_until_the_next_event() -> None:
    decoder = start(1)
    rest = bytes([0, 0, 1, 1, 2, 2, 3, 3]) + b"zz"
    for value in range(4):
        assert decoder.feed(rest) == 2
        rest = rest[2:]
        assert_is_paused(decoder, rest)
        array = window(decoder)
        assert_is_paused(decoder, rest)
        assert array.tolist() == [value] * 2
        assert decoder.next_event() is NEED_DATA
        assert decoder.needs_data
        assert np.shares_memory(array, np.frombuffer(decoder.get_buffer(), np.uint8)) == (value < 3)
    decoder.feed(rest)
    assert window(decoder).tobytes() == b"zz"
    assert decoder.next_event() == EndOfMessage(nbytes=decoder.offset)
    assert decoder.is_complete


def test_with_two_buffers_the_last_two_windows_are_valid() -> None:
    decoder = start(2)
    assert decoder.feed(bytes([0, 0, 1, 1, 2, 2])) == 4
    assert_is_paused(decoder, bytes([2, 2]))
    first = window(decoder)
    second = window(decoder)
    assert_is_paused(decoder, bytes([2, 2]))
    assert (first.tolist(), second.tolist()) == ([0, 0], [1, 1])
    assert decoder.next_event() is NEED_DATA
    decoder.feed(bytes([2, 2, 3]))
    assert_is_paused(decoder, bytes([3]))
    third = window(decoder)
    assert (second.tolist(), third.tolist()) == ([1, 1], [2, 2])
    assert np.shares_memory(first, third)
    assert not np.shares_memory(second, third)
    assert decoder.next_event() is NEED_DATA
    decoder.feed(bytes([3, 3]))
    assert window(decoder).tolist() == [3, 3]
    assert third.tolist() == [2, 2]
    assert decoder.next_event() is NEED_DATA
    decoder.feed(b"zz")
    assert not decoder.is_paused
    assert decoder.is_complete


@pytest.mark.parametrize("takes_events", [False, True])
def test_the_next_call_says_that_a_rest_was_not_fed_again(takes_events: bool) -> None:
    decoder = start(1)
    assert decoder.feed(bytes([0, 0, 1, 1])) == 2
    if takes_events:
        window(decoder)
        assert decoder.next_event() is NEED_DATA
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match=r"feed the others, chunk\[taken:\], again"):
            decoder.feed(bytes([2, 2]))
    if not takes_events:
        window(decoder)
        assert decoder.next_event() is NEED_DATA
    assert decoder.feed(bytes([1, 1, 2, 2])) == 2  # nothing was lost: the right bytes are taken
    assert window(decoder).tolist() == [1, 1]


@pytest.mark.parametrize("size", [1, 3, 2000])
def test_a_rest_may_be_fed_in_any_pieces_and_through_both_interfaces(size: int) -> None:
    values = np.arange(3000, dtype="<u2")
    message = request(binary("UINT16", [3000], 6000), payload=values.tobytes())
    decoder = make(message, Windows(max_window_bytes=3000))
    rest, found = memoryview(message.body), bytearray()
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, WindowReceived):
            found += event.array.tobytes()
        elif event is NEED_DATA and len(rest) % 2:
            buffer = decoder.get_buffer()[:size]
            buffer[:] = rest[: len(buffer)]
            decoder.buffer_updated(len(buffer))
            rest = rest[len(buffer) :]
        elif event is NEED_DATA:
            rest = rest[decoder.feed(rest if len(found) == 3000 else rest[:size]) :]
    assert found == values.tobytes()


def test_what_follows_a_message_is_nobodys_rest() -> None:
    message = request(binary("INT8", [2], 2), payload=b"ab")
    decoder = make(message, Windows(max_window_bytes=2))
    assert decoder.feed(message.body + b"next") == len(message.body)
    assert isinstance(decoder.next_event(), HeaderReceived)
    window(decoder)
    assert isinstance(decoder.next_event(), EndOfMessage)
    assert decoder.feed(b"anything") == 0


def test_buffers_start_on_a_boundary_and_are_writable() -> None:
    decoder = start(2)
    decoder.feed(bytes(4))
    for array in (window(decoder), window(decoder)):
        assert array.ctypes.data % 64 == 0
        assert array.flags.writeable


@pytest.mark.parametrize("buffer_count", [1, 2])
def test_a_tensor_of_json_takes_no_more_memory_than_its_windows(buffer_count: int) -> None:
    message = request(jsonic("INT8", [9], list(range(9))))
    decoder = make(message, Windows(max_window_bytes=2, buffer_count=buffer_count))
    assert decoder.feed(message.body) == len(message.body)
    decoder.next_event()
    addresses, values = set(), []
    for _ in range(5):
        array = window(decoder)
        addresses.add(array.ctypes.data)
        values += array.tolist()
    assert isinstance(decoder.next_event(), EndOfMessage)
    assert values == list(range(9))
    assert len(addresses) == buffer_count


@pytest.mark.parametrize("complete", [False, True])
def test_the_end_of_input_is_remembered_while_a_window_is_in_use(complete: bool) -> None:
    message = request(binary("INT8", [4], 4), payload=b"abcd")
    decoder = make(message.chunked(), Windows(max_window_bytes=2))
    taken = decoder.feed(message.body)
    if complete:
        decoder.next_event()
        window(decoder)
        decoder.next_event()
        assert decoder.feed(message.body[taken:]) == 2
        decoder.receive_eof()
        assert_is_paused(decoder)
        window(decoder)
        assert isinstance(decoder.next_event(), EndOfMessage)
        return
    decoder.receive_eof()
    assert_is_paused(decoder, message.body[taken:])
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert window(decoder).tobytes() == b"ab"
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_event()
    assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, taken)


def test_a_decoder_that_is_dropped_within_a_window_leaves_nothing_behind() -> None:
    decoder = start(1)
    decoder.feed(b"zz")
    array = weakref.ref(window(decoder).base)
    gc.disable()
    try:
        assert array() is not None
        del decoder
        assert array() is None
    finally:
        gc.enable()


# Slabs of the caller's own making


@dataclass(frozen=True)
class Silent:
    """Has to be waited for after each byte, and shows only some of them."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        memory = np.zeros(1, np.uint8)
        for row in range(spec.nbytes):
            yield Slab(buffer=memory.data, array=memory if row % 3 == 0 else None, row=row, must_wait=True)


def test_a_pause_without_an_event_ends_by_itself() -> None:
    message = request(binary("UINT8", [7], 7), payload=bytes(range(7)))
    outcome = decode(partial(make, message, Silent()), message.body)
    assert [entry[1] for entry in windows_of(outcome)] == [0, 3, 6]
    assert content(outcome, "x") == bytes([0, 3, 6])


# Discard


def test_discarded_tensors_are_not_reported() -> None:
    outcome = decode(partial(make, MIXED, Discard()), MIXED.body)
    assert (outcome.windows, [event.spec.name for event in outcome.tensors]) == ([], ["bytes"])
    assert outcome.end == EndOfMessage(nbytes=len(MIXED.body))


def test_discarded_tensors_are_checked_all_the_same() -> None:
    message = request(binary("BOOL", [3], 3), payload=b"\1\2\0")
    assert refuse(partial(make, message, Discard()), message.body).code == ErrorCode.INVALID_BOOL


def test_one_of_several_tensors_is_discarded_through_little_memory() -> None:
    large = 1_000_000
    message = request(
        binary("INT8", [large], large, name="a"), binary("INT8", [1], 1, name="b"), payload=bytes(large) + b"\7"
    )
    decoder = request_decoder(
        header_length=message.header_length,
        body_length=message.body_length,
        place=lambda spec: Discard() if spec.name == "a" else new_array(spec),
    )
    decoder.feed(message.body[: message.header_length])
    sizes = []
    while decoder.needs_data:
        sizes.append(len(decoder.get_buffer()))
        decoder.get_buffer()[:] = message.body[decoder.offset : decoder.offset + sizes[-1]]
        decoder.buffer_updated(sizes[-1])
    assert max(sizes) == 64 << 10
    decoder.next_event()
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    assert event.array.tolist() == [7]


@pytest.mark.parametrize("name", [name for name, datatype in DATATYPES.items() if not datatype.is_bytes])
def test_windows_of_every_datatype(name: str) -> None:
    datatype = DATATYPES[name]
    payload = bytes([1]) * 6 * datatype.itemsize
    message = request(binary(name, [3, 2], len(payload)), payload=payload)
    decoder = replace(message, body_length=None)
    seen: list[Values] = []
    machine = make(decoder, Windows(max_window_bytes=2 * datatype.itemsize))
    rest = message.body
    while not machine.is_complete:
        rest = rest[machine.feed(rest) :]
        while (event := machine.next_event()) is not NEED_DATA and not isinstance(event, EndOfMessage):
            if isinstance(event, WindowReceived):
                seen.append(event.array.copy())
    assert {(array.shape, array.dtype) for array in seen} == {((1, 2), datatype.dtype)}
    assert b"".join(array.tobytes() for array in seen) == payload
