"""Rows: tensors written window by window are the same bytes, and what does not fit is refused at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    DATATYPES,
    EncodedMessage,
    LocalProtocolError,
    NotRepresentableError,
    Rows,
    RowWriter,
    Tensor,
    compress_message,
    datatype_of,
    encode_raw_request,
    encode_request,
    encode_response,
)
from tests.effort import examples

Values = np.ndarray[Any, Any]
FIXED = [name for name, datatype in DATATYPES.items() if not datatype.is_bytes]


def request_of(*values: Values | Rows, is_binary: bool = True) -> EncodedMessage:
    return encode_request(
        [Tensor(name=str(index), array=array, is_binary=is_binary) for index, array in enumerate(values)]
    )


async def never(*windows: Values) -> AsyncIterator[Values]:
    for window in windows:
        yield window


@st.composite
def cut_arrays(draw: st.DrawFn) -> tuple[Values, list[Values]]:
    """An array, and windows of whole rows that make it up; some of none."""
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    dtype = DATATYPES[draw(st.sampled_from(FIXED))].dtype
    count = int(np.prod(shape))
    array = np.frombuffer(bytes(i & 1 for i in range(count * dtype.itemsize)), dtype).reshape(shape)
    cuts = sorted(draw(st.lists(st.integers(0, shape[0]), max_size=4)))
    return array, [array[start:end] for start, end in pairwise([0, *cuts, shape[0]])]


@settings(max_examples=examples(150))
@given(st.lists(cut_arrays(), min_size=1, max_size=3), st.booleans())
def test_any_cut_into_windows_gives_the_bytes_of_the_array(
    cut: list[tuple[Values, list[Values]]], is_first_whole: bool
) -> None:
    arrays = [array for array, _ in cut]
    names = [datatype_of(array.dtype).name for array in arrays]
    values: list[Values | Rows] = [
        Rows(name, array.shape, windows) for name, (array, windows) in zip(names, cut, strict=True)
    ]
    if is_first_whole:
        values[0] = arrays[0]
    message, whole = request_of(*values), request_of(*arrays)
    assert message.headers == whole.headers
    assert b"".join(message.buffers) == b"".join(whole.buffers)
    assert b"".join(message.buffers) == b"".join(whole.buffers), "windows in a list can be gone through again"
    assert all(message.buffers)


def test_lengths_are_known_before_the_first_window_is_asked_for() -> None:
    asked = iter([np.zeros((1, 4))])
    message = request_of(Rows("FP64", (1 << 40, 4), asked))
    assert message.is_streamed
    assert len(list(asked)) == 1, "nobody has asked for it"
    assert message.body_length == (message.header_length or 0) + (1 << 45)
    assert dict(message.headers)["Content-Length"] == str(message.body_length)
    assert repr(message.parts[1]) == "Rows('FP64', (1099511627776, 4), ...)"


def test_buffers_are_made_when_they_are_asked_for() -> None:
    asked: list[int] = []

    def windows() -> Iterator[Values]:
        memory = np.empty((1, 2), "<i2")  # one and the same for all windows
        for row in range(3):
            asked.append(row)
            memory[:] = row
            yield memory

    message = encode_response([Tensor(name="y", array=Rows("INT16", (3, 2), windows()))], model_name="m")
    buffers = iter(message.buffers)
    assert bytes(next(buffers)).rstrip().endswith(b"}")
    assert asked == []
    for row in range(3):
        # The last byte waits for the end of the windows.
        assert bytes(next(buffers)) == bytes([row, 0, row, 0])[: 3 if row == 2 else 4]
        assert asked == list(range(row + 1))
    assert list(buffers) == [b"\0"]


@pytest.mark.parametrize("rows_too_many", [0, 1])
def test_windows_that_fail_at_the_very_end_leave_nothing_behind_that_looks_whole(rows_too_many: int) -> None:
    def windows() -> Iterator[Values]:
        yield np.ones((2 + rows_too_many, 2), "<i2")
        raise OSError

    message = request_of(Rows("INT16", (2, 2), windows()))
    sent: list[int] = []
    with pytest.raises((OSError, LocalProtocolError)):
        sent.extend(map(len, message.buffers))
    assert sum(sent) < message.body_length


@pytest.mark.slow
def test_memory_is_that_of_one_window_however_large_the_tensor() -> None:
    window = np.zeros((1, 1 << 16), np.uint8)
    message = request_of(Rows("UINT8", (1 << 16, 1 << 16), repeat(window, 1 << 16)))
    tracemalloc.start()
    nbytes = sum(map(len, message.buffers))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert nbytes == message.body_length > 1 << 32
    assert peak < 1 << 16


def test_windows_are_not_copied() -> None:
    array = np.arange(6, dtype="<i4").reshape(3, 2)
    view = RowWriter(Rows("INT32", (3, 2), ())).write(array)
    assert (view.format, view.ndim) == ("B", 1)
    assert np.shares_memory(array, np.frombuffer(view, np.uint8))


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(np.arange(6, dtype=">i4").reshape(2, 3), id="big-endian"),
        pytest.param(np.asfortranarray(np.arange(6, dtype="<i4").reshape(2, 3)), id="fortran"),
        pytest.param(np.arange(12, dtype="<i4").reshape(2, 6)[:, ::2], id="strided"),
        pytest.param(np.arange(6, dtype="<i4").reshape(2, 3).view(np.recarray), id="subclass"),
    ],
)
def test_other_windows_are_written_row_major_and_little_endian(window: Values) -> None:
    writer = RowWriter(Rows("INT32", (2, 3), ()))
    assert bytes(writer.write(window)) + writer.finish() == np.array(window.tolist(), "<i4").tobytes()


@pytest.mark.parametrize("window", [np.array(1.5), np.float64(1.5)], ids=type)
def test_scalar_has_one_row_of_no_dimensions(window: Any) -> None:  # noqa: ANN401 - an array, or nearly
    message = request_of(Rows("FP64", (), [window]))
    assert b"".join([*message.buffers][1:]) == np.array([1.5], "<f8").tobytes()
    assert b'"shape":[]' in next(iter(message.buffers))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_tensor_without_elements_is_no_part_of_the_body(shape: tuple[int, ...]) -> None:
    message = request_of(Rows("INT8", shape, [np.zeros(shape, np.int8)]), Rows("INT8", (1,), [np.zeros(1, np.int8)]))
    assert [len(buffer) for buffer in message.buffers] == [message.header_length, 1]
    assert len(message.parts) == 2


FOUR = np.zeros((4, 2), "<f4")


@pytest.mark.parametrize(
    ("windows", "complaint"),
    [
        pytest.param([], "ended after 0 of 8 rows", id="none"),
        pytest.param([FOUR, FOUR[:3]], "ended after 7 of 8 rows", id="one-row-missing"),
        pytest.param([FOUR, FOUR, FOUR[:1]], "1 rows where 0 of 8 were missing", id="one-row-more"),
        pytest.param([FOUR, FOUR[:3], FOUR], "4 rows where 1 of 8 were missing", id="reaches-beyond"),
        pytest.param([FOUR.astype("<f8")], r"float64 \[4, 2\] does not fit .* FP32 \[8, 2\]", id="datatype"),
        pytest.param([FOUR.astype(complex)], "complex128", id="no-datatype"),
        pytest.param([FOUR[:, :1]], r"float32 \[4, 1\] does not fit", id="columns"),
        pytest.param([FOUR[0]], r"float32 \[2\] does not fit", id="a-row-alone"),
        pytest.param([FOUR[None]], r"float32 \[1, 4, 2\] does not fit", id="a-batch"),
        pytest.param([np.zeros(8, "<f4"), np.zeros(8, "<f4")], "does not fit", id="flat"),
        pytest.param([np.zeros((), np.float32)], r"float32 \[\] does not fit", id="scalar"),
    ],
)
def test_windows_that_are_not_what_was_declared(windows: list[Values], complaint: str) -> None:
    message = request_of(Rows("FP32", (8, 2), windows), np.zeros(3))
    sent: list[bytes | memoryview] = []
    with pytest.raises(LocalProtocolError, match=complaint):
        sent.extend(message.buffers)
    with pytest.raises(LocalProtocolError, match=complaint):
        request_of(Rows("FP32", (8, 2), windows), is_binary=False)
    assert sum(map(len, sent)) < message.body_length


@pytest.mark.parametrize(
    ("shape", "windows"), [((), [np.zeros(()), np.zeros(())]), ((0, 2), [np.zeros((1, 2))]), ((2, 0), [])], ids=str
)
def test_rows_are_counted_also_where_they_have_no_first_dimension_or_no_bytes(
    shape: tuple[int, ...], windows: list[Values]
) -> None:
    with pytest.raises(LocalProtocolError, match="rows"):
        list(request_of(Rows("FP64", shape, windows), is_binary=False).buffers)


def test_windows_that_can_be_had_once_are_missing_the_second_time() -> None:
    message = request_of(Rows("FP32", (4, 2), iter([FOUR])))
    assert sum(map(len, message.buffers)) == message.body_length
    with pytest.raises(LocalProtocolError, match="after 0 of 4 rows"):
        list(message.buffers)


def test_what_the_windows_raise_comes_through() -> None:
    def windows() -> Iterator[Values]:
        yield FOUR
        raise ZeroDivisionError

    buffers = iter(request_of(Rows("FP32", (8, 2), windows())).buffers)
    assert [len(next(buffers)) for _ in range(2)][1] == 32
    with pytest.raises(ZeroDivisionError):
        next(buffers)


@pytest.mark.parametrize("datatype", ["BYTES", "fp32", "FLOAT", ""])
def test_datatype_is_one_of_fixed_size(datatype: str) -> None:
    with pytest.raises(LocalProtocolError, match="fixed size"):
        Rows(datatype, (1,), ())


@pytest.mark.parametrize("shape", [(-1,), (2, -1), (1.0,), ("2",), 3, None], ids=repr)
def test_shape_is_one(shape: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(LocalProtocolError, match="a shape is"):
        Rows("FP32", shape, ())


def test_shape_may_come_as_the_integers_of_numpy() -> None:
    shape: Any = np.array([2, 3])
    rows = Rows("FP32", shape, ())
    assert (rows.shape, rows.nbytes, rows.row_count) == ((2, 3), 24, 2)
    assert {type(size) for size in rows.shape} == {int}


def test_asynchronous_windows_are_for_asynchronous_senders() -> None:
    message = request_of(FOUR, Rows("FP32", (4, 2), never(FOUR)))
    assert message.is_streamed
    buffers = message.buffers
    with pytest.raises(LocalProtocolError, match="asynchronous"):
        iter(buffers)  # at once: before the first byte has gone
    header, array, rows = message.parts
    assert isinstance(header, bytes)
    assert isinstance(array, memoryview)
    assert isinstance(rows, Rows)
    assert rows.is_asynchronous
    assert not Rows("FP32", (4, 2), [FOUR]).is_asynchronous
    with pytest.raises(LocalProtocolError, match="asynchronous"):
        request_of(rows, is_binary=False)


def test_json_form_collects_the_rows() -> None:
    array = np.arange(8, dtype="<i4").reshape(4, 2)
    message = request_of(Rows("INT32", (4, 2), iter([array[:1], array[1:1], array[1:]])), is_binary=False)
    assert not message.is_streamed
    assert message.parts == request_of(array, is_binary=False).parts
    with pytest.raises(NotRepresentableError, match="FP16"):
        request_of(Rows("FP16", (1,), [np.zeros(1, "<f2")]), is_binary=False)


def test_raw_request_may_be_streamed() -> None:
    message = encode_raw_request(Rows("FP32", (8, 2), [FOUR, FOUR]))
    assert (message.header_length, message.body_length, message.is_streamed) == (0, 64, True)
    assert b"".join(message.buffers) == bytes(64)
    assert encode_raw_request(Rows("FP32", (0, 2), [])).parts == ()


def test_streamed_message_is_not_compressed() -> None:
    message = request_of(Rows("FP32", (4, 2), [FOUR]))
    with pytest.raises(LocalProtocolError, match="streamed"):
        compress_message(message, "gzip")


def test_whole_message_is_not_streamed_and_its_buffers_are_its_parts() -> None:
    message = request_of(FOUR)
    assert not message.is_streamed
    assert message.buffers is message.parts


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda writer: writer.write(np.zeros((3, 2))), id="too-many"),
        pytest.param(lambda writer: writer.write(np.zeros((1, 3))), id="another-shape"),
        pytest.param(lambda writer: writer.finish(), id="too-few"),
    ],
)
def test_what_was_refused_does_not_count(act: Callable[[RowWriter], object]) -> None:
    writer = RowWriter(Rows("FP64", (2, 2), ()))
    with pytest.raises(LocalProtocolError):
        act(writer)
    writer.write(np.zeros((2, 2)))
    writer.finish()


def test_an_empty_tensor_ends_with_no_byte() -> None:
    writer = RowWriter(Rows("FP32", (0, 3), []))
    assert bytes(writer.write(np.empty((0, 3), np.float32))) == b""
    assert writer.finish() == b""
