"""The fields of the memory lane: what is accepted, and that everything else is refused."""

from __future__ import annotations

import pytest

from streamcodec import (
    DATATYPES,
    DEFAULT_LIMITS,
    Decoder,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    Reader,
    Reading,
    RemoteProtocolError,
    RequestHeader,
)
from streamcodec.engine.machine import Machine
from streamcodec.engine.memory.placement import new_array
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.header.parsing import long_request_header, parse_request_header
from streamcodec.formats.v2.lane import (
    MAX_LANE_TENSORS,
    check_inside,
    in_memory,
    parse_offsets,
    parse_places,
    parse_room,
)
from streamcodec.formats.v2.layout import Layout


def _spec(nbytes: int) -> TensorSpec:
    return TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(nbytes,), nbytes=nbytes, offset=0)


@pytest.mark.parametrize(
    ("value", "offsets"),
    [(b"0", (0,)), (b"64,128", (64, 128)), (b"4096, 0", (4096, 0)), (b"64, 64", (64, 64))],
)
def test_offsets(value: bytes, offsets: tuple[int, ...]) -> None:
    assert parse_offsets([value]) == offsets


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b"0", b"0"],
        [b""],
        [b"0,"],
        [b",0"],
        [b"0,  64"],
        [b"064"],
        [b"-64"],
        [b"+64"],
        [b"6_4"],
        [b"0x40"],
        [b"a64"],
        [b"64 "],
        [b"64\n"],
        [b"9" * 20],
        [b"1"],
        [b"0, 65"],
        [", ".join(["0"] * (MAX_LANE_TENSORS + 1)).encode()],
    ],
)
def test_offsets_that_are_refused(values: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_offsets(values)
    assert caught.value.code is ErrorCode.INVALID_MEMBER


def test_as_many_offsets_as_are_allowed() -> None:
    assert len(parse_offsets([", ".join(["64"] * MAX_LANE_TENSORS).encode()])) == MAX_LANE_TENSORS


@pytest.mark.parametrize(
    ("values", "room"),
    [([], range(0)), ([b"0, 4096"], range(4096)), ([b"64,0"], range(64, 64)), ([b"64, 4032"], range(64, 4096))],
)
def test_room(values: list[bytes], room: range) -> None:
    assert parse_room(values, 4096) == room


@pytest.mark.parametrize(
    "values",
    [[b"0, 4097"], [b"64, 4033"], [b"4160, 0"], [b"1, 1"], [b"0"], [b"0, 1, 2"], [b"0, -1"], [b"0, 1", b"0, 1"], [b""]],
)
def test_room_that_is_refused(values: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="Answer-Memory"):
        parse_room(values, 4096)


@pytest.mark.parametrize(
    ("value", "places"),
    [(b"a0", ((False, 0),)), (b"r7, a64", ((True, 7), (False, 64))), (b"a0,r1", ((False, 0), (True, 1)))],
)
def test_places(value: bytes, places: tuple[tuple[bool, int], ...]) -> None:
    assert parse_places([value]) == places


@pytest.mark.parametrize(
    "values", [[], [b"a0", b"a0"], [b"0"], [b"b0"], [b"a"], [b"a-1"], [b"a0;r1"], [b"a" + b"9" * 20]]
)
def test_places_that_are_refused(values: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="list of places"):
        parse_places(values)


def test_each_binary_tensor_with_bytes_has_a_place() -> None:
    tensors = [_spec(3), _spec(0), _spec(5)]
    assert in_memory(tensors, 2) == [tensors[0], tensors[2]]
    for count in (1, 3):
        with pytest.raises(RemoteProtocolError, match=f"names {count} places, the JSON header has 2"):
            in_memory(tensors, count)


@pytest.mark.parametrize("offset", [64, 100, 124])
def test_a_tensor_inside(offset: int) -> None:
    check_inside(_spec(4), offset, range(64, 128))


@pytest.mark.parametrize("offset", [0, 63, 125, 128, 1 << 62])
def test_a_tensor_that_is_not_inside(offset: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"4 bytes at {offset} is not inside"):
        check_inside(_spec(4), offset, range(64, 128))


def test_a_body_that_is_the_header_alone() -> None:
    """Its tensors are elsewhere, so their sizes do not count."""
    text = b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[9],"parameters":{"binary_data_size":9}}]}'
    layout: Layout[RequestHeader] = Layout(
        parse_request_header, long_request_header, len(text), allow_headerless=False, is_header_only=True
    )

    def read(reader: Reader) -> Reading[RequestHeader]:
        header = yield from layout.read(reader)
        assert [spec.nbytes for spec in header.tensors] == [9]
        return RequestHeader(tensors=())

    decoder = Decoder(Machine(read, length=len(text), limits=DEFAULT_LIMITS, check=None, place=new_array))
    assert decoder.feed(text + b"rest") == len(text)
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert decoder.next_event() == EndOfMessage(nbytes=len(text))
