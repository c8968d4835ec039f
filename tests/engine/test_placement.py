"""Placement: bytes go to the right memory, compared by address; no needless copies; no reference to the caller's."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    Decoder,
    HeaderReceived,
    Into,
    LocalProtocolError,
    NewArray,
    Placement,
    Pool,
    RequestHeader,
    Slab,
    TensorReceived,
    TensorSpec,
    request_decoder,
)
from streamcodec.engine.memory.placement import into_bytes, zeros
from tests.formats.v2.messages import AnyDecoder, Message, binary, jsonic, request

Values = np.ndarray[Any, Any]

FIXED = [name for name, datatype in DATATYPES.items() if not datatype.is_bytes]
INT32 = np.dtype("<i4")
VALUES = np.arange(6, dtype=INT32).reshape(2, 3)
GOOD = request(binary("INT32", [2, 3], 24), payload=VALUES.tobytes())
JSON = request(jsonic("INT32", [2, 3], VALUES.tolist()))


def into(message: Message, *arrays: Values) -> Decoder[RequestHeader]:
    """Make a decoder that puts tensors into these arrays."""
    places: Iterator[Placement] = map(Into, arrays)
    return decoder_for(message, places)


def decoder_for(message: Message, places: Iterator[Placement]) -> Decoder[RequestHeader]:
    return request_decoder(
        header_length=message.header_length, body_length=message.body_length, place=lambda _: next(places)
    )


def tensor_of(decoder: AnyDecoder) -> Values:
    """Take the header and the next tensor."""
    assert isinstance(decoder.next_event(), HeaderReceived)
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    return event.array


@pytest.mark.parametrize("name", FIXED)
def test_array_is_the_memory_that_the_transport_wrote_to(name: str) -> None:
    datatype = DATATYPES[name]
    good = request(binary(name, [2, 3], 6 * datatype.itemsize))
    decoder = good.chunked().decoder()
    decoder.feed(good.body)
    views = []
    for nbytes in (1, 5 * datatype.itemsize, datatype.itemsize - 1):
        if nbytes:
            view = decoder.get_buffer()
            view[:nbytes] = bytes(nbytes)
            decoder.buffer_updated(nbytes)
            views.append(view)
    decoder.next_event()
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    array = event.array
    for view in views:
        assert np.shares_memory(array, np.frombuffer(view, np.uint8))
    first = np.frombuffer(views[0], np.uint8)
    assert first.ctypes.data == array.ctypes.data
    assert array.ctypes.data % 64 == 0
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.dtype == datatype.dtype
    first[0] = 1
    assert array.tobytes()[0] == 1


def test_source_chunk_is_neither_kept_nor_exported() -> None:
    chunk = bytearray(GOOD.body)
    decoder = GOOD.decoder()
    decoder.feed(chunk)
    chunk[:] = b"\xff" * len(chunk)
    chunk.clear()
    chunk.extend(b"something else")
    np.testing.assert_array_equal(tensor_of(decoder), VALUES, strict=True)


def test_header_does_not_depend_on_its_scratch() -> None:
    good = request(binary("INT8", [1], 1, name="before"), id="before", payload=b"\1")
    decoder = good.decoder()
    view = decoder.get_buffer()
    view[:] = good.body[: len(view)]
    decoder.buffer_updated(len(view))
    view[:] = b"x" * len(view)
    event = decoder.next_event()
    assert isinstance(event, HeaderReceived)
    assert (event.header.id, event.header.tensors[0].name) == ("before", "before")


def test_bytes_elements_stay_in_the_memory_they_came_to_and_where_they_were_found() -> None:
    good = request(binary("BYTES", [1], 7), payload=b"\3\0\0\0abc")
    decoder = good.decoder()
    decoder.feed(good.body[: good.header_length])
    view = decoder.get_buffer()
    view[:] = good.body[good.header_length :]
    decoder.buffer_updated(len(view))
    view[:] = b"x" * len(view)
    decoder.next_event()
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    assert event.array.tolist() == [b"xxx"]


@pytest.mark.parametrize("message", [GOOD, JSON], ids=["binary", "json"])
def test_into_the_callers_own_array(message: Message) -> None:
    mine = np.full((2, 3), -1, "<i4")
    decoder = into(message, mine)
    if message is GOOD:
        decoder.feed(message.body[: message.header_length])
        assert np.shares_memory(mine, np.frombuffer(decoder.get_buffer(), np.uint8))
        decoder.feed(message.body[message.header_length or 0 :])
    else:
        decoder.feed(message.body)
    assert tensor_of(decoder) is mine
    np.testing.assert_array_equal(mine, VALUES, strict=True)


def test_into_a_part_of_a_larger_array_leaves_the_rest_alone() -> None:
    batch = np.full((4, 2, 3), -1, "<i4")
    into(GOOD, batch[2]).feed(GOOD.body)
    np.testing.assert_array_equal(batch[2], VALUES)
    assert (np.delete(batch, 2, axis=0) == -1).all()


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_into_subclasses_of_arrays(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    mapped = np.memmap(tmp_path / "x", "<i4", "w+", shape=(2, 3))
    matrix = np.zeros((2, 3), "<i4").view(np.matrix)
    for mine in (mapped, matrix):
        decoder = into(GOOD, mine)
        decoder.feed(GOOD.body)
        assert tensor_of(decoder) is mine
        np.testing.assert_array_equal(np.asarray(mine), VALUES)


def test_into_an_empty_and_a_scalar_array() -> None:
    good = request(binary("INT8", [0, 3], 0, name="a"), binary("INT8", [], 1, name="b"), payload=b"\7")
    empty, scalar = np.zeros((0, 3), np.int8), np.zeros((), np.int8)
    decoder = into(good, empty, scalar)
    decoder.feed(good.body)
    assert tensor_of(decoder) is empty
    assert scalar == 7


def read_only() -> Values:
    array = np.full((2, 3), -1, "<i4")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("mine", "complaint"),
    [
        pytest.param(np.full((3, 2), -1, "<i4"), rf"is {INT32} \[3, 2\], the tensor is {INT32} \[2, 3\]", id="shape"),
        pytest.param(np.full(6, -1, "<i4"), r"\[6\]", id="flat"),
        pytest.param(np.full((2, 3), 7, "<u4"), f"array is {np.dtype('<u4')}", id="sign"),
        pytest.param(np.full((2, 3), -1, "<f4"), f"array is {np.dtype('<f4')}", id="kind"),
        pytest.param(np.full((2, 3), -1, ">i4"), f"array is {np.dtype('>i4')}", id="big-endian"),
        pytest.param(np.full((2, 3), -1, object), "array is object", id="object"),
        pytest.param(read_only(), "writable", id="read-only"),
        pytest.param(np.full((3, 2), -1, "<i4").T, "C-contiguous", id="fortran"),
        pytest.param(np.full((2, 6), -1, "<i4")[:, ::2], "C-contiguous", id="strided"),
    ],
)
@pytest.mark.parametrize("message", [GOOD, JSON], ids=["binary", "json"])
def test_into_an_array_that_does_not_fit_is_misuse_before_a_byte_is_written(
    mine: Values, complaint: str, message: Message
) -> None:
    before = mine.copy()
    decoder = into(message, mine)
    assert decoder.feed(message.body) == message.header_length
    assert isinstance(decoder.next_event(), HeaderReceived)
    with pytest.raises(LocalProtocolError, match=complaint):
        decoder.next_event()
    np.testing.assert_array_equal(mine, before, strict=True)


# Placements of the caller's own making


@dataclass(frozen=True)
class Windows:
    """Consecutive rows in one reused buffer: constant memory for a tensor of any size."""

    rows: int

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        memory = np.zeros((self.rows, *spec.shape[1:]), spec.datatype.dtype)
        for start in range(0, spec.shape[0], self.rows):
            array = memory[: min(self.rows, spec.shape[0] - start)]
            yield Slab(buffer=array.reshape(-1).view(np.uint8).data, array=array)


@pytest.mark.parametrize(("datatype", "values"), [("INT16", list(range(10))), ("BOOL", [True, False] * 5)])
def test_tensor_may_come_in_windows_over_one_buffer(datatype: str, values: list[Any]) -> None:
    payload = np.array(values, DATATYPES[datatype].dtype).tobytes()
    good = request(binary(datatype, [5, 2], len(payload)), payload=payload)
    decoder = decoder_for(good, iter([Windows(2)]))
    seen: list[Any] = []
    shapes = []
    for byte in good.body:
        decoder.feed(bytes([byte]))
        event = decoder.next_event()
        if isinstance(event, TensorReceived):
            shapes.append(event.array.shape)
            seen += event.array.reshape(-1).tolist()
    assert decoder.is_complete
    assert shapes == [(2, 2), (2, 2), (1, 2)]
    assert seen == values


@dataclass(frozen=True)
class Slabs:
    """Slabs of these sizes, whatever the tensor's size."""

    sizes: tuple[int, ...]

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        assert spec.name == "x"
        for size in self.sizes:
            array = np.zeros(size, np.uint8)
            yield Slab(buffer=array.data, array=array)


@pytest.mark.parametrize("sizes", [(), (23,), (25,), (24, 1), (12, 13), (12, 0, 11)], ids=str)
@pytest.mark.parametrize("message", [GOOD, JSON], ids=["binary", "json"])
def test_placement_whose_memory_is_not_the_tensors_size_is_misuse(sizes: tuple[int, ...], message: Message) -> None:
    decoder = decoder_for(message, iter([Slabs(sizes)]))
    decoder.feed(message.body)
    assert isinstance(decoder.next_event(), HeaderReceived)
    with pytest.raises(LocalProtocolError, match=r"the tensor has 24"):
        _next_tensor_or_error(decoder, len(sizes))
    assert decoder.offset <= len(message.body)


def _next_tensor_or_error(decoder: Decoder[RequestHeader], slabs: int) -> None:
    for _ in range(slabs + 1):
        assert isinstance(decoder.next_event(), TensorReceived)


def test_placement_may_yield_empty_slabs() -> None:
    decoder = decoder_for(GOOD, iter([Slabs((0, 12, 0, 12, 0))]))
    decoder.feed(GOOD.body)
    assert decoder.is_complete


@pytest.mark.parametrize("count", [5, 50_000], ids=["short", "long"])
@pytest.mark.parametrize("is_late", [False, True], ids=["shape before data", "data before shape"])
def test_each_tensor_of_json_is_placed_too(count: int, is_late: bool) -> None:
    values = list(range(count))
    members = jsonic("INT32", [count], values)
    first = dict(reversed(members.items())) if is_late else members
    message = request(first, jsonic("INT32", [count], values, name="y"), jsonic("BYTES", [1], ["a"], name="z"))
    places = {name: Into(np.zeros(count, "<i4")) for name in ("x", "y")}
    asked = []

    def place(spec: TensorSpec) -> Placement:
        asked.append(spec.name)
        return places[spec.name]

    decoder = request_decoder(header_length=len(message.body), body_length=len(message.body), place=place)
    assert decoder.feed(message.body) == len(message.body)
    assert isinstance(decoder.next_event(), HeaderReceived)
    for into_array in places.values():
        event = decoder.next_event()
        assert isinstance(event, TensorReceived)
        assert event.array is into_array.array
        assert event.array.tolist() == values
    assert asked == ["x", "y"], "BYTES have no fixed layout"


def test_json_tensors_get_an_array_of_their_own() -> None:
    decoder = decoder_for(JSON, iter([NewArray()]))
    decoder.feed(JSON.body)
    header = decoder.next_event()
    event = decoder.next_event()
    assert isinstance(header, HeaderReceived)
    assert isinstance(event, TensorReceived)
    assert event.array.ctypes.data % 64 == 0
    assert header.header.tensors[0].data is not None
    np.testing.assert_array_equal(event.array, header.header.tensors[0].data, strict=True)


_BURSTS = """
import resource
from streamcodec import Tensor, encode_request, request_decoder
import numpy as np

message = encode_request([Tensor(name="x", array=np.ones(16384, np.float32))])
body = b"".join(message.buffers)

def burst():
    decoders = [request_decoder(header_length=message.header_length, body_length=len(body)) for _ in range(8)]
    for decoder in decoders:
        decoder.feed(body)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(20):
    burst()
before = faults()
for _ in range(100):
    burst()
print((faults() - before) / 800)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_tensors_of_64_kib_do_not_take_new_pages_each_time() -> None:
    """glibc would return the memory of each burst to the system: 16 pages of a tensor, and half of its CPU time."""
    done = subprocess.run([sys.executable, "-c", _BURSTS], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 4, "pages of a tensor"


def test_zeros_of_any_number_take_no_memory() -> None:
    assert bytes(zeros(5)) == bytes(5)
    many = min(1 << 50, sys.maxsize)  # which a machine of 32 bits can count
    assert len(zeros(many)) == many
    assert zeros(5).readonly


# What is no placement


class _Yielding:
    """A placement that yields anything."""

    def __init__(self, slab: object) -> None:
        self._slab = slab

    def slabs(self, _: TensorSpec) -> Iterator[Any]:
        yield self._slab


class _Failing:
    """A placement with an error of its own."""

    def slabs(self, _: TensorSpec) -> Iterator[Slab]:
        raise TypeError("its own")


def _failing_place(_: TensorSpec) -> Placement:
    return None.slabs  # type: ignore[attr-defined,no-any-return]  # an error of its own


NO_PLACES: dict[str, tuple[Any, type[Exception], str]] = {
    "a placement": (Pool(), LocalProtocolError, r"as lambda spec: placement, not .*Pool"),
    "a dict": ({}, LocalProtocolError, r"as lambda spec: placements\[spec.name\], not dict"),
    "an array": (lambda _: np.zeros(4), LocalProtocolError, r"place returned numpy.ndarray, not a placement, such as"),
    "nothing": (lambda _: None, LocalProtocolError, "place returned None, not"),
    "a class": (lambda _: Pool, LocalProtocolError, "place returned the class Pool, not"),
    "a list": (lambda _: Into([1]), LocalProtocolError, r"Into\(array\) fills a numpy array, not list"),  # type: ignore[arg-type]
    "arrays": (lambda _: _Yielding(np.zeros(4)), LocalProtocolError, "yields Slab objects, not numpy.ndarray"),
    "an array in a slab": (
        lambda _: _Yielding(Slab(buffer=np.zeros(16, np.uint8), array=None)),  # type: ignore[arg-type]
        LocalProtocolError,
        r"a memoryview of bytes, not numpy.ndarray; memoryview\(x\).cast\('B'\) is one",
    ),
    "an error of the placement": (lambda _: _Failing(), TypeError, "its own"),
    "an error of its own": (_failing_place, AttributeError, "NoneType"),
}


@pytest.mark.parametrize(("place", "kind", "words"), NO_PLACES.values(), ids=NO_PLACES)
def test_what_is_no_placement_is_refused_with_advice(
    place: Any,  # noqa: ANN401 - wrong on purpose
    kind: type[Exception],
    words: str,
) -> None:
    decoder = request_decoder(header_length=GOOD.header_length, body_length=GOOD.body_length, place=place)
    decoder.feed(GOOD.body)
    assert isinstance(decoder.next_event(), HeaderReceived)
    for _ in range(2):
        with pytest.raises(kind, match=words):
            decoder.next_event()


def test_what_is_no_slab_is_refused_ahead_of_its_turn_too() -> None:
    message = request(binary("INT8", [1], 1, name="a"), binary("INT8", [1], 1), payload=b"ab")
    decoder = decoder_for(message, iter([NewArray(), _Yielding(np.zeros(1, np.int8))]))
    decoder.feed(message.body[: message.header_length])
    (buffer,) = decoder.get_buffers()
    buffer[:] = b"a"
    decoder.buffer_updated(1)
    assert tensor_of(decoder).tolist() == [ord("a")]
    with pytest.raises(LocalProtocolError, match="yields Slab objects"):
        decoder.next_event()


def test_a_place_in_bytes_of_ones_own() -> None:
    memory = bytearray(64)
    spec = TensorSpec(name="x", datatype=DATATYPES["FP32"], shape=(2, 3), nbytes=24, offset=8)
    into = into_bytes(spec, memoryview(memory)[8:32])
    assert (into.array.shape, into.array.dtype) == ((2, 3), np.dtype("<f4"))
    into.array[:] = 1
    assert memory == bytes(8) + np.ones(6, "<f4").tobytes() + bytes(32)
