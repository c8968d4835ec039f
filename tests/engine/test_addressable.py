"""What a machine of 32 bits can address: sizes beyond it are refused as by a limit, with their place.

The bound is lowered to that of 32 bits. Then a machine of 64 bits refuses the same messages in the same way. What only
a machine of 32 bits shows (integers that do not fit into its registers) is shown by `tests/platforms`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    Datatype,
    Discard,
    Elements,
    HeaderReceived,
    LimitExceededError,
    Limits,
    MemoryMap,
    NewArray,
    Place,
    Placement,
    Pool,
    Reader,
    RemoteProtocolError,
    TensorReceived,
    TensorSpec,
    WindowReceived,
    Windows,
    format_decoder,
    request_decoder,
)
from streamcodec.engine import limits
from streamcodec.engine.elements import prefixes
from streamcodec.formats import safetensors
from streamcodec.formats.frame import request_frame_decoder
from streamcodec.formats.frame.head import Checksum, FrameHead, Kind
from tests.formats.npy import files as npy
from tests.formats.v2.messages import Members, Message, binary, jsonic, request

BOUND = (1 << 31) - 1
GIB = 1 << 30


@pytest.fixture(autouse=True)
def of_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADDRESSABLE_BYTES", BOUND)


def new_array(_: TensorSpec) -> Placement:
    return NewArray()


def refused(message: Message, place: Place = new_array) -> LimitExceededError:
    """Return the error for a message, of which no more is given than its beginning."""
    decoder = request_decoder(header_length=message.header_length, body_length=None, limits=message.limits, place=place)
    decoder.feed(message.body)
    error = None
    while error is None:
        try:
            assert decoder.next_event() is not NEED_DATA
        except LimitExceededError as caught:
            error = caught
    assert error.status_hint == 413
    return error


@pytest.mark.parametrize(
    ("tensor", "path"),
    [
        (binary("FP32", [0, 1 << 39], 0), "$.inputs[0].shape"),
        (binary("UINT8", [0, 1 << 31], 0), "$.inputs[0].shape"),
        (binary("FP64", [1 << 20, 0, 1 << 8], 0), "$.inputs[0].shape"),
        (binary("BYTES", [1 << 29, 0], 0), "$.inputs[0].shape"),
        (jsonic("FP64", [0, 1 << 28], []), "$.inputs[0].shape"),
    ],
    ids=str,
)
def test_shapes_without_elements(tensor: Members, path: str) -> None:
    message = request(tensor)
    assert len(message.body) < 150
    error = refused(message)
    assert (error.limit, error.path) == ("max_elements", path)


def test_the_largest_shape_without_elements_is_accepted() -> None:
    message = request(binary("UINT8", [0, BOUND], 0))
    decoder = message.decoder()
    decoder.feed(message.body)
    decoder.next_event()
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    assert event.array.shape == (0, BOUND)


HUGE = request(binary("INT16", [2], 4, name="before"), binary("UINT8", [3 * GIB], 3 * GIB), payload=bytes(4))
"""The beginning of a message of 3 GiB; all that comes of it before its large tensor."""


@pytest.mark.parametrize("kind", ["new array", "pool", "file", "windows"])
def test_tensors_that_need_memory_in_one_piece(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.npy"
    placements: dict[str, Placement] = {
        "new array": NewArray(),
        "pool": Pool(),
        "file": MemoryMap(path),
        "windows": Windows(max_window_bytes=4 * GIB),
    }
    error = refused(HUGE, lambda spec: NewArray() if spec.name == "before" else placements[kind])
    assert (error.limit, error.offset, error.path) == ("max_tensor_bytes", len(HUGE.body), None)
    assert "more than this machine can address" in error.message
    assert not path.exists()


def test_tensors_that_need_no_such_memory() -> None:
    data = HUGE.body + bytes(1 << 17)
    discarding = request_decoder(header_length=HUGE.header_length, body_length=None, place=lambda _: Discard())
    assert discarding.feed(data) == len(data)
    rows = Windows(max_window_bytes=1 << 16)
    decoder = request_decoder(header_length=HUGE.header_length, body_length=None, place=lambda _: rows)
    left, events = memoryview(data), []
    for _ in range(8):
        left = left[decoder.feed(left) :]
        events.append(decoder.next_event())
    assert isinstance(events[0], HeaderReceived)
    assert [event.row for event in events if isinstance(event, WindowReceived)] == [0, 0, 1 << 16]


def test_values_of_json() -> None:
    message = request(jsonic("FP64", [1 << 28], [1] * 20_000)).under(max_json_tensor_bytes=1 << 40)
    error = refused(message)
    assert (error.limit, error.path) == ("max_json_tensor_bytes", "$.inputs[0].data")


def test_texts() -> None:
    long = request(binary("BYTES", [4], 3 * GIB))
    error = refused(long)
    assert (error.limit, error.offset) == ("max_tensor_bytes", len(long.body))
    many = request(binary("BYTES", [1 << 28], GIB)).under(max_bytes_elements=1 << 40)
    error = refused(many)
    assert (error.limit, error.offset) == ("max_bytes_elements", len(many.body))


def test_a_length_beyond_the_last_address(monkeypatch: pytest.MonkeyPatch) -> None:
    unpack = struct.Struct("<I").unpack_from

    def unpacked(view: memoryview, position: int) -> tuple[int]:
        if position > BOUND:
            raise OverflowError  # as with 32 bits, where a place in memory has 31
        found: tuple[int] = unpack(view, position)
        return found

    monkeypatch.setattr(prefixes, "_unpack", unpacked)
    with pytest.raises(RemoteProtocolError, match="element 0 of 2 declares 2147483647 bytes, 4 are left") as caught:
        Elements.from_wire(struct.pack("<II", BOUND, 0), (2,), offset=100)
    assert (caught.value.code, caught.value.offset) == ("invalid-elements", 100)


def test_offsets_have_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = np.arange

    def arange(*arguments: Any, dtype: Any = np.int32) -> np.ndarray[Any, Any]:  # noqa: ANN401 - those of numpy
        return usual(*arguments, dtype=dtype)

    even, uneven = [b"ab", b"cd"], [b"", b"abc"]
    monkeypatch.setattr(np, "arange", arange)
    for values in (even, uneven):
        made = Elements(values)
        ends, data = made.compact()
        for elements in (made, Elements.from_compact(ends, data), Elements.from_wire(made.data, (2,))):
            assert elements.offsets.dtype == np.int64
            assert list(elements) == values
        assert ends.dtype == np.int64


def test_headers() -> None:
    def read(reader: Reader) -> Any:  # noqa: ANN401 - a format that does not get to its header
        yield from reader.read(3 * GIB)

    decoder = format_decoder(read, limits=Limits(max_header_bytes=1 << 40, max_message_bytes=1 << 40))
    with pytest.raises(LimitExceededError) as caught:
        decoder.next_event()
    assert caught.value.limit == "max_header_bytes"


def test_formats_of_ones_own() -> None:
    def read(_: Reader) -> Any:  # noqa: ANN401 - the header of a format
        yield from ()
        datatype = Datatype("V", np.dtype("V1000"))
        spec = TensorSpec(name="x", datatype=datatype, shape=(0, 1 << 22), nbytes=0, offset=0)
        return SimpleNamespace(tensors=(spec,))

    with pytest.raises(LimitExceededError) as caught:
        format_decoder(read).next_event()
    assert (caught.value.limit, caught.value.path) == ("max_elements", "tensors[0]")


def test_files() -> None:
    error = npy.read(npy.changed(b"", descr="'<f8'", shape=f"(0, {1 << 28})")).error
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.path) == ("max_elements", "shape")
    with pytest.raises(LimitExceededError, match="more than this machine can address"):
        npy.read_archive(npy.zipped({"a.npy": npy.changed(b"", shape=f"(0, {1 << 31})")}))
    text = b'{"a":{"dtype":"F32","shape":[0,549755813888],"data_offsets":[0,0]}}'
    decoder = safetensors.decoder()
    decoder.feed(len(text).to_bytes(8, "little") + text)
    with pytest.raises(LimitExceededError) as caught:
        decoder.next_event()
    assert (caught.value.limit, caught.value.path) == ("max_elements", "$['a'].shape")


def test_frames() -> None:
    body = request(binary("FP32", [0, 1 << 39], 0)).body
    head = FrameHead(kind=Kind.REQUEST, checksum=Checksum.NONE, body_length=len(body), header_length=len(body))
    decoder = request_frame_decoder()
    decoder.feed(head.write() + body)
    with pytest.raises(LimitExceededError) as caught:
        decoder.next_event()
    assert (caught.value.limit, caught.value.path) == ("max_elements", "$.inputs[0].shape")


def test_items_of_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are beyond 64 bits, too."""
    monkeypatch.setattr(limits, "ADDRESSABLE_BYTES", (1 << 63) - 1)
    error = npy.read(npy.changed(b"", descr="'|V99999999'", shape=f"(0, {1 << 40})")).error
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.path) == ("max_elements", "shape")
