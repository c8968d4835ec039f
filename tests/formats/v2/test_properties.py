"""Properties: any message survives any way of arriving; any text is either accepted or a remote error."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    DATATYPES,
    DEFAULT_LIMITS,
    Limits,
    RemoteProtocolError,
    Tensor,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
)
from streamcodec.testing import describe_array, run_pull, run_push
from tests.effort import examples
from tests.engine.triad import Values
from tests.formats.v2.messages import Message, binary, jsonic

FIXED = [name for name, datatype in DATATYPES.items() if not datatype.is_bytes]
SHAPES = st.lists(st.integers(0, 4), max_size=4)
SETTINGS = settings(max_examples=examples(150))


@st.composite
def arrays(draw: st.DrawFn) -> Values:
    shape = draw(SHAPES)
    count = int(np.prod(shape, dtype=np.int64))
    if draw(st.integers(0, 4)) == 0:
        array = np.empty(count, object)
        array[:] = draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count))
        return array.reshape(shape)
    datatype = DATATYPES[draw(st.sampled_from(FIXED))]
    data = draw(st.binary(min_size=count * datatype.itemsize, max_size=count * datatype.itemsize))
    if datatype.name == "BOOL":
        data = bytes(byte & 1 for byte in data)
    array = np.frombuffer(data, datatype.dtype).reshape(shape)
    return array.T if draw(st.booleans()) else array


TENSORS = st.lists(st.tuples(st.text(min_size=1, max_size=5), arrays()), max_size=5, unique_by=lambda pair: pair[0])


@SETTINGS
@given(TENSORS, st.booleans(), st.booleans(), st.lists(st.integers(1, 90), max_size=12), st.booleans())
def test_any_message_arrives_in_any_chunks(
    named: list[tuple[str, Values]], is_response: bool, is_chunked: bool, sizes: list[int], pulls: bool
) -> None:
    tensors = [Tensor(name=name, array=array) for name, array in named]
    encoded = encode_response(tensors, model_name="m") if is_response else encode_request(tensors)
    body = b"".join(encoded.buffers)
    message = Message(
        body=body,
        header_length=encoded.header_length,
        body_length=None if is_chunked else len(body),
        is_response=is_response,
    )
    pieces, position = [], 0
    for size in [*sizes, len(body)]:
        pieces.append(body[position : position + size])
        position += size
    outcome = (run_pull if pulls else run_push)(message.decoder, pieces)
    assert outcome.error is None
    assert outcome.end is not None
    got = [(event.spec.name, event.array.shape, _bits(event.array)) for event in outcome.tensors]
    assert got == [(name, array.shape, _bits(array)) for name, array in named]


def _bits(array: Values) -> Any:  # noqa: ANN401 - bytes or a list
    return describe_array(array)[2]


VALID = json.dumps(
    {
        "id": "é\N{GRINNING FACE}",
        "parameters": {"binary_data_output": True, "p": [1, 2.5, None, {"q": "\\"}]},
        "inputs": [
            binary("INT16", [2, 1], 4, name="a"),
            jsonic("FP32", [2, 2], [[1.5, 2], [3, -4e10]], name="b"),
            jsonic("BYTES", [], "x", name="c"),
            jsonic("BOOL", [1], [True], name="d"),
            binary("BYTES", [1], 9, name="e"),
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": False}}],
    }
)
TOKENS = st.sampled_from(
    [
        *'{}[]",:\\ 019-.eE',
        "null",
        "true",
        "NaN",
        "Infinity",
        "-1",
        "1e400",
        '"',
        "\\u",
        "\\ud800",
        "\ud83d\ude00",
        "9" * 30,
    ]
    + [f'"{name}"' for name in ("inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "id")]
    + [f'"{name}"' for name in ("binary_data_size", "FP32", "BYTES", "BF16", "a", "b")]
).map(lambda text: text.encode("utf-8", "surrogatepass"))
EDITS = st.lists(st.tuples(st.integers(0, len(VALID)), st.integers(0, 12), TOKENS | st.binary(max_size=3)), max_size=4)
SMALL = Limits(max_header_bytes=1000, max_json_depth=7, max_tensors=4, max_rank=3, max_elements=100)


def assert_accepted_or_refused(text: bytes, limits: Limits) -> None:
    for parse in (parse_request_header, parse_response_header):
        try:
            parse(text, limits)
        except RemoteProtocolError as error:
            assert error.path is None or error.path.startswith("$")  # noqa: PT017 - acceptance is as good
            assert error.offset is None or 0 <= error.offset <= len(text)  # noqa: PT017 - see above
            str(error).encode()


@settings(max_examples=examples(1000))
@given(EDITS, st.sampled_from([DEFAULT_LIMITS, SMALL]), st.booleans())
def test_any_mutation_of_a_header_is_accepted_or_a_remote_error(
    edits: list[tuple[int, int, bytes]], limits: Limits, swaps: bool
) -> None:
    text = VALID.encode()
    if swaps:
        text = text.replace(b'"inputs"', b'"in"').replace(b'"outputs"', b'"inputs"').replace(b'"in"', b'"outputs"')
    for start, length, token in edits:
        text = text[:start] + token + text[start + length :]
    assert_accepted_or_refused(text, limits)


NUMBERS = st.integers() | st.floats() | st.integers(min_value=2**60, max_value=2**70) | st.just(10**4000)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=4) | st.sampled_from([*DATATYPES, "INT9"])
KEYS = st.sampled_from(
    ["name", "shape", "datatype", "data", "parameters", "binary_data_size", "inputs", "outputs", "id"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
TENSOR_LIKE = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=2) | SCALARS,
        "datatype": st.sampled_from([*DATATYPES]) | SCALARS,
        "shape": st.lists(st.integers(0, 3) | SCALARS, max_size=3) | SCALARS,
        "data": VALUES,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-1, 40) | SCALARS}) | VALUES,
    },
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "inputs": st.lists(TENSOR_LIKE | VALUES, max_size=3) | VALUES,
        "outputs": st.lists(TENSOR_LIKE | VALUES, max_size=3) | VALUES,
        "parameters": VALUES,
        "id": VALUES,
        "x": VALUES,
    },
)


@settings(max_examples=examples(600))
@given(HEADERS)
def test_any_json_is_accepted_or_a_remote_error(header: dict[str, Any]) -> None:
    assert_accepted_or_refused(json.dumps(header).encode(), DEFAULT_LIMITS)


@SETTINGS
@given(st.binary(max_size=60), st.integers(0, 80) | st.none(), st.integers(0, 80) | st.none(), st.booleans())
def test_any_bytes_with_any_lengths_are_accepted_or_a_remote_error(
    body: bytes, header_length: int | None, body_length: int | None, is_response: bool
) -> None:
    message = Message(body=body, header_length=header_length, body_length=body_length, is_response=is_response)
    for run in (run_push, run_pull):
        outcome = run(message.decoder, [body])
        assert (outcome.error is None) is (outcome.end is not None)
