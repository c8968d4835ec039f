"""Elements: one buffer with offsets, and its conversions."""

from __future__ import annotations

import copy
import pickle
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    Elements,
    EndOfMessage,
    ErrorCode,
    LocalProtocolError,
    OutOfMemoryError,
    Tensor,
    TensorReceived,
    encode_raw_request,
    encode_request,
    request_decoder,
)
from streamcodec.engine.elements import elements as elements_module
from streamcodec.engine.elements import payloads
from tests.effort import examples
from tests.formats.v2.messages import Message, binary, jsonic, request

Values = np.ndarray[Any, Any]
LISTS = st.lists(st.binary(max_size=6), max_size=30) | st.lists(st.binary(min_size=2, max_size=2), max_size=30)


def wire(elements: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def objects(values: list[Any], *shape: int) -> Values:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape) if shape else array


def received(message: Message) -> list[TensorReceived]:
    decoder = message.decoder()
    decoder.feed(message.body)
    events = []
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            events.append(event)
    return events


@settings(max_examples=examples(200))
@given(LISTS)
def test_all_ways_in_and_out_agree(values: list[bytes]) -> None:
    made = Elements(values)
    assert bytes(made.data) == wire(values)
    assert made.nbytes == len(wire(values))
    compact_offsets, compact = made.compact()
    assert compact.tobytes() == b"".join(values)
    assert np.diff(compact_offsets).tolist() == [len(value) for value in values]
    for other in (
        Elements.from_wire(wire(values), (len(values),)),
        Elements.from_compact(compact_offsets, compact),
        Elements.from_compact(compact_offsets + 3, b"..." + compact.tobytes() + b".", (len(values), 1)),
        Elements(objects(values)),
        Elements(iter(values)),
    ):
        assert bytes(other.data) == wire(values)
        assert other.offsets.tolist() == made.offsets.tolist()
        assert other.array.reshape(-1).tolist() == values
        assert list(other) == values
        assert [other[index] for index in range(len(other))] == values
        assert other.shape in {(len(values),), (len(values), 1)}


def test_many_objects_are_joined_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "_JOINED_COUNT", 3)
    for values in ([b"ab"] * 10, [b"a" * (index % 4) for index in range(10)]):
        assert bytes(Elements(values).data) == wire(values)
        assert list(Elements(values)) == values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(objects(["é", b"\xff", bytearray(b"b"), memoryview(b"m")]), ["é".encode(), b"\xff", b"b", b"m"]),
        pytest.param(np.array(["a", "bcd"]), [b"a", b"bcd"]),
        pytest.param(np.array([b"a", b"bcd"]), [b"a", b"bcd"]),
        pytest.param(objects([np.bytes_(b"x"), np.str_("y")]), [b"x", b"y"]),
        pytest.param(objects([np.array([1, 2], "<u2").data]), [b"\1\0\2\0"]),
        pytest.param(objects([b"1", b"2", b"3", b"4"], 2, 2).T, [b"1", b"3", b"2", b"4"]),
        pytest.param(objects([b"s"]).reshape(()), [b"s"]),
    ],
    ids=["mixed", "U", "S", "numpy", "shorts", "transposed", "scalar"],
)
def test_what_elements_are_made_of(values: Values, expected: list[bytes]) -> None:
    made = Elements(values)
    assert (list(made), made.shape, len(made)) == (expected, values.shape, len(expected))
    assert made.array.shape == values.shape


@pytest.mark.parametrize("wrong", [5, None, [b"a"], np.zeros(1, np.uint8)], ids=repr)
def test_what_elements_cannot_be_made_of(wrong: object) -> None:
    with pytest.raises(LocalProtocolError, match=f"bytes or str, not {type(wrong).__name__}"):
        Elements(objects([b"a", wrong]))


def test_a_lone_surrogate_has_no_bytes() -> None:
    with pytest.raises(LocalProtocolError, match="lone surrogate"):
        Elements(["a", "\ud800"])


def test_an_element_too_long_for_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_PAYLOAD_BYTES", 9)
    for values in ([b"x" * 10], [b"x", b"x" * 10]):
        with pytest.raises(LocalProtocolError, match="has 10 bytes"):
            Elements(values)
    with pytest.raises(LocalProtocolError, match="has 10 bytes"):
        Elements.from_compact([0, 1, 11], bytes(11))
    assert len(Elements([b"x" * 9])) == 1


@pytest.mark.parametrize(
    ("offsets", "wanted"),
    [
        ([], "integers of shape"),
        ([[0, 1]], "integers of shape"),
        ([0.0, 1.0], "integers of shape"),
        ([-1, 1], "ascending"),
        ([0, 4], "ascending"),
        ([0, 2, 1], "ascending"),
        (np.array([0, 2**64 - 1], np.uint64), "ascending"),
        ([0, -(2**63), 2], "ascending"),
    ],
)
def test_compact_offsets_that_are_none(offsets: Any, wanted: str) -> None:  # noqa: ANN401 - anything
    with pytest.raises(LocalProtocolError, match=wanted):
        Elements.from_compact(offsets, b"abc")


def test_a_shape_of_another_number_of_elements() -> None:
    with pytest.raises(LocalProtocolError, match=r"2 elements, unlike the shape \[3\]"):
        Elements.from_compact([0, 1, 2], b"ab", (3,))


def test_offsets_of_any_integers() -> None:
    for dtype in ("<i4", ">i4", "u1", "<u8"):
        assert list(Elements.from_compact(np.array([0, 1, 3], dtype), b"abc")) == [b"a", b"bc"]


def test_one_element_by_its_number() -> None:
    made = Elements(objects([b"a", b"", b"ccc", b"d"], 2, 2))
    assert [made[2], made[-1], made[-4], made[np.int64(1)]] == [b"ccc", b"d", b"a", b""]
    for index in (4, -5):
        with pytest.raises(IndexError, match=f"element {index} of 4"):
            made[index]


@pytest.mark.parametrize("lengths", [[2], [0], [0, 1, 2, 300]])
def test_objects_are_made_some_at_a_time(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements_module, "_MADE_AT_ONCE", 7)
    values = [bytes([index % 200]) * lengths[index % len(lengths)] for index in range(100)]
    made = Elements(objects(values, 10, 10))
    assert list(made) == values
    assert made.array.tolist() == [values[start : start + 10] for start in range(0, 100, 10)]
    for part in (slice(3, 40), slice(None), slice(-8, None), slice(50, 50), slice(40, 3), slice(96, 200)):
        assert made[part].tolist() == values[part]
        assert made[part].dtype == object
    with pytest.raises(IndexError, match="step 1, not 2"):
        made[::2]


def test_some_objects_are_made_without_the_others() -> None:
    made = Elements([b"ab"] * 100_000)
    tracemalloc.start()
    try:
        assert made[10:20].tolist() == [b"ab"] * 10
        assert sum(map(len, made)) == 200_000
        assert tracemalloc.get_traced_memory()[1] < 100_000 * 40
    finally:
        tracemalloc.stop()


def test_nothing_can_be_changed() -> None:
    memory = bytearray(wire([b"ab", b"c"]))
    made = Elements.from_wire(memory, (2,))
    for array in (made.data, made.offsets, Elements([b"a"]).data, Elements.from_compact([0, 1], b"a").data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        made.shape = (3,)  # type: ignore[misc]  # what a program without types might try


def test_what_compact_returns_is_the_callers() -> None:
    for values in ([b"ab"], [b"ab", b"c"]):
        made = Elements(values)
        offsets, data = made.compact()
        data[:] = 0
        offsets[:] = 0
        assert list(made) == values


def test_objects_are_made_once_and_numpy_has_them() -> None:
    made = Elements([b"a", b"b\0"])
    assert made.array is made.array
    assert np.asarray(made) is made.array
    assert np.asarray(made, "S2").tolist() == [b"a", b"b"]
    assert made.__array__("S2").dtype == "S2"
    assert made.__array__(copy=True) is not made.array
    with pytest.raises(ValueError, match="copy"):
        made.__array__("S2", copy=False)
    assert repr(made) == "Elements(<[2], 11 bytes>)"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])  # noqa: S301
def test_elements_can_be_copied(again: Any) -> None:  # noqa: ANN401 - any function
    made = again(Elements.from_wire(wire([b"a", b"bc"]), (2, 1)))
    assert (list(made), made.shape) == ([b"a", b"bc"], (2, 1))


# Received and sent


def test_received_elements_become_objects_when_they_are_asked_for() -> None:
    values = [b"x" * (1 + index % 50) for index in range(20_000)]
    [event] = received(request(binary("BYTES", [20, 1000], len(wire(values))), payload=wire(values)))
    assert isinstance(event.values, Elements)
    assert event.elements is event.values
    tracemalloc.start()
    try:
        array = event.array
        assert tracemalloc.get_traced_memory()[0] > 20_000 * 33
    finally:
        tracemalloc.stop()
    assert event.array is array
    assert (array.shape, array.reshape(-1).tolist()) == ((20, 1000), values)
    assert array.flags.writeable


def test_receiving_takes_eight_bytes_for_each_element_besides_its_own() -> None:
    values = [b"x" * (1 + index % 50) for index in range(20_000)]
    message = request(binary("BYTES", [20_000], len(wire(values))), payload=wire(values))
    tracemalloc.start()
    try:
        [event] = received(message)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert event.elements.nbytes == len(wire(values))
    assert kept < len(wire(values)) + 8 * 20_000 + (16 << 10)
    assert peak < kept + (2 << 20)


def test_elements_of_json_and_of_a_raw_request_are_made_of_objects() -> None:
    [event] = received(request(jsonic("BYTES", [2], ["a", "é"])))
    assert isinstance(event.values, np.ndarray)
    assert list(event.elements) == [b"a", "é".encode()]


def test_numbers_have_no_elements() -> None:
    [event] = received(request(binary("INT8", [1], 1), payload=b"\7"))
    with pytest.raises(LocalProtocolError, match="INT8"):
        _ = event.elements


def test_offsets_that_no_memory_can_be_had_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", fail)
    with pytest.raises(OutOfMemoryError, match="20 BYTES elements") as caught:
        Elements.from_wire(bytes(80), (20,))
    assert (caught.value.code, caught.value.status_hint) == (ErrorCode.OUT_OF_MEMORY, 503)


@pytest.mark.parametrize("values", [[b"a", b"b"], [b"a", b"bc"], []])
def test_elements_are_sent_from_where_they_lie(values: list[bytes]) -> None:
    made = Elements(values)
    message = encode_request([Tensor(name="x", array=made), Tensor(name="y", array=objects(values))])
    _, *views = message.buffers
    assert [bytes(view) for view in views] == [wire(values)] * 2 * bool(values)
    assert all(np.shares_memory(np.frombuffer(view, np.uint8), made.data) for view in views[:1])
    decoder = request_decoder(header_length=message.header_length, body_length=message.body_length)
    decoder.feed(b"".join(message.buffers))
    decoder.next_event()
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    assert (list(event.elements), event.spec.shape) == (values, (len(values),))


def test_elements_as_json() -> None:
    message = encode_request([Tensor(name="x", array=Elements(["é", b"b"]), is_binary=False)])
    assert '"data":["é","b"]'.encode() in b"".join(message.buffers)


def test_a_raw_request_of_elements() -> None:
    assert [bytes(part) for part in encode_raw_request(Elements([b"\0one"])).buffers] == [b"\0one"]
    with pytest.raises(LocalProtocolError, match="one BYTES element, not 2"):
        encode_raw_request(Elements([b"a", b"b"]))


@pytest.mark.parametrize("count", [1, 64, 65, 5000])
def test_arrays_of_few_and_of_many_elements_are_written_alike(count: int) -> None:
    elements = [b"x" * (index % 7) for index in range(count)]
    array = np.empty(count, dtype=object)
    array[:] = elements
    message = encode_request([Tensor(name="x", array=array)])
    wanted = b"".join(len(element).to_bytes(4, "little") + element for element in elements)
    assert b"".join([*message.buffers][1:]) == wanted


@pytest.mark.parametrize("count", [1, 16, 17, 40])
@pytest.mark.parametrize("values", [[b"ab"], [b"a", b"", b"bcd"]])
def test_few_and_many_elements_become_the_same_objects(values: list[bytes], count: int) -> None:
    wanted = (values * count)[:count]
    array = Elements(wanted).array
    assert (array.shape, array.dtype, array.tolist()) == ((count,), np.dtype(object), wanted)
