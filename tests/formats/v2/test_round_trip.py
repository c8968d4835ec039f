"""Round trips: what the encoder writes, the decoder reads back bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    EncodedMessage,
    NonFiniteOutput,
    RequestedOutput,
    RequestHeader,
    ResponseHeader,
    Tensor,
    encode_request,
    encode_response,
)
from streamcodec.testing import describe_array
from tests.engine.triad import accept, decode
from tests.formats.v2.messages import Message

Values = np.ndarray[Any, Any]
FIXED = [name for name, datatype in DATATYPES.items() if not datatype.is_bytes]
INTEGERS = [name for name in FIXED if DATATYPES[name].kind in "iu"]


def received(encoded: EncodedMessage, *, is_response: bool = False) -> Message:
    """The message as it comes out at the other end."""
    return Message(
        body=b"".join(encoded.buffers),
        header_length=encoded.header_length,
        body_length=encoded.body_length,
        is_response=is_response,
    )


def there_and_back(array: Values, *, is_binary: bool = True) -> Values:
    tensor = Tensor(name="x", array=array, is_binary=is_binary)
    [request] = accept(received(encode_request([tensor])))
    [response] = accept(received(encode_response([tensor], model_name="m"), is_response=True))
    assert describe_array(request) == describe_array(response)
    return request


def every_bit_pattern(name: str) -> Values:
    """All values of one byte, or values whose bits go through all places."""
    datatype = DATATYPES[name]
    bits = np.arange(256, dtype="<u8")[: 2 if name == "BOOL" else 256]
    spread = bits * np.uint64(0x0101_0101_0101_0101 % (1 << (8 * datatype.itemsize)))
    return spread.astype(f"<u{datatype.itemsize}").view(datatype.dtype)


@pytest.mark.parametrize("name", FIXED)
def test_binary_keeps_every_bit_of_every_datatype(name: str) -> None:
    array = every_bit_pattern(name)
    back = there_and_back(array)
    assert back.dtype == DATATYPES[name].dtype
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2, 3), (1,) * 64], ids=str)
def test_shapes(name: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, DATATYPES[name].dtype)
    assert describe_array(there_and_back(array)) == describe_array(array)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("FP16", 0x7C01),
        ("FP16", 0xFE55),
        ("FP32", 0x7F80_0001),
        ("FP32", 0xFFC0_1234),
        ("FP64", 0x7FF0_0000_0000_0001),
        ("FP64", 0xFFF8_0000_DEAD_BEEF),
        ("BF16", 0x7F81),
    ],
)
def test_payloads_of_nan_survive_signalling_or_quiet(name: str, bits: int) -> None:
    itemsize = DATATYPES[name].itemsize
    array = np.array([bits], f"<u{itemsize}").view(DATATYPES[name].dtype)
    assert there_and_back(array).view(f"<u{itemsize}").tolist() == [bits]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
def test_extremes_of_integers(name: str, is_binary: bool) -> None:
    bounds = np.iinfo(DATATYPES[name].dtype)
    beyond = [2**53 + 1, bounds.max - 1] if bounds.bits == 64 else []
    array = np.array([bounds.min, bounds.max, 0, *beyond], DATATYPES[name].dtype)
    np.testing.assert_array_equal(there_and_back(array, is_binary=is_binary), array, strict=True)


@pytest.mark.parametrize(
    ("name", "is_binary"), [("FP16", True), ("FP32", True), ("FP64", True), ("FP32", False), ("FP64", False)]
)
def test_extremes_of_floats(name: str, is_binary: bool) -> None:
    bounds = np.finfo(DATATYPES[name].dtype)
    values = [bounds.min, bounds.max, bounds.tiny, bounds.smallest_subnormal, bounds.eps, -0.0, np.nan, np.inf, -np.inf]
    array = np.array(values, DATATYPES[name].dtype)
    back = there_and_back(array, is_binary=is_binary)
    np.testing.assert_array_equal(back, array, strict=True)
    assert np.signbit(back).tolist()[:6] == np.signbit(array).tolist()[:6]


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
def test_bool(is_binary: bool) -> None:
    array = np.array([[True, False], [False, True]])
    np.testing.assert_array_equal(there_and_back(array, is_binary=is_binary), array, strict=True)


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 4, 1)], ids=str)
def test_bytes(shape: tuple[int, ...], is_binary: bool) -> None:
    array = np.array([b"", b"a\0b", "é\N{GRINNING FACE}".encode(), b'"\\'], object).reshape(shape)
    assert describe_array(there_and_back(array, is_binary=is_binary)) == describe_array(array)


def test_bytes_that_are_not_utf8() -> None:
    array = np.array([bytes(range(256)), b"\xff\xfe"], object)
    assert describe_array(there_and_back(array)) == describe_array(array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.arange(6, dtype=">f8").reshape(2, 3).T,
        np.arange(12, dtype="<u2").reshape(3, 4)[:, 1:3],
        np.array(5, ">u2"),
    ],
    ids=["big-endian", "big-endian-transposed", "slice", "big-endian-scalar"],
)
@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
def test_arrays_that_are_not_as_the_wire_wants_them(array: Values, is_binary: bool) -> None:
    back = there_and_back(array, is_binary=is_binary)
    assert back.dtype.byteorder in "<="
    np.testing.assert_array_equal(back, array)
    assert back.shape == array.shape


def test_everything_about_a_request() -> None:
    outputs = [
        RequestedOutput(name="y", parameters={"binary_data": True}),
        RequestedOutput(name="z", binary_data=None),
    ]
    tensors = [
        Tensor(name=name, array=np.ones(2, datatype.dtype), parameters={"k": [None, 1.5, {"é": True}]})
        for name, datatype in DATATYPES.items()
        if not datatype.is_bytes
    ]
    encoded = encode_request(tensors, outputs=outputs, request_id="42", parameters={"a": {"b": -1}})
    outcome = decode(received(encoded))
    header = outcome.header
    assert isinstance(header, RequestHeader)
    assert (header.id, header.outputs, dict(header.parameters)) == ("42", tuple(outputs), {"a": {"b": -1}})
    assert [spec.datatype.name for spec in header.tensors] == FIXED
    assert all(spec.parameters["k"] == [None, 1.5, {"é": True}] for spec in header.tensors)
    assert all(spec.offset is not None and spec.offset >= (encoded.header_length or 0) for spec in header.tensors)


def test_everything_about_a_response() -> None:
    encoded = encode_response(
        [Tensor(name="a", array=np.zeros(3, "<f2")), Tensor(name="b", array=np.zeros(0), is_binary=False)],
        model_name="m",
        model_version="7",
        request_id="é",
        parameters={"sequence_end": True},
        nonfinite=NonFiniteOutput.ERROR,
    )
    header = decode(received(encoded, is_response=True)).header
    assert isinstance(header, ResponseHeader)
    assert (header.model_name, header.model_version, header.id) == ("m", "7", "é")
    assert dict(header.parameters) == {"sequence_end": True}
