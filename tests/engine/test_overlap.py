"""Overlap: memory that belongs to another tensor is refused before a byte is written to it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    Decoder,
    HeaderReceived,
    Into,
    LocalProtocolError,
    Placement,
    RequestHeader,
    Slab,
    TensorReceived,
    TensorSpec,
    request_decoder,
)
from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.memory.claims import Claims
from tests.formats.v2.messages import binary, request

Values = np.ndarray[Any, Any]


def decoder_into(*arrays: Values, ahead: bool = False) -> tuple[Decoder[RequestHeader], bytes]:
    """Make a decoder for as many tensors as there are arrays, and their bytes."""
    inputs = [binary("UINT8", [*array.shape], array.nbytes, name=f"t{index}") for index, array in enumerate(arrays)]
    payload = bytes([7]) * sum(array.nbytes for array in arrays)
    message = request(*inputs, payload=payload)
    places = [Into(array) for array in reversed(arrays)]
    decoder = request_decoder(header_length=message.header_length, body_length=None, place=lambda _: places.pop())
    decoder.feed(message.body[: message.header_length])
    assert isinstance(decoder.next_event(), HeaderReceived)
    if ahead:
        decoder.get_buffers()
    return decoder, payload


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        [(0, 10), (0, 10)],
        [(0, 10), (9, 20)],
        [(10, 20), (0, 11)],
        [(0, 100), (50, 51)],
        [(50, 51), (0, 100)],
        [(0, 10), (20, 30), (40, 50), (29, 41)],
        [(40, 50), (20, 30), (0, 10), (5, 45)],
    ],
    ids=str,
)
def test_overlapping_memory_is_misuse_before_a_byte_is_written(parts: list[tuple[int, int]], ahead: bool) -> None:
    memory = np.zeros(100, np.uint8)
    decoder, payload = decoder_into(*(memory[start:end] for start, end in parts), ahead=ahead)
    decoder.feed(payload)
    for _ in parts[1:]:
        assert isinstance(decoder.next_event(), TensorReceived)
    with pytest.raises(LocalProtocolError, match=rf"tensors 't\d' and 't{len(parts) - 1}' were given memory"):
        decoder.next_event()
    assert np.count_nonzero(memory) == sum(end - start for start, end in parts[:-1])


@pytest.mark.parametrize("ahead", [False, True])
def test_parts_of_one_array_side_by_side(ahead: bool) -> None:
    memory = np.zeros((100, 3), np.uint8)
    order = np.random.default_rng(7).permutation(100)
    decoder, payload = decoder_into(*(memory[index : index + 1] for index in order), ahead=ahead)
    decoder.feed(payload)
    assert decoder.is_complete
    assert memory.min() == 7


def test_empty_arrays_overlap_with_nothing() -> None:
    memory = np.zeros(10, np.uint8)
    decoder, payload = decoder_into(memory, memory[5:5], memory[3:3])
    decoder.feed(payload)
    assert decoder.is_complete


def test_memory_is_kept_no_longer_than_the_message() -> None:
    array = np.zeros(10, np.uint8)
    memory = weakref.ref(array)
    decoder, payload = decoder_into(array, np.zeros(1, np.uint8))
    del array
    decoder.feed(payload)
    gc.disable()
    try:
        while isinstance(decoder.next_event(), TensorReceived):
            pass
        assert memory() is None
    finally:
        gc.enable()


@dataclass(frozen=True)
class Given:
    """Slabs of these buffers."""

    buffers: tuple[memoryview, ...]

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        for buffer in self.buffers:
            yield Slab(buffer=buffer, array=np.zeros(spec.shape))


def given_to(*placements: Placement) -> Decoder[RequestHeader]:
    message = request(*(binary("UINT8", [4], 4, name=f"t{index}") for index in range(len(placements))))
    places = iter(placements)
    decoder = request_decoder(header_length=message.header_length, body_length=None, place=lambda _: next(places))
    decoder.feed(message.body + bytes(4 * len(placements)))
    assert isinstance(decoder.next_event(), HeaderReceived)
    return decoder


@pytest.mark.parametrize(
    ("buffer", "complaint"),
    [
        (memoryview(bytes(4)), "read-only"),
        (memoryview(bytearray(4)).cast("i"), "contiguous memoryview of format 'B'"),
        (memoryview(bytearray(4)).cast("b"), "format 'B'"),
        (memoryview(bytearray(4)).cast("B", (2, 2)), "contiguous"),
        (memoryview(bytearray(8))[::2], "contiguous"),
    ],
)
def test_a_buffer_that_cannot_be_written_byte_by_byte_is_misuse(buffer: memoryview, complaint: str) -> None:
    decoder = given_to(Given((buffer,)))
    with pytest.raises(LocalProtocolError, match=complaint):
        decoder.next_event()


def test_slabs_of_one_tensor_may_share_memory_and_those_of_two_may_not() -> None:
    memory = memoryview(bytearray(6))
    decoder = given_to(Given((memory[:2], memory[1:3])), Given((memory[3:5], memory[3:5])), Given((memory[:4],)))
    for _ in range(4):
        assert isinstance(decoder.next_event(), TensorReceived)
    with pytest.raises(LocalProtocolError, match="'t2' were given memory that overlaps"):
        decoder.next_event()


@pytest.mark.parametrize("longer", [slice(4, 8), slice(0, 6)], ids=["at the end", "at the start"])
def test_what_a_later_slab_adds_is_claimed_too(longer: slice) -> None:
    memory = memoryview(bytearray(8))
    tensors = [
        TensorSpec(name=name, datatype=DATATYPES["UINT8"], shape=(8,), nbytes=8, offset=0) for name in ("own", "other")
    ]
    claims = Claims()
    claims.claim(tensors[0], memory[4:6])
    claims.claim(tensors[0], memory[longer])
    for place in range(longer.start, longer.stop):
        with pytest.raises(LocalProtocolError, match="tensors 'own' and 'other'"):
            claims.claim(tensors[1], memory[place : place + 1])


def test_claimed_memory_stays_alive() -> None:
    array = np.zeros(4, np.uint8)
    memory, claims = weakref.ref(array), Claims()
    claims.claim(TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(4,), nbytes=4, offset=0), array.data)
    del array
    assert memory() is not None
