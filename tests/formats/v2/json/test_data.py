"""Rulebook, "JSON header", row `data`: tensors whose values stand in the JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from streamcodec import DATATYPES, DEFAULT_LIMITS, ErrorCode, RemoteProtocolError, parse_request_header
from streamcodec.formats.v2.json.output import dump_json
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import json_message, jsonic, message, request

pytestmark = pytest.mark.usefixtures("json_parser")

DATA = "$.inputs[0].data"


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("UINT16", [0, 65_535]),
        ("UINT32", [0, 2**32 - 1]),
        ("UINT64", [2**53 + 1, 2**64 - 1]),
        ("INT8", [-128, 127]),
        ("INT16", [-32_768, 32_767]),
        ("INT32", [-(2**31), 2**31 - 1]),
        ("INT64", [-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1]),
        ("FP32", [0.0, -1.5, 3.4028234663852886e38, 1e-45, 7, 2**100]),
        ("FP64", [0.1, 1.7976931348623157e308, 5e-324, -7, 2**1000]),
        ("BYTES", ["", "a\0b", "é\N{GRINNING FACE}", "\x7f"]),
    ],
)
def test_values_of_each_datatype(datatype: str, values: list[Any]) -> None:
    [array] = accept(json_message({"inputs": [jsonic(datatype, [len(values)], values)]}))
    assert array.dtype == DATATYPES[datatype].dtype
    if datatype == "BYTES":
        assert array.tolist() == [value.encode() for value in values]
    else:
        np.testing.assert_array_equal(array, np.array(values, array.dtype), strict=True)
        assert array.flags.writeable


@pytest.mark.parametrize(
    ("shape", "data", "values"),
    [
        pytest.param([], 5, 5, id="scalar"),
        pytest.param([], [5], 5, id="scalar-in-an-array"),
        pytest.param([1], [5], [5], id="one"),
        pytest.param([2, 3], [1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]], id="flat"),
        pytest.param([2, 3], [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]], id="nested"),
        pytest.param([1, 1, 2], [[[1, 2]]], [[[1, 2]]], id="nested-deeper"),
        pytest.param([0], [], [], id="empty"),
        pytest.param([2, 0], [], [[], []], id="empty-flat"),
        pytest.param([2, 0], [[], []], [[], []], id="empty-nested"),
        pytest.param([0, 2], [], [], id="empty-outside"),
    ],
)
@pytest.mark.parametrize("datatype", ["INT8", "FP64"])
def test_data_is_flat_or_nested_like_the_shape(datatype: str, shape: list[int], data: Any, values: Any) -> None:  # noqa: ANN401
    [array] = accept(request(jsonic(datatype, shape, data)))
    assert array.shape == tuple(shape)
    assert array.tolist() == values


def test_deepest_nesting_that_numpy_has() -> None:
    data: Any = 5
    for _ in range(64):
        data = [data]
    outcome = decode(request(jsonic("INT8", [1] * 64, data)))
    assert outcome.error is None
    assert outcome.arrays[0].shape == (1,) * 64


@pytest.mark.parametrize(
    ("shape", "data", "place"),
    [
        pytest.param([2], 5, "", id="no-array"),
        pytest.param([2], "ab", "", id="text"),
        pytest.param([2], {"0": 1, "1": 2}, "", id="object"),
        pytest.param([2], [1], "", id="too-few"),
        pytest.param([2], [1, 2, 3], "", id="too-many"),
        pytest.param([], [], "", id="scalar-in-an-empty-array"),
        pytest.param([], [1, 2], "", id="two-scalars"),
        pytest.param([0], [1], "", id="something-in-nothing"),
        pytest.param([1], [[1]], "[0]", id="nested-too-deep"),
        pytest.param([2, 2], [[1, 2]], "", id="row-missing"),
        pytest.param([2, 2], [[1, 2], [3]], "[1]", id="ragged"),
        pytest.param([2, 2], [[1, 2], 3], "[1]", id="row-is-a-value"),
        pytest.param([2, 2], [1, [2]], "", id="half-nested"),
        pytest.param([2, 2], [[1, 2], [3, [4]]], "[1][1]", id="value-is-an-array"),
        pytest.param([2, 1, 2], [[[1, 2]], [[3, 4, 5]]], "[1][0]", id="ragged-inside"),
        pytest.param([2, 0], [[], [1]], "[1]", id="something-in-an-empty-row"),
        pytest.param([1 << 20, 1 << 20], [1], "", id="a-tebi-of-elements"),
    ],
)
def test_data_that_does_not_have_the_shape(shape: list[int], data: Any, place: str) -> None:  # noqa: ANN401
    error = refuse(request(jsonic("INT8", shape, data)))
    assert (error.code, error.path, error.offset, error.status_hint) == (
        ErrorCode.INVALID_DATA,
        DATA + place,
        None,
        400,
    )


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", ["0", "1", '"true"', "null", "1.0", "[]", "NaN"]),
        ("INT8", ["128", "-129", "1.9", "1.0", "1e0", '"1"', "true", "null", "{}", "NaN", "1e400", "9" * 50]),
        ("UINT8", ["256", "-1", "0.5", '"255"', "false", "null", "Infinity"]),
        ("UINT64", [str(2**64), "-1", "18446744073709551615.0"]),
        ("INT64", [str(2**63), str(-(2**63) - 1), "9007199254740993.0"]),
        ("FP32", ["1e39", "-1e39", '"1.5"', "true", "null", "[]", "1e400", "1" + "0" * 39, "1" + "0" * 400]),
        ("FP64", ["1e309", "-1e309", '"NaN"', "false", "null", "{}", "1" + "0" * 400]),
        ("BYTES", ["1", "null", "true", "[]", "{}", "NaN"]),
    ],
)
def test_values_that_are_not_of_the_datatype(datatype: str, values: list[str]) -> None:
    good = {"BOOL": "true", "BYTES": '"a"'}.get(datatype, "1")
    for value in values:
        for shape, form, place in (([2], "[{},{}]", "[1]"), ([2, 1], "[[{}],[{}]]", "[1][0]"), ([], "{1}", "")):
            if shape == [] and value == "null":
                continue  # `data: null` is no data
            if shape == [] and value == "[]":
                continue  # an empty array is not one value
            data = form.format(good, value)
            text = f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}'
            outcome = decode(message(text.encode()))
            assert outcome.error is not None, data
            error = outcome.error
            assert (error.code, error.path, error.status_hint) == (ErrorCode.INVALID_DATA, DATA + place, 400), data


def test_first_wrong_value_is_named() -> None:
    error = refuse(request(jsonic("INT8", [2, 3], [[1, 2, 3], [4, 500, "6"]])))
    assert error.path == DATA + "[1][2]"  # types are looked at first
    error = refuse(request(jsonic("INT8", [2, 3], [[1, 2, 3], [4, 500, 600]])))
    assert error.path == DATA + "[1][1]"


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_floats_have_no_json_form(datatype: str) -> None:
    error = refuse(request(jsonic(datatype, [1], [1.5])))
    assert (error.code, error.path, error.status_hint) == (ErrorCode.JSON_NOT_SUPPORTED, DATA, 400)
    assert "binary" in error.message


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_literal_non_finite_values(datatype: str) -> None:
    [array] = accept(request(jsonic(datatype, [2, 2], [[math.nan, math.inf], [-math.inf, 1.0]])))
    np.testing.assert_array_equal(array, np.array([[np.nan, np.inf], [-np.inf, 1]], array.dtype), strict=True)
    [scalar] = accept(request(jsonic(datatype, [], math.nan)))
    assert np.isnan(scalar)


def test_literal_infinity_does_not_excuse_a_number_that_overflows() -> None:
    text = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[Infinity,1e39]}]}'
    error = refuse(message(text))
    assert (error.code, error.path) == (ErrorCode.INVALID_DATA, DATA + "[1]")


def test_values_do_not_depend_on_the_programs_floating_point_settings() -> None:
    tiny = json.dumps({"inputs": [jsonic("FP32", [1], [1e-300])]}).encode()
    huge = json.dumps({"inputs": [jsonic("FP32", [1], [1e39])]}).encode()
    with np.errstate(all="raise"):
        assert accept(json_message(tiny))[0].tolist() == [0.0]
        assert refuse(json_message(huge)).code is ErrorCode.INVALID_DATA


def test_size_and_json_tensors_do_not_disturb_each_other() -> None:
    good = request(jsonic("INT8", [1], [5], name="a"), jsonic("BYTES", [1], ["é"], name="b"))
    assert [array.tolist() for array in accept(good)] == [[5], ["é".encode()]]


@pytest.mark.parametrize("datatype", ["FP32", "INT8", "UINT64"])
@pytest.mark.parametrize("count", [1, 1000])
def test_a_boolean_hides_neither_among_few_zeros_nor_among_many(datatype: str, count: int) -> None:
    for wrong, values in ((True, [2] * count), (False, [0] * count)):
        error = refuse(json_message({"inputs": [jsonic(datatype, [count + 1], [*values, wrong])]}))
        assert (error.code, error.path) == (ErrorCode.INVALID_DATA, f"$.inputs[0].data[{count}]")
        accept(json_message({"inputs": [jsonic(datatype, [count + 2], [*values, 0, 1])]}))


def test_json_is_written_without_superfluous_space_and_as_utf8() -> None:
    assert dump_json({"a": [1, 2.5, None, True], "é": "\n"}) == '{"a":[1,2.5,null,true],"é":"\\n"}'.encode()


# Minus zero, written as an integer


def _nested(values: list[str], shape: list[int], separator: str) -> str:
    if shape:
        step = len(values) // shape[0]
        parts = (_nested(values[start : start + step], shape[1:], separator) for start in range(0, len(values), step))
        return f"[{separator.join(parts)}]"
    return values[0]


@pytest.mark.parametrize("shape", [[8], [2, 4], [9000], [90, 100], [3, 1, 3000]], ids=str)
@pytest.mark.parametrize("separator", [",", " ,\n "], ids=repr)
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_minus_zero_keeps_its_sign_among_floats(shape: list[int], separator: str, datatype: str) -> None:
    """In a short header and in a long one, flat or nested, whichever parser reads it."""
    literals = ["-0", "0", "1e-05", "-0", "-2.5E-07", "-0.0", "1e-0", "-0e1", "-0.25", "-3", "1.5"]
    count = int(np.prod(shape))
    values = [literals[index * 3 % len(literals)] for index in range(count)]
    tensor = f'"datatype":"{datatype}","shape":{shape},"data":{_nested(values, shape, separator)}'
    text = f'{{"inputs":[{{"name":"x",{tensor}}}]}}'
    data = parse_request_header(text.encode(), DEFAULT_LIMITS).tensors[0].data
    assert data is not None
    wanted = np.array(list(map(float, values)), data.dtype).reshape(shape)
    assert np.array_equal(data, wanted)
    assert np.array_equal(np.signbit(data), np.signbit(wanted))


@pytest.mark.parametrize("literal", ["NaN", "1"])
def test_minus_zero_is_zero_among_integers_and_everywhere_else(literal: str) -> None:
    """With NaN, the text goes the way of what is unusual."""
    text = (
        '{"parameters":{"a":-0,"b":[-0,{"c":-0}]},"inputs":[{"name":"x","datatype":"INT8","shape":[2],"data":[-0,5]},'
        f'{{"name":"y","datatype":"FP32","shape":[1],"data":[{literal}]}}]}}'
    )
    header = parse_request_header(text.encode(), DEFAULT_LIMITS)
    assert json.dumps(dict(header.parameters)) == '{"a": 0, "b": [0, {"c": 0}]}'
    assert type(header.parameters["a"]) is int
    assert str(header.tensors[0].data) == "[0 5]"


@pytest.mark.parametrize(("datatype", "wrong"), [("INT8", "0.5"), ("INT8", "300"), ("FP32", '"a"'), ("BOOL", "1")])
def test_what_is_wrong_beside_minus_zero_is_found_at_its_place(datatype: str, wrong: str) -> None:
    first = "true" if datatype == "BOOL" else "-0"
    text = f'{{"inputs":[{{"name":"-0","datatype":"{datatype}","shape":[2],"data":[{first},{wrong}]}}]}}'
    with pytest.raises(RemoteProtocolError) as refused:
        parse_request_header(text.encode(), DEFAULT_LIMITS)
    assert refused.value.path == "$.inputs[0].data[1]"


@pytest.mark.parametrize("count", [8, 9000])
def test_zeros_without_a_sign_have_none(count: int) -> None:
    text = f'{{"inputs":[{{"name":"x","datatype":"FP32","shape":[{count}],"data":{[0, 0.0] * (count // 2)}}}]}}'
    data = parse_request_header(text.encode(), DEFAULT_LIMITS).tensors[0].data
    assert data is not None
    assert not np.signbit(data).any()
