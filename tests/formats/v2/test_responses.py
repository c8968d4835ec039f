"""Rulebook, "Responses: read": what a client tolerates from real servers, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    ErrorCode,
    HeaderCache,
    LimitExceededError,
    Limits,
    ResponseHeader,
    parse_response_header,
    response_decoder,
)
from streamcodec.testing import run_push
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import Members, Message, binary, json_message, jsonic, message, response

pytestmark = pytest.mark.usefixtures("json_parser")

EMPTY: Members = {"name": "x", "datatype": "FP32", "shape": [2, 0]}


def header_of(good: Message) -> ResponseHeader:
    outcome = decode(good)
    assert outcome.error is None, outcome.error
    assert isinstance(outcome.header, ResponseHeader)
    return outcome.header


def test_members() -> None:
    header = header_of(response(model_name="m", model_version="1", id="é", parameters={"a": 1}))
    assert (header.model_name, header.model_version, header.id) == ("m", "1", "é")
    assert dict(header.parameters) == {"a": 1}


def test_null_and_absent_members() -> None:
    for good in (response(), response(model_name=None, model_version=None, id=None, parameters=None)):
        header = header_of(good)
        assert (header.model_name, header.model_version, header.id) == (None, None, None)
        assert dict(header.parameters) == {}


def test_binary_and_json_outputs_mixed() -> None:
    arrays = accept(
        response(
            binary("INT8", [1], 1, name="a"),
            jsonic("FP64", [1], [0.5], name="b"),
            binary("BOOL", [1], 1, name="c"),
            payload=b"\5\1",
        )
    )
    assert [array.tolist() for array in arrays] == [[5], [0.5], [True]]


@pytest.mark.parametrize(
    "good",
    [
        pytest.param(json_message({"outputs": [EMPTY]}, is_response=True), id="neither-size-nor-data"),
        pytest.param(json_message({"outputs": [EMPTY | {"data": None}]}, is_response=True), id="data-null"),
        pytest.param(json_message({"outputs": [EMPTY | {"data": []}]}, is_response=True), id="data-empty"),
        pytest.param(
            json_message({"outputs": [binary("FP32", [2, 0], 0)]}, is_response=True), id="size-0-without-header-length"
        ),
        pytest.param(response(binary("FP32", [2, 0], 0)), id="size-0-with-header-length"),
    ],
)
def test_empty_output_in_all_the_forms_servers_write(good: Message) -> None:
    for form in (good, good.chunked()):
        [array] = accept(form)
        np.testing.assert_array_equal(array, np.empty((2, 0), "<f4"), strict=True)


def test_bare_non_finite_numbers_are_read() -> None:
    text = b'{"outputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]}'
    [array] = accept(json_message(text, is_response=True))
    np.testing.assert_array_equal(array, np.array([np.nan, np.inf, -np.inf], "<f4"), strict=True)


GOOD = response(binary("INT8", [2], 2), payload=b"\1\2")


@pytest.mark.parametrize(
    ("bad", "code", "offset", "path"),
    [
        pytest.param(message({}, is_response=True), ErrorCode.MISSING_MEMBER, None, "$.outputs", id="no-outputs"),
        pytest.param(
            message({"error": "no"}, is_response=True), ErrorCode.MISSING_MEMBER, None, "$.outputs", id="error-body"
        ),
        pytest.param(
            response(EMPTY | {"shape": [1]}), ErrorCode.MISSING_MEMBER, None, "$.outputs[0]", id="no-source-not-empty"
        ),
        pytest.param(
            response(EMPTY | {"shape": []}), ErrorCode.MISSING_MEMBER, None, "$.outputs[0]", id="no-source-scalar"
        ),
        pytest.param(response(model_name=5), ErrorCode.INVALID_MEMBER, None, "$.model_name", id="model-name-number"),
        pytest.param(response(model_version=1), ErrorCode.INVALID_MEMBER, None, "$.model_version", id="version-number"),
        pytest.param(response(id=1), ErrorCode.INVALID_MEMBER, None, "$.id", id="id-number"),
        pytest.param(response(parameters="a"), ErrorCode.INVALID_MEMBER, None, "$.parameters", id="parameters-text"),
        pytest.param(
            response(binary("INT8", [2], 3), payload=bytes(3)),
            ErrorCode.BINARY_SIZE_MISMATCH,
            None,
            "$.outputs[0].parameters.binary_data_size",
            id="size-does-not-add-up",
        ),
        pytest.param(
            replace(GOOD, body=GOOD.body + b"!", body_length=len(GOOD.body) + 1),
            ErrorCode.BODY_LENGTH_MISMATCH,
            len(GOOD.body),
            None,
            id="trailing-byte",
        ),
        pytest.param(replace(GOOD, body=GOOD.body[:-1]), ErrorCode.TRUNCATED, len(GOOD.body) - 1, None, id="truncated"),
        pytest.param(
            replace(GOOD.chunked(), body=GOOD.body[:-2]),
            ErrorCode.TRUNCATED,
            GOOD.header_length,
            None,
            id="chunked-cut",
        ),
    ],
)
def test_refused(bad: Message, code: ErrorCode, offset: int | None, path: str | None) -> None:
    error = refuse(bad)
    assert (error.code, error.offset, error.path, error.status_hint) == (code, offset, path, 400)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"outputs":[],"inputs":5,"x":NaN}', "$.x"),
        (b'{"outputs":[],"inputs":[NaN]}', "$.inputs[0]"),
        (b'{"outputs":[],"inputs":[{"data":[NaN]}]}', "$.inputs[0].data[0]"),
        (b'{"outputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[NaN]}],"x y":[-Infinity]}', "$['x y'][0]"),
        (b'{"outputs":[{"y":NaN,"name":"x","datatype":"FP32","shape":[1],"data":[NaN]}]}', "$.outputs[0].y"),
        (b'{"outputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1],"y":{"z":NaN}}]}', "$.outputs[0].y.z"),
    ],
)
def test_non_finite_number_elsewhere_is_located(text: bytes, path: str) -> None:
    error = refuse(message(text, is_response=True))
    assert (error.code, error.path, error.offset) == (ErrorCode.NON_FINITE_NUMBER, path, None)


def test_null_among_floats_is_nan_as_servers_write_what_is_not_finite() -> None:
    (single, double) = accept(
        json_message(
            {"outputs": [jsonic("FP32", [3], [1, None, -0.0]), jsonic("FP64", [2, 1], [[None], [0.5]], name="y")]},
            is_response=True,
        )
    )
    assert np.array_equal(single, np.array([1, np.nan, -0.0], np.float32), equal_nan=True)
    assert np.array_equal(double, np.array([[np.nan], [0.5]]), equal_nan=True)


def test_null_and_literals_may_stand_side_by_side() -> None:
    (array,) = accept(json_message({"outputs": [jsonic("FP32", [3], [None, np.nan, np.inf])]}, is_response=True))
    assert np.array_equal(array, np.array([np.nan, np.nan, np.inf], np.float32), equal_nan=True)


def test_null_does_not_hide_a_literal_elsewhere() -> None:
    body = b'{"parameters":{"a":NaN},"outputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[null]}]}'
    error = refuse(json_message(body, is_response=True))
    assert (error.code, error.path) == (ErrorCode.NON_FINITE_NUMBER, "$.parameters.a")


@pytest.mark.parametrize("datatype", ["INT64", "UINT8", "BOOL", "BYTES"])
def test_null_is_no_value_of_any_other_datatype(datatype: str) -> None:
    error = refuse(json_message({"outputs": [jsonic(datatype, [1], [None])]}, is_response=True))
    assert (error.code, error.path) == (ErrorCode.INVALID_DATA, "$.outputs[0].data[0]")


def test_null_among_what_is_no_number_is_not_what_is_wrong() -> None:
    error = refuse(json_message({"outputs": [jsonic("FP32", [3], [None, 1, "x"])]}, is_response=True))
    assert (error.code, error.path) == (ErrorCode.INVALID_DATA, "$.outputs[0].data[2]")
    error = refuse(json_message({"outputs": [jsonic("FP32", [3], [None, 1, 1e39])]}, is_response=True))
    assert (error.code, error.path) == (ErrorCode.INVALID_DATA, "$.outputs[0].data[2]")


def test_null_of_a_request_is_no_number() -> None:
    error = refuse(json_message({"inputs": [jsonic("FP32", [2], [1, None])]}))
    assert (error.code, error.path) == (ErrorCode.INVALID_DATA, "$.inputs[0].data[1]")


def test_a_decoder_of_responses_heeds_its_arguments() -> None:
    body = b'{"model_name":"m","outputs":[]}'
    seen: list[ResponseHeader] = []
    decoder = response_decoder(header_length=None, body_length=len(body), check=seen.append)
    decoder.feed(body)
    assert [header.model_name for header in seen] == ["m"]
    small = response_decoder(header_length=None, body_length=len(body), limits=Limits(max_header_bytes=9))
    with pytest.raises(LimitExceededError, match="9 are allowed"):
        small.next_event()
    remembered = HeaderCache(parse_response_header, Limits(max_header_bytes=9))
    smaller = response_decoder(header_length=None, body_length=len(body), headers=remembered)
    with pytest.raises(LimitExceededError, match="9 are allowed"):
        smaller.next_event()


@pytest.mark.parametrize("arguments", [{}, {"allow_headerless": False}, {"allow_headerless": True}])
def test_a_decoder_of_responses_looks_for_the_end_of_json_if_told_to(arguments: dict[str, Any]) -> None:
    body = b'{"outputs":[{"name":"x","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}}]}\1'
    outcome = run_push(lambda: response_decoder(header_length=None, body_length=len(body), **arguments), [body])
    assert (outcome.end is not None) is any(arguments.values())
