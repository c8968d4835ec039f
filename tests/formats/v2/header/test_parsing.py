"""Rulebook, "JSON header": each member, accepted and refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamcodec import (
    DATATYPES,
    DEFAULT_LIMITS,
    ErrorCode,
    RequestedOutput,
    RequestHeader,
    TensorSpec,
    parse_request_header,
    parse_response_header,
)
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import Members, Message, binary, json_message, jsonic, message, request, response

pytestmark = pytest.mark.usefixtures("json_parser")

GOOD = jsonic("INT8", [1], [5])


def without(member: str) -> Members:
    return {key: value for key, value in GOOD.items() if key != member}


def header_of(good: Message) -> RequestHeader:
    outcome = decode(good)
    assert outcome.error is None, outcome.error
    assert isinstance(outcome.header, RequestHeader)
    return outcome.header


def test_absent_members() -> None:
    header = header_of(request())
    assert (header.tensors, header.outputs, header.id, dict(header.parameters)) == ((), None, None, {})


def test_null_of_an_optional_member_means_absent() -> None:
    header = header_of(request(GOOD | {"parameters": None}, id=None, parameters=None, outputs=None))
    assert (header.outputs, header.id, dict(header.parameters)) == (None, None, {})
    assert dict(header.tensors[0].parameters) == {}
    header = header_of(request(binary("INT8", [0], 0, data=None), outputs=[{"name": "y", "parameters": None}]))
    assert header.outputs == (RequestedOutput(name="y", binary_data=None),)
    assert header.tensors[0].is_binary


@pytest.mark.parametrize("value", ["", "42", 'é\N{GRINNING FACE}\0"\\\n', "x" * 100_000], ids=["", "42", "odd", "long"])
def test_id_is_kept_exactly(value: str) -> None:
    parsed = parse_request_header(request(id=value).body, DEFAULT_LIMITS)
    assert parsed.id == value


def test_members_that_the_url_decides_or_nobody_knows_are_ignored() -> None:
    odd: Any = {"model_name": 5, "model_version": [], "future": {"inputs": [None]}}
    header = header_of(request(GOOD | {"classification": {"k": None}}, **odd))
    assert [spec.name for spec in header.tensors] == ["x"]


def test_unknown_parameters_are_kept_for_the_model() -> None:
    parameters = {"sequence_id": 2**70, "priority": 1.5, "note": None, "deep": {"er": ["a", True]}}
    header = header_of(
        request(
            GOOD | {"parameters": parameters}, outputs=[{"name": "y", "parameters": parameters}], parameters=parameters
        )
    )
    assert dict(header.parameters) == parameters
    assert dict(header.tensors[0].parameters) == parameters
    assert header.outputs == (RequestedOutput(name="y", binary_data=None, parameters=parameters),)


def test_parameters_cannot_be_changed() -> None:
    header = header_of(request(GOOD | {"parameters": {"a": 1}}, parameters={"a": 1}))
    for parameters in (header.parameters, header.tensors[0].parameters):
        with pytest.raises(TypeError):
            parameters["a"] = 2  # type: ignore[index] # that is what is shown


def test_tensors_are_laid_out_one_behind_the_other_from_the_end_of_the_header() -> None:
    good = request(
        binary("FP32", [2], 8, name="a"),
        jsonic("INT8", [1], [5], name="b"),
        binary("INT8", [0, 7], 0, name="c"),
        binary("INT64", [], 8, name="d"),
        payload=bytes(16),
    )
    header = header_of(good)
    start = good.header_length or 0
    plan = [(spec.name, spec.offset, spec.nbytes, spec.count, spec.is_binary) for spec in header.tensors]
    assert plan == [
        ("a", start, 8, 2, True),
        ("b", None, 0, 1, False),
        ("c", start + 8, 0, 0, True),
        ("d", start + 8, 8, 1, True),
    ]


@pytest.mark.parametrize(
    ("shape", "count"),
    [([], 1), ([1], 1), ([2, 3], 6), ([0], 0), ([0, 1 << 40], 0), ([1] * 64, 1), ([2] * 8 + [1] * 56, 256)],
)
def test_shapes(shape: list[int], count: int) -> None:
    [array] = accept(request(binary("UINT8", shape, count), payload=bytes(count)))
    assert array.shape == tuple(shape)


@pytest.mark.parametrize(
    ("outputs", "parameters", "wanted"),
    [
        ([{"name": "y"}], {}, False),
        ([{"name": "y"}], {"binary_data_output": True}, True),
        ([{"name": "y"}], {"binary_data_output": False}, False),
        ([{"name": "y"}], {"binary_data_output": None}, False),
        ([{"name": "y", "parameters": {"binary_data": False}}], {"binary_data_output": True}, False),
        ([{"name": "y", "parameters": {"binary_data": True}}], {"binary_data_output": False}, True),
        ([{"name": "y", "parameters": {"binary_data": None}}], {"binary_data_output": True}, True),
        (None, {"binary_data_output": True}, True),
        (None, {}, False),
    ],
)
def test_explicit_binary_data_wins_then_the_requests_wish_then_json(
    outputs: list[Members] | None, parameters: Members, wanted: bool
) -> None:
    header = header_of(request(outputs=outputs, parameters=parameters))
    assert header.wants_binary(header.outputs[0] if header.outputs else None) is wanted


def test_outputs_may_be_empty_which_is_not_absent() -> None:
    assert header_of(request(outputs=[])).outputs == ()


REFUSED: list[tuple[str, Message, ErrorCode, str]] = [
    ("header-null", message(b"null"), ErrorCode.INVALID_HEADER, "$"),
    ("header-array", message(b"[]"), ErrorCode.INVALID_HEADER, "$"),
    ("header-string", message(b'"inputs"'), ErrorCode.INVALID_HEADER, "$"),
    ("header-number", message(b"1"), ErrorCode.INVALID_HEADER, "$"),
    ("header-nan", message(b"NaN"), ErrorCode.INVALID_HEADER, "$"),
    ("no-inputs", message({}), ErrorCode.MISSING_MEMBER, "$.inputs"),
    ("inputs-null", message({"inputs": None}), ErrorCode.MISSING_MEMBER, "$.inputs"),
    ("inputs-object", message({"inputs": {}}), ErrorCode.INVALID_MEMBER, "$.inputs"),
    ("input-string", message({"inputs": ["x"]}), ErrorCode.INVALID_MEMBER, "$.inputs[0]"),
    ("input-null", message({"inputs": [GOOD, None]}), ErrorCode.INVALID_MEMBER, "$.inputs[1]"),
    ("id-number", request(id=42), ErrorCode.INVALID_MEMBER, "$.id"),
    ("name-absent", request(without("name")), ErrorCode.MISSING_MEMBER, "$.inputs[0].name"),
    ("name-null", request(GOOD | {"name": None}), ErrorCode.MISSING_MEMBER, "$.inputs[0].name"),
    ("name-number", request(GOOD | {"name": 5}), ErrorCode.INVALID_MEMBER, "$.inputs[0].name"),
    ("name-empty", request(GOOD | {"name": ""}), ErrorCode.INVALID_MEMBER, "$.inputs[0].name"),
    ("name-twice", request(GOOD, GOOD), ErrorCode.DUPLICATE_NAME, "$.inputs[1].name"),
    ("shape-absent", request(without("shape")), ErrorCode.MISSING_MEMBER, "$.inputs[0].shape"),
    ("shape-null", request(GOOD | {"shape": None}), ErrorCode.MISSING_MEMBER, "$.inputs[0].shape"),
    ("shape-number", request(GOOD | {"shape": 1}), ErrorCode.INVALID_SHAPE, "$.inputs[0].shape"),
    ("dimension-negative", request(GOOD | {"shape": [1, -1]}), ErrorCode.INVALID_SHAPE, "$.inputs[0].shape[1]"),
    ("dimension-fraction", request(GOOD | {"shape": [1.0]}), ErrorCode.INVALID_SHAPE, "$.inputs[0].shape[0]"),
    ("dimension-text", request(GOOD | {"shape": ["1"]}), ErrorCode.INVALID_SHAPE, "$.inputs[0].shape[0]"),
    ("dimension-true", request(GOOD | {"shape": [True]}), ErrorCode.INVALID_SHAPE, "$.inputs[0].shape[0]"),
    ("dimension-null", request(GOOD | {"shape": [None]}), ErrorCode.INVALID_SHAPE, "$.inputs[0].shape[0]"),
    ("dimension-array", request(GOOD | {"shape": [[1]]}), ErrorCode.INVALID_SHAPE, "$.inputs[0].shape[0]"),
    ("datatype-absent", request(without("datatype")), ErrorCode.MISSING_MEMBER, "$.inputs[0].datatype"),
    ("datatype-number", request(GOOD | {"datatype": 8}), ErrorCode.INVALID_MEMBER, "$.inputs[0].datatype"),
    ("datatype-unknown", request(GOOD | {"datatype": "INT128"}), ErrorCode.UNKNOWN_DATATYPE, "$.inputs[0].datatype"),
    ("datatype-lower", request(GOOD | {"datatype": "int8"}), ErrorCode.UNKNOWN_DATATYPE, "$.inputs[0].datatype"),
    ("datatype-blank", request(GOOD | {"datatype": "INT8 "}), ErrorCode.UNKNOWN_DATATYPE, "$.inputs[0].datatype"),
    ("no-source", request(without("data")), ErrorCode.MISSING_MEMBER, "$.inputs[0]"),
    ("data-null", request(GOOD | {"data": None}), ErrorCode.MISSING_MEMBER, "$.inputs[0]"),
    ("no-source-empty", request(without("data") | {"shape": [0]}), ErrorCode.MISSING_MEMBER, "$.inputs[0]"),
    ("two-sources", request(GOOD | binary("INT8", [1], 1)), ErrorCode.AMBIGUOUS_SOURCE, "$.inputs[0]"),
    ("two-empty-sources", request(binary("INT8", [0], 0, data=[])), ErrorCode.AMBIGUOUS_SOURCE, "$.inputs[0]"),
    ("parameters-array", request(parameters=[]), ErrorCode.INVALID_MEMBER, "$.parameters"),
    ("tensor-parameters-text", request(GOOD | {"parameters": ""}), ErrorCode.INVALID_MEMBER, "$.inputs[0].parameters"),
    (
        "binary-data-output-1",
        request(parameters={"binary_data_output": 1}),
        ErrorCode.INVALID_MEMBER,
        "$.parameters.binary_data_output",
    ),
    (
        "parameter-beyond-a-double",
        message(b'{"inputs":[],"parameters":{"a":{"b":[1,1e400]}}}'),
        ErrorCode.INVALID_MEMBER,
        "$.parameters.a.b[1]",
    ),
    ("outputs-object", request(outputs={}), ErrorCode.INVALID_MEMBER, "$.outputs"),
    ("output-text", request(outputs=["y"]), ErrorCode.INVALID_MEMBER, "$.outputs[0]"),
    ("output-without-name", request(outputs=[{}]), ErrorCode.MISSING_MEMBER, "$.outputs[0].name"),
    ("output-twice", request(outputs=[{"name": "y"}] * 2), ErrorCode.DUPLICATE_NAME, "$.outputs[1].name"),
    (
        "binary-data-text",
        request(outputs=[{"name": "y", "parameters": {"binary_data": "true"}}]),
        ErrorCode.INVALID_MEMBER,
        "$.outputs[0].parameters.binary_data",
    ),
]


@pytest.mark.parametrize(("bad", "code", "path"), [pytest.param(*case, id=name) for name, *case in REFUSED])
def test_refused(bad: Message, code: ErrorCode, path: str) -> None:
    error = refuse(bad)
    assert (error.code, error.path, error.offset, error.status_hint) == (code, path, None, 400)
    chunked = refuse(bad.chunked())
    assert (chunked.code, chunked.path, chunked.message) == (code, path, error.message)


def test_hint_at_a_datatype_in_the_wrong_letter_case() -> None:
    assert "upper case" in str(refuse(request(GOOD | {"datatype": "fp32"})))
    assert "upper case" not in str(refuse(request(GOOD | {"datatype": "float"})))


def test_names_from_the_peer_are_cut_and_escaped_in_messages() -> None:
    error = refuse(request(GOOD | {"datatype": "\n\x1b" * 500}))
    assert str(error).isprintable()
    assert len(str(error)) < 300


# The seeds' own examples: refused as printed, accepted as they were meant.


@pytest.mark.parametrize(
    ("datatype", "shape", "printed", "meant"),
    [("FP16", [2, 2], 16, 8), ("FP16", [3, 2], 16, 12), ("FP32", [2, 2], 32, 16)],
)
def test_examples_of_the_specifications(datatype: str, shape: list[int], printed: int, meant: int) -> None:
    error = refuse(request(binary(datatype, shape, printed), payload=bytes(printed)))
    assert error.code is ErrorCode.BINARY_SIZE_MISMATCH
    assert error.path == "$.inputs[0].parameters.binary_data_size"
    assert f"is {printed}" in error.message
    assert f"need {meant}" in error.message
    [array] = accept(request(binary(datatype, shape, meant), payload=bytes(meant)))
    assert array.shape == tuple(shape)


def test_example_with_a_trailing_comma() -> None:
    text = b'{"inputs":[{"name":"x","shape":[1],"datatype":"UINT32","parameters":{"binary_data_size":4},}]}'
    error = refuse(message(text, bytes(4)))
    assert (error.code, error.path, error.offset) == (ErrorCode.INVALID_JSON, None, text.index(b",}") + 1)
    accept(message(text.replace(b",}", b"}"), bytes(4)))


# The parsing functions, which are public by themselves.


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_headers_are_parsed_from_any_buffer(kind: Any) -> None:  # noqa: ANN401 - a parametrized class
    good = request(binary("INT8", [3], 3), id="7")
    header = parse_request_header(kind(good.body), DEFAULT_LIMITS)
    assert (header.id, header.tensors[0].offset) == ("7", len(good.body))
    answer = parse_response_header(kind(response(GOOD, model_name="m").body), DEFAULT_LIMITS)
    assert answer.model_name == "m"


def test_spec_may_be_made_by_hand() -> None:
    spec = TensorSpec(name="x", datatype=DATATYPES["INT8"], shape=(2, 3), nbytes=6)
    assert (spec.count, spec.is_binary, spec.is_single_element, dict(spec.parameters)) == (6, True, False, {})


def test_json_of_known_length_without_header_length() -> None:
    assert accept(json_message({"inputs": [GOOD]}))[0].tolist() == [5]
