"""The encoder: what is written, that nothing is copied or joined, and what it refuses to write."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable, Iterable
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    DEFAULT_LIMITS,
    Elements,
    EncodedMessage,
    LocalProtocolError,
    NonFiniteOutput,
    NotRepresentableError,
    RequestedOutput,
    Tensor,
    datatype_of,
    encode_raw_request,
    encode_request,
    encode_response,
    parse_request_header,
)

Values = np.ndarray[Any, Any]


def buffers_of(message: EncodedMessage) -> list[bytes | memoryview]:
    return list(message.buffers)


def as_json(message: EncodedMessage) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(bytes(buffers_of(message)[0]))


def one(array: Any, **options: Any) -> EncodedMessage:  # noqa: ANN401 - the fields of `Tensor`
    return encode_request([Tensor(name="x", array=array, **options)])


def data_of(array: Any, **options: Any) -> Any:  # noqa: ANN401 - any JSON value
    message = encode_response([Tensor(name="x", array=array, is_binary=False)], model_name="m", **options)
    return as_json(message)["outputs"][0]["data"]


def test_request_by_hand() -> None:
    message = encode_request(
        [
            Tensor(name="a", array=np.array([[1, 2]], "<i2"), parameters={"unit": "m"}),
            Tensor(name="b", array=np.array([True]), is_binary=False),
        ],
        outputs=[
            RequestedOutput(name="y", parameters={"classification": 3}),
            RequestedOutput(name="z", binary_data=None),
            RequestedOutput(name="w", binary_data=False),
        ],
        request_id="é",
        parameters={"binary_data_output": True, "priority": 1.5},
    )
    assert as_json(message) == {
        "id": "é",
        "parameters": {"binary_data_output": True, "priority": 1.5},
        "inputs": [
            {"name": "a", "shape": [1, 2], "datatype": "INT16", "parameters": {"unit": "m", "binary_data_size": 4}},
            {"name": "b", "shape": [1], "datatype": "BOOL", "data": [True]},
        ],
        "outputs": [
            {"name": "y", "parameters": {"classification": 3, "binary_data": True}},
            {"name": "z"},
            {"name": "w", "parameters": {"binary_data": False}},
        ],
    }
    assert bytes(buffers_of(message)[1]) == b"\1\0\2\0"


def test_request_leaves_out_what_is_not_given() -> None:
    assert as_json(encode_request([])) == {"inputs": []}
    assert as_json(encode_request([], outputs=[], parameters={})) == {"inputs": [], "outputs": []}


def test_response_by_hand() -> None:
    message = encode_response(
        [Tensor(name="y", array=np.array(0.5), is_binary=False)],
        model_name="m",
        model_version="3",
        request_id="",
        parameters={"a": None},
    )
    assert as_json(message) == {
        "model_name": "m",
        "model_version": "3",
        "id": "",
        "parameters": {"a": None},
        "outputs": [{"name": "y", "shape": [], "datatype": "FP64", "data": [0.5]}],
    }
    assert as_json(encode_response([], model_name="m")) == {"model_name": "m", "outputs": []}


@pytest.mark.parametrize("name_length", range(70))
def test_header_is_padded_so_that_tensors_start_on_a_boundary(name_length: int) -> None:
    message = encode_request([Tensor(name="x" * (name_length + 1), array=np.zeros(3, "<f4"))])
    header = bytes(buffers_of(message)[0])
    assert message.header_length == len(header)
    assert len(header) % 64 == 0
    assert len(header) - len(header.rstrip(b" ")) < 64
    assert header.rstrip(b" ").endswith(b"}")


def test_json_alone_is_not_padded() -> None:
    message = one(np.zeros(3, "<f4"), is_binary=False)
    assert (message.header_length, len(message.parts)) == (None, 1)
    assert bytes(buffers_of(message)[0]).endswith(b"}")


def test_fields_for_the_http_head() -> None:
    message = one(np.zeros(3, "<f4"))
    assert message.headers == [
        ("Content-Type", "application/octet-stream"),
        ("Inference-Header-Content-Length", str(message.header_length)),
        ("Content-Length", str((message.header_length or 0) + 12)),
    ]
    assert message.body_length == sum(map(len, buffers_of(message)))
    message = one(np.zeros(3, "<f4"), is_binary=False)
    assert message.headers == [("Content-Type", "application/json"), ("Content-Length", str(message.body_length))]


def test_empty_binary_tensor_has_a_size_but_no_buffer() -> None:
    message = encode_request([Tensor(name=n, array=np.zeros((0, 3), "<f4")) for n in "ab"])
    assert len(message.parts) == 1
    assert message.header_length == message.body_length
    assert as_json(message)["inputs"][0]["parameters"] == {"binary_data_size": 0}


@pytest.mark.parametrize("name", [name for name in DATATYPES if name != "BYTES"])
def test_buffers_are_the_arrays_own_memory(name: str) -> None:
    array = np.zeros((2, 3), DATATYPES[name].dtype)
    buffer = buffers_of(one(array))[1]
    assert isinstance(buffer, memoryview)
    assert (buffer.format, buffer.ndim, buffer.nbytes) == ("B", 1, array.nbytes)
    assert np.shares_memory(array, np.frombuffer(buffer, np.uint8))
    array.view(np.uint8)[0, 0] = 1
    assert buffer[0] == 1


def test_read_only_and_scalar_arrays_are_not_copied_either() -> None:
    fixed = np.frombuffer(b"\1\2", np.uint8)
    assert np.shares_memory(fixed, np.frombuffer(buffers_of(one(fixed))[1], np.uint8))
    scalar = np.array(1.5, "<f8")
    assert np.shares_memory(scalar, np.frombuffer(buffers_of(one(scalar))[1], np.uint8))
    assert as_json(one(scalar))["inputs"][0]["shape"] == []


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.arange(6, dtype="<i4").reshape(2, 3).T, id="transposed"),
        pytest.param(np.arange(6, dtype="<i4").reshape(2, 3)[:, ::-1], id="reversed"),
        pytest.param(np.arange(12, dtype="<i4")[::2], id="strided"),
        pytest.param(np.broadcast_to(np.int32(7), (2, 3)), id="broadcast"),
        pytest.param(np.asfortranarray(np.arange(6, dtype="<i4").reshape(2, 3)), id="fortran"),
        pytest.param(np.arange(6, dtype=">i4").reshape(2, 3), id="big-endian"),
        pytest.param(np.arange(6, dtype=">i4").reshape(2, 3).T, id="big-endian-transposed"),
        pytest.param(np.array(7, ">i4"), id="big-endian-scalar"),
        pytest.param(np.frombuffer(b"\0" + np.arange(3, dtype="<i4").tobytes(), "<i4", 3, 1), id="unaligned"),
        pytest.param(np.arange(4, dtype="<i4").view(np.recarray), id="subclass"),
    ],
)
def test_other_arrays_are_written_row_major_and_little_endian(array: Values) -> None:
    message = one(array)
    expected = np.array(array.tolist(), "<i4").tobytes()
    assert bytes(buffers_of(message)[1]) == expected
    assert as_json(message)["inputs"][0]["shape"] == list(array.shape)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_matrices_too() -> None:
    message = one(np.ones((2, 2), "<f8").view(np.matrix))
    assert message.body_length == (message.header_length or 0) + 32


def test_encoding_costs_nothing_per_byte() -> None:
    large = np.zeros(1 << 30, np.uint8)  # untouched: the machine gives it no memory unless somebody reads it
    tracemalloc.start()
    message = one(large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message.body_length > 1 << 30
    assert peak < 64 << 10


@pytest.mark.parametrize(
    ("array", "payload"),
    [
        pytest.param(np.array([b"", b"a\0", b"\xff"], object), b"\0\0\0\0\2\0\0\0a\0\1\0\0\0\xff", id="bytes"),
        pytest.param(np.array(["é", ""], object), b"\2\0\0\0\xc3\xa9\0\0\0\0", id="str"),
        pytest.param(np.array([b"ab", b"c"]), b"\2\0\0\0ab\1\0\0\0c", id="fixed-bytes"),
        pytest.param(np.array(["é"]), b"\2\0\0\0\xc3\xa9", id="fixed-str"),
        pytest.param(np.array([bytearray(b"a"), memoryview(b"bc")], object), b"\1\0\0\0a\2\0\0\0bc", id="buffers"),
        pytest.param(np.array([[b"a"], [b"b"]], object).T, b"\1\0\0\0a\1\0\0\0b", id="transposed"),
        pytest.param(np.array(b"a", object), b"\1\0\0\0a", id="scalar"),
    ],
)
def test_bytes_elements(array: Values, payload: bytes) -> None:
    message = one(array)
    assert buffers_of(message)[1] == payload
    assert as_json(message)["inputs"][0]["datatype"] == "BYTES"
    assert datatype_of(array.dtype).is_bytes


@pytest.mark.parametrize("element", [5, None, 1.5, [b"a"], "\ud800"], ids=repr)
@pytest.mark.parametrize("is_binary", [False, True])
def test_elements_that_are_no_bytes(element: Any, is_binary: bool) -> None:  # noqa: ANN401 - anything
    array = np.empty(1, object)
    array[0] = element
    with pytest.raises(LocalProtocolError, match="BYTES"):
        one(array, is_binary=is_binary)


class Liar(bytes):
    """Of another length, to whoever asks it."""

    __slots__ = ()

    def __len__(self) -> int:
        return 1 << 32


def test_elements_are_as_long_as_they_are_not_as_they_say() -> None:
    array = np.empty(2, object)
    array[:] = [Liar(b"ab"), b"c"]
    assert buffers_of(one(array))[1] == b"\2\0\0\0ab\1\0\0\0c"


def test_json_values() -> None:
    assert data_of(np.array([[1, 2], [3, 2**63 - 1]])) == [1, 2, 3, 2**63 - 1]
    assert data_of(np.array([2**64 - 1], np.uint64)) == [2**64 - 1]
    assert data_of(np.array([True, False])) == [True, False]
    assert data_of(np.array([0.1])) == [0.1]
    assert data_of(np.array([1, 2], ">i2")) == [1, 2]
    assert data_of(np.array([b"\xc3\xa9", "b"], object)) == ["é", "b"]
    assert data_of(np.zeros((2, 0))) == []


def test_non_finite_values_as_the_caller_wants_them() -> None:
    array = np.array([math.nan, 1.5, math.inf, -math.inf], "<f4")
    literal = encode_response([Tensor(name="x", array=array, is_binary=False)], model_name="m")
    assert b"[NaN,1.5,Infinity,-Infinity]" in bytes(buffers_of(literal)[0])
    assert data_of(array, nonfinite=NonFiniteOutput.NULL) == [None, 1.5, None, None]
    with pytest.raises(NotRepresentableError, match="not finite"):
        data_of(array, nonfinite=NonFiniteOutput.ERROR)
    for choice in NonFiniteOutput:
        assert data_of(array[1:2], nonfinite=choice) == [1.5]
        assert data_of(np.array([1]), nonfinite=choice) == [1]


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.zeros(1, "<f2"), "FP16 has no JSON form"),
        (np.zeros(1, DATATYPES["BF16"].dtype), "BF16 has no JSON form"),
        (np.array([b"a", b"\xff"], object), "not UTF-8"),
        (np.array([b"\xed\xa0\x80"], object), "not UTF-8"),
    ],
)
def test_values_that_json_cannot_say(array: Values, complaint: str) -> None:
    with pytest.raises(NotRepresentableError, match=complaint):
        data_of(array)


def test_received_parameters_can_be_sent_on() -> None:
    received = MappingProxyType({"binary_data_size": 8, "unit": "m"})
    entry = as_json(one(np.zeros(1, np.int8), parameters=received))["inputs"][0]
    assert entry["parameters"] == {"unit": "m", "binary_data_size": 1}
    entry = as_json(one(np.zeros(1, np.int8), is_binary=False, parameters=received))["inputs"][0]
    assert entry["parameters"] == {"unit": "m"}


@pytest.mark.parametrize("names", [[""], ["x", "x"], ["a", "b", "a"]], ids=str)
def test_names_must_be_unique_and_not_empty(names: Iterable[str]) -> None:
    with pytest.raises(LocalProtocolError, match="unique"):
        encode_request([Tensor(name=name, array=np.zeros(1)) for name in names])
    with pytest.raises(LocalProtocolError, match="unique"):
        encode_request([], outputs=[RequestedOutput(name=name) for name in names])


class _Deep(dict[str, Any]):
    """An object that holds itself."""


DEEP = _Deep()
DEEP["deeper"] = DEEP


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, b"bytes", {1, 2}, object(), [math.nan], {"a": {"b": -math.inf}}, DEEP], ids=type
)
def test_parameters_must_have_a_form_in_json(value: Any) -> None:  # noqa: ANN401 - anything
    acts: list[Callable[[], EncodedMessage]] = [
        lambda: encode_request([], parameters={"a": value}),
        lambda: encode_response([], model_name="m", parameters={"a": value}),
        lambda: encode_request([Tensor(name="x", array=np.zeros(1), parameters={"a": value})]),
        lambda: encode_request([], outputs=[RequestedOutput(name="y", parameters={"a": value})]),
    ]
    for act in acts:
        with pytest.raises(LocalProtocolError):
            act()


def test_names_of_parameters_must_be_text() -> None:
    odd: Any = {1: "a"}
    with pytest.raises(LocalProtocolError, match="names of parameters"):
        encode_request([], parameters=odd)


def test_flags_of_the_protocol_must_be_booleans() -> None:
    with pytest.raises(LocalProtocolError, match="binary_data_output is a bool"):
        encode_request([], parameters={"binary_data_output": 1})
    with pytest.raises(LocalProtocolError, match="binary_data is a bool"):
        encode_request([], outputs=[RequestedOutput(name="y", parameters={"binary_data": "yes"})])


def test_flags_that_are_null_are_written_as_they_came() -> None:
    text = b'{"parameters":{"binary_data_output":null},'
    text += b'"outputs":[{"name":"y","parameters":{"binary_data":null}}],"inputs":[]}'
    header = parse_request_header(text, DEFAULT_LIMITS)
    message = encode_request([], outputs=header.outputs, parameters=header.parameters)
    assert b"".join(message.buffers) == text


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_text_without_a_utf8_form(text: str) -> None:
    acts: list[Callable[[], EncodedMessage]] = [
        lambda: encode_request([], request_id=text),
        lambda: encode_response([], model_name=text),
        lambda: encode_request([Tensor(name=text, array=np.zeros(1))]),
        lambda: encode_request([], parameters={"a": text}),
    ]
    for act in acts:
        with pytest.raises(LocalProtocolError, match="JSON"):
            act()


@pytest.mark.parametrize("value", [b"7", object()], ids=type)
def test_members_without_a_form_in_json(value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(LocalProtocolError, match="an id is a str, as '7', not"):
        encode_request([], request_id=value)
    acts: list[Callable[[], EncodedMessage]] = [
        lambda: encode_response([], model_name=value),
        lambda: encode_response([], model_name="m", model_version=value),
    ]
    for act in acts:
        with pytest.raises(LocalProtocolError, match="cannot be written as JSON"):
            act()


def test_header_has_no_space_but_at_its_end() -> None:
    tensors = [Tensor(name=name, array=np.zeros((2, 3), "<f4"), parameters={"a": 1, "b": 2}) for name in "xy"]
    header = next(iter(encode_request(tensors, request_id="7", parameters={"a": 1, "b": 2}).buffers))
    assert b" " not in bytes(header).rstrip()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.zeros(1, np.complex64), "numpy dtype complex64 has no datatype"),
        (np.zeros(1, "M8[s]"), "dtype datetime64"),
        (None, "not None$"),
        ([1.0], "not list$"),
        (Fraction(1), r"not fractions\.Fraction$"),
        (np.array([None]), "not NoneType$"),
        (np.array(None), "not NoneType$"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_binary", [True, False])
def test_values_without_a_form_name_their_tensor(value: Any, reason: str, *, is_binary: bool) -> None:  # noqa: ANN401
    tensors = [Tensor(name="good", array=np.ones(1)), Tensor(name="bad one", array=value, is_binary=is_binary)]
    with pytest.raises(LocalProtocolError, match=f"^tensor 'bad one': .*{reason}"):
        encode_request(tensors)
    with pytest.raises(LocalProtocolError, match=f"^tensor 'bad one': .*{reason}"):
        encode_response(tensors, model_name="m")


def test_values_that_json_cannot_say_name_their_tensor() -> None:
    with pytest.raises(NotRepresentableError, match=r"^tensor 'x': FP16"):
        data_of(np.zeros(1, np.float16))


def test_arrays_by_name() -> None:
    """A mapping is what people try first; a scalar of numpy is an array without dimensions."""
    arrays = {"a": np.ones((2, 3), np.float32), "b": Elements([b"x"]), "c": np.float64(1)}
    tensors = [Tensor(name=name, array=array) for name, array in arrays.items()]  # type: ignore[arg-type] # numpy's scalar
    for given in (arrays, MappingProxyType(arrays)):
        assert list(map(bytes, buffers_of(encode_request(given)))) == list(map(bytes, encode_request(tensors).buffers))  # type: ignore[arg-type] # as above
        response = encode_response(given, model_name="m")  # type: ignore[arg-type] # as above
        assert list(map(bytes, response.buffers)) == list(map(bytes, encode_response(tensors, model_name="m").buffers))
    with pytest.raises(LocalProtocolError, match=r"^tensor 'x': .*not list"):
        encode_request({"x": [1.0]})  # type: ignore[arg-type] # what is tried


@pytest.mark.parametrize("tensors", [[np.ones(2)], np.ones(2), "x", ["x"], [None]], ids=repr)
def test_what_is_no_tensor(tensors: Any) -> None:  # noqa: ANN401 - anything but what it should be
    with pytest.raises(LocalProtocolError, match="tensors are given as Tensor objects, or as arrays by name, not as"):
        encode_request(tensors)


def test_tensors_come_from_any_iterable() -> None:
    tensors = [Tensor(name="x", array=np.ones(1))]
    assert encode_request(iter(tensors)).parts[0] == encode_request(tuple(tensors)).parts[0]


def test_a_name_is_text() -> None:
    name: Any = 1
    with pytest.raises(LocalProtocolError, match="names are str"):
        encode_request([Tensor(name=name, array=np.zeros(1))])


def test_raw_request_is_the_tensor_and_nothing_else() -> None:
    array = np.array([[1, 2], [3, 4]], "<i4")
    message = encode_raw_request(array)
    assert message.headers == [
        ("Content-Type", "application/octet-stream"),
        ("Inference-Header-Content-Length", "0"),
        ("Content-Length", "16"),
    ]
    (buffer,) = message.buffers
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)


def test_raw_request_is_little_endian_and_in_the_order_of_rows() -> None:
    message = encode_raw_request(np.array([[1, 2], [3, 4]], ">i2").T)
    assert [bytes(buffer) for buffer in message.buffers] == [b"\1\0\3\0\2\0\4\0"]


def test_raw_request_of_bytes_is_the_element_without_its_length() -> None:
    message = encode_raw_request(np.array([b"\0one\xff"], dtype=object))
    assert (message.parts, message.header_length, message.body_length) == ((b"\0one\xff",), 0, 5)


@pytest.mark.parametrize("array", [np.empty(0, np.float32), np.array([b""], dtype=object)], ids=["FP32", "BYTES"])
def test_raw_request_may_be_empty(array: Values) -> None:
    message = encode_raw_request(array)
    assert (message.parts, message.header_length, message.body_length) == ((), 0, 0)


@pytest.mark.parametrize("count", [0, 2])
def test_raw_request_of_several_elements_has_no_form(count: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"one BYTES element, not {count}"):
        encode_raw_request(np.array([b"x"] * count, dtype=object))
