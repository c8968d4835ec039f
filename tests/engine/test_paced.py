"""A paced decoder does its work in pieces, one for each call of `work`. The outcome is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    RemoteProtocolError,
    Tensor,
    Windows,
    encode_request,
    request_decoder,
    response_decoder,
)
from tests.formats.v2.messages import Members, Message, binary, request


def empty(count: int) -> list[Members]:
    return [binary("INT8", [0], 0, name=f"t{index}") for index in range(count)]


def take(decoder: Any, body: bytes) -> tuple[list[Any], int]:  # noqa: ANN401 - a decoder of either kind
    """Feed a body; return the events, and how many turns were needed."""
    events, turns, rest = [], 0, memoryview(body)
    while True:
        rest = rest[decoder.feed(rest) :]
        event = decoder.next_event()
        if event is NEED_TURN:
            assert decoder.is_paused
            assert not decoder.needs_data
            assert decoder.feed(rest) == 0
            assert decoder.next_event() is NEED_TURN
            decoder.work()
            turns += 1
        elif event is NEED_DATA:
            assert not rest
            decoder.receive_eof()
        else:
            events.append(event)
            if isinstance(event, EndOfMessage):
                return events, turns


def paced(message: Message) -> Any:  # noqa: ANN401 - a decoder of either kind
    make = response_decoder if message.is_response else request_decoder
    return make(
        header_length=message.header_length,
        body_length=message.body_length,
        allow_headerless=message.allow_headerless,
        limits=message.limits,
        paced=True,
    )


def test_work_has_no_effect_where_there_is_none() -> None:
    decoder = paced(request())
    decoder.work()
    assert decoder.next_event() is NEED_DATA


def test_little_is_done_without_a_turn() -> None:
    message = request(binary("INT8", [3], 3), payload=b"abc")
    events, turns = take(paced(message), message.body)
    assert (len(events), turns) == (3, 0)


def test_a_long_header_is_parsed_in_a_turn() -> None:
    message = request(binary("INT8", [3], 3), payload=b"abc", id="x" * 5_000)
    events, turns = take(paced(message), message.body)
    assert (len(events), turns) == (3, 1)


def test_a_long_header_of_undeclared_length_is_parsed_in_a_turn() -> None:
    message = request(id="x" * 5_000)
    decoder = request_decoder(header_length=None, body_length=None, paced=True)
    events, turns = take(decoder, message.body)
    assert (len(events), turns) == (2, 1)


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_header_that_waits_for_its_turn_is_held(is_declared: bool) -> None:
    text = request(id="x" * 5_000).body
    length = len(text) if is_declared else None
    decoder = request_decoder(header_length=length, body_length=length, paced=True)
    decoder.feed(text)
    decoder.receive_eof()
    assert decoder.next_event() is NEED_TURN
    assert decoder.held_bytes == len(text)


def test_after_32_tensors_that_need_no_bytes_there_is_a_turn() -> None:
    message = request(*empty(200))
    events, turns = take(paced(message), message.body)
    assert len(events) == 202
    assert turns == 1 + 200 // 33


def test_after_32_tensors_whose_bytes_have_come_together_there_is_a_turn() -> None:
    entries = [binary("INT8", [1], 1, name=f"t{index}") for index in range(200)]
    message = request(*entries, payload=bytes(200))
    events, turns = take(paced(message), message.body)
    assert len(events) == 202
    assert turns == 1 + 200 // 33


def test_tensors_whose_bytes_come_one_by_one_need_no_turn() -> None:
    entries = [binary("INT8", [1], 1, name=f"t{index}") for index in range(40)]
    message = request(*entries, payload=bytes(40))
    decoder = paced(message)
    for byte in message.body:
        assert decoder.feed(bytes([byte])) == 1
    assert decoder.is_complete


def test_a_turn_does_not_come_between_targets_that_one_read_may_fill() -> None:
    message = request(binary("INT8", [1], 1), *empty(50), binary("INT8", [1], 1, name="y"), payload=b"ab")
    decoder = paced(message)
    length = message.header_length or 0
    decoder.feed(message.body[:length])
    decoder.work()
    first, second = decoder.get_buffers()
    first[:], second[:] = b"a", b"b"
    decoder.buffer_updated(2)
    events = [decoder.next_event() for _ in range(54)]
    assert isinstance(events[-1], EndOfMessage)


def test_the_end_of_input_may_come_during_a_turn() -> None:
    message = request(binary("INT8", [3], 3), payload=b"abc", id="x" * 5_000)
    decoder = paced(message)
    decoder.feed(message.body[:-3])
    assert decoder.next_event() is NEED_TURN
    decoder.receive_eof()
    decoder.work()
    decoder.next_event()
    with pytest.raises(RemoteProtocolError, match="3 bytes too early"):
        decoder.next_event()


def test_elements_are_found_while_they_come() -> None:
    elements = np.array([b"x" * (index % 7) for index in range(400_000)], object)
    message = encode_request([Tensor(name="x", array=elements)])
    decoder = request_decoder(header_length=message.header_length, body_length=message.body_length, paced=True)
    events, turns = take(decoder, b"".join(message.buffers))
    assert turns > 10
    assert decoder.held_bytes >= 400_000 * 8
    assert events[1].array.tolist() == elements.tolist()


def test_an_element_that_reaches_beyond_its_tensor_is_refused_before_all_has_come() -> None:
    nbytes = 4 << 20
    header = request(binary("BYTES", [10], nbytes)).body
    decoder = request_decoder(header_length=len(header), body_length=None)
    body = header + b"\0\0\0\0" + b"\xff" * ((1 << 20) - 4)
    assert decoder.feed(body) == len(body)
    decoder.next_event()
    with pytest.raises(RemoteProtocolError, match="element 1 of 10 declares") as refused:
        decoder.next_event()
    assert refused.value.offset == len(header) + 4


@pytest.mark.parametrize("place", [0, (1 << 20) - 1, 1 << 20, (2 << 20) + 5])
def test_a_wrong_boolean_is_refused_in_its_slice(place: int) -> None:
    header = request(binary("BOOL", [3 << 20], 3 << 20)).body
    values = bytearray(3 << 20)
    values[place] = 2
    decoder = request_decoder(header_length=len(header), body_length=None)
    taken = decoder.feed(header + values)
    assert taken == len(header) + (place // (1 << 20) + 1 << 20)
    decoder.next_event()
    with pytest.raises(RemoteProtocolError, match="neither 0 nor 1") as refused:
        decoder.next_event()
    assert refused.value.offset == len(header) + place


def test_a_window_that_follows_a_turn_asks_for_none() -> None:
    message = encode_request([Tensor(name="x", array=np.arange(4, dtype=np.uint8))], request_id="i" * (16 << 10))
    decoder = request_decoder(
        header_length=message.header_length,
        body_length=message.body_length,
        place=lambda _: Windows(max_window_bytes=1),
        paced=True,
    )
    data, found = b"".join(map(bytes, message.buffers)), []
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        found.append(type(event).__name__.removeprefix("_"))
        if event is NEED_TURN:
            decoder.work()
        else:
            data = data[decoder.feed(data) :]
    assert found[:3] == ["NeedData", "NeedTurn", "HeaderReceived"]
    assert "NeedTurn" not in found[3:]
    assert found.count("WindowReceived") == 4
