"""Rulebook, "Binary tensors" and "Raw binary request": the bytes behind the header."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    DEFAULT_LIMITS,
    NEED_TURN,
    Decoder,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    NewArray,
    RemoteProtocolError,
    RequestHeader,
    TensorReceived,
    TensorSpec,
    WindowReceived,
    Windows,
    raw_request_decoder,
)
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import binary, jsonic, request

SIZE = "$.inputs[0].parameters.binary_data_size"


def elements(*values: bytes) -> bytes:
    """The wire form of a BYTES tensor, written out once more."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


@pytest.mark.parametrize(
    ("datatype", "code", "values"),
    [
        ("BOOL", "?", [True, False]),
        ("UINT8", "B", [0, 255]),
        ("UINT16", "H", [1, 65_535]),
        ("UINT32", "I", [1, 2**32 - 1]),
        ("UINT64", "Q", [2**53 + 1, 2**64 - 1]),
        ("INT8", "b", [-128, 127]),
        ("INT16", "h", [-32_768, 1]),
        ("INT32", "i", [-(2**31), 1]),
        ("INT64", "q", [-(2**63), 2**53 + 1]),
        ("FP16", "e", [1.5, -65_504.0]),
        ("FP32", "f", [1.5, -0.0]),
        ("FP64", "d", [5e-324, 1.7976931348623157e308]),
    ],
)
def test_values_are_little_endian_packed_and_row_major(datatype: str, code: str, values: list[Any]) -> None:
    payload = struct.pack(f"<6{code}", *values, *values[::-1], *values)
    [array] = accept(request(binary(datatype, [3, 2], len(payload)), payload=payload))
    assert array.dtype == DATATYPES[datatype].dtype
    assert array.dtype.byteorder in "<|="
    assert array.tolist() == [values, values[::-1], values]


@pytest.mark.usefixtures("ml_dtypes")
def test_bfloat16() -> None:
    [array] = accept(request(binary("BF16", [2], 4), payload=bytes.fromhex("803f 80ff")))
    assert array.dtype.name == "bfloat16"
    assert array.astype(np.float64).tolist() == [1.0, -np.inf]


@pytest.mark.parametrize("byte", [b"\x02", b"\x80", b"\xff"])
def test_bool_bytes_other_than_0_and_1_are_refused_where_they_stand(byte: bytes) -> None:
    bad = request(
        binary("BOOL", [2], 2, name="a"), binary("BOOL", [5], 5, name="b"), payload=b"\0\1\1\0" + byte + b"\3\1"
    )
    outcome = decode(bad)
    assert outcome.error is not None
    error = outcome.error
    assert (error.code, error.offset, error.path) == (ErrorCode.INVALID_BOOL, (bad.header_length or 0) + 4, None)
    assert [array.tolist() for array in outcome.arrays] == [[False, True]]


@pytest.mark.parametrize(
    ("datatype", "shape", "size"),
    [
        ("FP32", [2, 2], 15),
        ("FP32", [2, 2], 17),
        ("FP32", [2, 2], 32),
        ("FP32", [2, 2], 0),
        ("FP32", [2, 2], -16),
        ("FP32", [], 8),
        ("FP32", [0], 4),
        ("BOOL", [8], 1),
        ("BF16", [2], 8),
        ("BYTES", [2], 7),
        ("BYTES", [2], -1),
        ("BYTES", [], 3),
        ("BYTES", [0], 4),
    ],
)
def test_size_that_shape_and_datatype_do_not_give(datatype: str, shape: list[int], size: int) -> None:
    error = refuse(request(binary(datatype, shape, size), payload=bytes(max(size, 0))))
    assert (error.code, error.path, error.offset) == (ErrorCode.BINARY_SIZE_MISMATCH, SIZE, None)
    assert f"binary_data_size is {size}" in error.message


@pytest.mark.parametrize("size", ["4", 4.0, True, [4], {"a": 4}], ids=repr)
def test_size_that_is_no_integer(size: Any) -> None:  # noqa: ANN401 - any JSON value
    error = refuse(request(binary("FP32", [1], size), payload=bytes(4)))
    assert (error.code, error.path) == (ErrorCode.INVALID_MEMBER, SIZE)


@pytest.mark.parametrize("size", [10**4299, -(10**4298)], ids=["huge", "negative"])
def test_size_of_thousands_of_digits(size: int) -> None:
    for datatype in ("FP32", "BYTES"):
        outcome = decode(request(binary(datatype, [1], size)))
        assert isinstance(outcome.error, RemoteProtocolError)
        assert outcome.error.path == SIZE


# BYTES


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        pytest.param([1], [b"abc"], id="one"),
        pytest.param([], [b"scalar"], id="scalar"),
        pytest.param([3], [b"", b"", b""], id="empty-elements"),
        pytest.param([2], [b"\0", b"a\0\0"], id="nul"),
        pytest.param([2], [b"\xff\xfe", b"\x80"], id="not-utf8"),
        pytest.param([2, 2], [b"a", b"", b"\0", b"long" * 20], id="two-dimensions"),
        pytest.param([0], [], id="none"),
        pytest.param([2, 0], [], id="none-in-two-dimensions"),
    ],
)
def test_bytes_elements(shape: list[int], values: list[bytes]) -> None:
    payload = elements(*values)
    good = request(binary("BYTES", shape, len(payload)), binary("INT8", [1], 1, name="y"), payload=payload + b"\7")
    array, after = accept(good)
    assert (array.shape, array.dtype) == (tuple(shape), np.dtype(object))
    assert array.reshape(-1).tolist() == values
    assert after.tolist() == [7]


@pytest.mark.parametrize(
    ("shape", "payload", "offset"),
    [
        pytest.param([1], b"\x05\0\0\0abcd", 0, id="overruns-the-tensor"),
        pytest.param([1], b"\x03\0\0\0abcd", 7, id="leaves-a-byte"),
        pytest.param([2], elements(b"abcd") + b"\1\0\0\0", 8, id="last-overruns-by-one"),
        pytest.param([2], elements(b"abcdefgh"), 12, id="second-prefix-missing"),
        pytest.param([2], elements(b"abcde") + b"\0\0\0", 9, id="second-prefix-cut"),
        pytest.param([1], b"\xff\xff\xff\xff" + bytes(8), 0, id="4-gib"),
        pytest.param([1], b"\0\0\0\x80" + bytes(8), 0, id="no-sign"),
        pytest.param([2], elements(b"", b"", b""), 8, id="one-element-more"),
    ],
)
def test_length_prefixes_that_do_not_fill_the_tensor(shape: list[int], payload: bytes, offset: int) -> None:
    bad = request(
        binary("INT8", [1], 1, name="a"),
        binary("BYTES", shape, len(payload), name="b"),
        binary("INT8", [9], 9, name="c"),
        payload=b"\1" + payload + bytes(9),
    )
    error = refuse(bad)
    place = (bad.header_length or 0) + 1 + offset
    assert (error.code, error.offset, error.path) == (ErrorCode.INVALID_ELEMENTS, place, None)


def test_no_error_quotes_the_payload() -> None:
    secret = b"\x09\0\0\0SECRET!!"
    assert "SECRET" not in str(refuse(request(binary("BYTES", [1], len(secret)), payload=secret)))
    assert "SECRET" not in str(refuse(request(jsonic("INT8", [1], ["SECRET"]))))


# Raw binary requests: no header in the message, so the tensor is told from outside.


def raw(datatype: str, shape: tuple[int, ...], nbytes: int) -> Decoder[RequestHeader]:
    is_bytes = DATATYPES[datatype].is_bytes
    spec = TensorSpec(
        name="in", datatype=DATATYPES[datatype], shape=shape, nbytes=nbytes, offset=0, is_single_element=is_bytes
    )
    return raw_request_decoder(spec)


@pytest.mark.parametrize(
    ("datatype", "shape", "payload"),
    [
        ("INT16", (1, 2), b"\1\0\2\0"),
        ("BOOL", (3,), b"\1\0\1"),
        ("FP32", (0, 4), b""),
        ("INT8", (), b"\xff"),
    ],
)
def test_raw_request_is_one_tensor(datatype: str, shape: tuple[int, ...], payload: bytes) -> None:
    outcome = decode(lambda: raw(datatype, shape, len(payload)), payload)
    assert outcome.error is None
    [array] = outcome.arrays
    np.testing.assert_array_equal(array, np.frombuffer(payload, DATATYPES[datatype].dtype).reshape(shape), strict=True)
    assert isinstance(outcome.header, RequestHeader)
    assert outcome.header.wants_binary(None)
    assert [spec.name for spec in outcome.header.tensors] == ["in"]


@pytest.mark.parametrize("payload", [b"", b"\0", b"no prefix \xff here"])
@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_raw_bytes_request_is_one_element_without_a_prefix(shape: tuple[int, ...], payload: bytes) -> None:
    [array] = accept(lambda: raw("BYTES", shape, len(payload)), payload)
    assert array.shape == shape
    assert array.reshape(-1).tolist() == [payload]


def test_raw_request_refused() -> None:
    error = refuse(lambda: raw("BOOL", (2,), 2), b"\1\2")
    assert (error.code, error.offset) == (ErrorCode.INVALID_BOOL, 1)
    error = refuse(lambda: raw("INT32", (1,), 4), b"\1\2")
    assert (error.code, error.offset) == (ErrorCode.TRUNCATED, 2)


def test_raw_request_may_be_refused_and_placed_by_the_caller() -> None:
    spec = TensorSpec(name="in", datatype=DATATYPES["INT8"], shape=(2,), nbytes=2, offset=0)

    def check(header: RequestHeader) -> None:
        assert header.tensors == (spec,)
        raise RemoteProtocolError("no", code=ErrorCode.MODEL_MISMATCH)

    error = refuse(lambda: raw_request_decoder(spec, limits=DEFAULT_LIMITS, check=check), b"\1\2")
    assert error.code is ErrorCode.MODEL_MISMATCH


@pytest.mark.parametrize("nbytes", [8, 9])
def test_raw_request_at_the_limit_passes_and_one_byte_beyond_is_refused(nbytes: int) -> None:
    spec = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(nbytes,), nbytes=nbytes, offset=0)
    limits = Limits(max_tensor_bytes=8)
    if nbytes <= limits.max_tensor_bytes:
        accept(lambda: raw_request_decoder(spec, limits=limits), bytes(nbytes))
        return
    error = refuse(lambda: raw_request_decoder(spec, limits=limits), bytes(nbytes))
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.message) == ("max_tensor_bytes", "the tensor has 9 bytes, 8 are allowed")


def test_raw_request_of_a_size_that_does_not_fit_is_a_mistake_of_ours() -> None:
    spec = TensorSpec(name="x", datatype=DATATYPES["FP32"], shape=(2,), nbytes=7, offset=0)
    with pytest.raises(LocalProtocolError, match=r"FP32 \[2\] does not have 7 bytes"):
        raw_request_decoder(spec)


def deduced(nbytes: int) -> TensorSpec:
    """As many INT16 as there are bytes for."""
    if nbytes % 2:
        raise RemoteProtocolError("half a number", code=ErrorCode.MODEL_MISMATCH)
    return TensorSpec(name="in", datatype=DATATYPES["INT16"], shape=(nbytes // 2,), nbytes=nbytes, offset=0)


@pytest.mark.parametrize("count", [0, 1, 3, 5_000])
def test_raw_request_of_unknown_length_is_deduced_at_its_end(count: int) -> None:
    values = np.arange(count, dtype="<i2")
    outcome = decode(lambda: raw_request_decoder(deduced), values.tobytes())
    assert outcome.error is None
    [array] = outcome.arrays
    np.testing.assert_array_equal(array, values, strict=True)
    assert isinstance(outcome.header, RequestHeader)
    assert [(spec.shape, spec.nbytes, spec.offset) for spec in outcome.header.tensors] == [((count,), 2 * count, 0)]


def test_raw_request_of_unknown_length_is_refused_at_its_end() -> None:
    assert refuse(lambda: raw_request_decoder(deduced), b"123").code is ErrorCode.MODEL_MISMATCH


def _booleans(nbytes: int) -> TensorSpec:
    return TensorSpec(name="in", datatype=DATATYPES["BOOL"], shape=(nbytes,), nbytes=nbytes, offset=0)


def test_values_of_a_raw_request_of_unknown_length_are_checked() -> None:
    assert accept(lambda: raw_request_decoder(_booleans), b"\0\1")[0].tolist() == [False, True]
    error = refuse(lambda: raw_request_decoder(_booleans), b"\1\2\0")
    assert (error.code, error.offset) == (ErrorCode.INVALID_BOOL, 1)


@pytest.mark.parametrize("limit", ["max_tensor_bytes", "max_message_bytes"])
def test_raw_request_of_unknown_length_is_refused_as_soon_as_it_is_too_long(limit: str) -> None:
    limits = Limits(**{limit: 8})
    accept(lambda: raw_request_decoder(deduced, limits=limits), bytes(8))
    error = refuse(lambda: raw_request_decoder(deduced, limits=limits), bytes(20))
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.offset) == (limit, 8)
    decoder = raw_request_decoder(deduced, limits=limits)
    assert decoder.feed(bytes(20)) == 9


def test_memory_for_a_raw_request_of_unknown_length_is_taken_as_it_comes_and_after_its_header() -> None:
    placed: list[TensorSpec] = []

    def place(spec: TensorSpec) -> NewArray:
        placed.append(spec)
        return NewArray()

    decoder = raw_request_decoder(deduced, place=place, pause_after_header=True)
    for nbytes in (1, 4 << 10, 3 << 20):
        before = decoder.offset
        decoder.feed(bytes(nbytes))
        assert decoder.offset == before + nbytes
        assert len(decoder.get_buffer()) <= max(8 << 10, decoder.offset)
    decoder.feed(bytes(1))
    decoder.receive_eof()
    assert isinstance(decoder.next_event(), HeaderReceived)
    assert not placed
    assert [type(decoder.next_event()) for _ in range(2)] == [TensorReceived, EndOfMessage]
    assert [spec.nbytes for spec in placed] == [decoder.offset]


def test_what_was_gathered_is_placed_in_turns_and_windows() -> None:
    body = np.arange(3 << 20, dtype="<i2").tobytes()
    decoder = raw_request_decoder(deduced, paced=True)
    decoder.feed(body)
    decoder.receive_eof()
    turns, arrays = 0, []
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if event is NEED_TURN:
            turns += 1
            decoder.work()
        elif isinstance(event, TensorReceived):
            arrays.append(event.array)
    assert turns >= 5
    assert arrays[0].tobytes() == body
    windowed = raw_request_decoder(deduced, place=lambda _: Windows(max_window_bytes=1000))
    windowed.feed(body[:5001])
    windowed.feed(body[5001:10_000])
    windowed.receive_eof()
    windows = b""
    while not isinstance(event := windowed.next_event(), EndOfMessage):
        windows += event.array.tobytes() if isinstance(event, WindowReceived) else b""
    assert windows == body[:10_000]
