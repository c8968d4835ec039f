"""Values in plain headers: the fast way has the results of the strict way, bit by bit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    DEFAULT_LIMITS,
    Limits,
    RemoteProtocolError,
    RequestHeader,
    ResponseHeader,
    parse_request_header,
    parse_response_header,
)
from streamcodec.engine.memory.placement import ALIGNMENT
from streamcodec.formats.v2.header import parsing as strict_way
from streamcodec.formats.v2.header.plain import read_plainly
from streamcodec.formats.v2.json import data as jsondata
from streamcodec.testing import describe_error, describe_header
from tests.effort import examples
from tests.formats.v2.messages import Members, binary, jsonic

pytestmark = pytest.mark.usefixtures("json_parser")


def both_ways(text: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Insist that both ways say the same; tell whether the text was plain."""
    for parse, key in ((parse_request_header, "inputs"), (parse_response_header, "outputs")):
        found = []
        for is_strict in (False, True):
            with pytest.MonkeyPatch.context() as patch:
                if is_strict:
                    patch.setattr(strict_way, "read_plainly", lambda *_: None)
                    patch.setattr(jsondata, "pack", lambda *_: None)
                try:
                    found.append(repr(describe(parse(text, limits))))
                except RemoteProtocolError as error:
                    found.append(repr(describe_error(error)))
        assert found[0] == found[1], key
    return any(read_plainly(text, key, limits) is not None for key in ("inputs", "outputs"))


def describe(header: RequestHeader | ResponseHeader) -> tuple[object, ...]:
    """Everything that a header says, with the bits of all values, and where they lie."""
    arrays = [spec.data for spec in header.tensors if spec.data is not None]
    values = [array.tolist() if array.dtype.hasobject else array.tobytes() for array in arrays]
    assert all(array.flags.writeable and array.flags.c_contiguous for array in arrays)
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays if array.size and not array.dtype.hasobject)
    return describe_header(header), values, [(array.dtype, array.shape) for array in arrays]


def of(datatype: str, data: str, shape: str = "[2]", more: str = "") -> bytes:
    entry = f'{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}{more}}}'
    return f'{{"id":"a-0","inputs":[{entry}]}}'.encode()


USUAL = {
    "integers": of("INT8", "[-128,127]"),
    "unsigned": of("UINT64", "[0,18446744073709551615]"),
    "-0 as integer": of("INT64", "[-0,-9223372036854775808]"),
    "booleans": of("BOOL", "[true,false]"),
    "floats": of("FP32", "[1.5,-0.25]"),
    "-0.0": of("FP64", "[-0.0,-0.5]"),
    "zero and an exponent": of("FP64", "[0.0,1e-05]"),
    "floats and integers": of("FP32", "[1,16777217]"),
    "rounded": of("FP32", "[0.1,16777217.0]"),
    "the largest": of("FP32", "[3.4028235677973362e+38,1e-46]"),
    "the largest double": of("FP64", "[1.7976931348623157e308,-5e-324]"),
    "a scalar": of("FP64", "0.5", "[]"),
    "a scalar in an array": of("INT8", "[5]", "[]"),
    "flat": of("INT16", "[1,2,3,4]", "[2,2]"),
    "nested": of("INT16", "[[1,2],[3,4]]", "[2,2]"),
    "texts": of("BYTES", '["","a: b"]'),
    "texts with escapes": of("BYTES", '["\\u00e9\\n","\\ud83e\\udd8a"]').replace(
        b"\\ud83e\\udd8a", "\U0001f98a".encode()
    ),
    "parameters": of("INT8", "[1,2]", more=',"parameters":{"a":1,"b":"c","d":true}'),
    "empty parameters": of("INT8", "[1,2]", more=',"parameters":{}'),
    "an unknown member": of("INT8", "[1,2]", more=',"more":7'),
}
UNUSUAL = {
    "-0 as float": of("FP32", "[-0,1]"),
    "-0 among fractions": of("FP64", "[-0.5, -0 ]"),
    "NaN": of("FP32", "[NaN,1]"),
    "null": of("FP32", "[null,1]"),
    "beyond FP32": of("FP32", "[1e39,1]"),
    "beyond FP64": of("FP64", "[1e999,1]"),
    "an integer beyond FP64": of("FP64", f"[1{'0' * 400},1]"),
    "integers whose sum is beyond FP64": of("FP64", f"[1{'0' * 308},1{'0' * 308}]"),
    "floats whose sum is beyond FP64": of("FP64", "[1e308,1e308]"),
    "beyond INT8": of("INT8", "[128,1]"),
    "beyond UINT64": of("UINT64", "[18446744073709551616,1]"),
    "a fraction as integer": of("INT8", "[1.0,1]"),
    "a boolean as integer": of("INT8", "[true,1]"),
    "a boolean as float": of("FP32", "[1.5,true]"),
    "a text as float": of("FP32", '["1.5",1]'),
    "a number as text": of("BYTES", '["a",1]'),
    "half of a pair": of("BYTES", '["\\ud800","a"]'),
    "half of a pair elsewhere": of("INT8", "[1,2]", more=',"more":"\\uD800"'),
    "an escape that looks like it": of("BYTES", '["\\\\ud800","a"]'),
    "too few": of("INT8", "[1]"),
    "no array": of("INT8", '{"a":1}'),
    "not nested like the shape": of("INT8", "[[1,2],[3]]", "[2,2]"),
    "no elements": of("INT8", "[]", "[0]"),
    "no shape": of("INT8", "[1]", "null"),
    "no JSON form": of("FP16", "[1,2]"),
    "data and size": of("INT8", "[1,2]", more=',"parameters":{"binary_data_size":2}'),
    "parameters that are null": of("INT8", "[1,2]", more=',"parameters":null'),
    "parameters with a fraction": of("INT8", "[1,2]", more=',"parameters":{"a":1.5}'),
    "data twice": of("INT8", "[1,2]", more=',"data":[1,2]'),
    "data twice, with white space": of("INT8", "[1,2]", more=',"data" :[1,2]'),
    "an object in an unknown member": of("INT8", "[1,2]", more=',"more":{"a":1}'),
    "data that is null": of("INT8", "null"),
    "an unknown datatype": of("INT7", "[1,2]"),
    "no datatype": of("INT8", "[1,2]").replace(b"datatype", b"data-type"),
    "no name": of("INT8", "[1,2]").replace(b'"name"', b'"nom"'),
}


@pytest.mark.parametrize("name", USUAL)
def test_usual_values_are_plain(name: str) -> None:
    assert both_ways(USUAL[name])


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_values_are_left_to_the_strict_way(name: str) -> None:
    assert not both_ways(UNUSUAL[name])


@pytest.mark.parametrize(
    ("text", "limits", "is_plain"),
    [
        (USUAL["floats"], Limits(max_json_tensor_bytes=8), True),
        (USUAL["floats"], Limits(max_json_tensor_bytes=7), False),
        (USUAL["floats"], Limits(max_elements=1), False),
        (USUAL["floats"], Limits(max_rank=0), False),
        (USUAL["nested"], Limits(max_json_depth=5), True),
        (USUAL["nested"], Limits(max_json_depth=4), False),
        (USUAL["texts"], Limits(max_bytes_elements=2), True),
        (USUAL["texts"], Limits(max_bytes_elements=1), False),
        (USUAL["texts"], Limits(max_element_bytes=len(USUAL["texts"])), True),
        (USUAL["texts"], Limits(max_element_bytes=len(USUAL["texts"]) - 1), False),
        (USUAL["texts"], Limits(max_element_bytes=3), False),
    ],
    ids=repr,
)
def test_limits_are_kept(text: bytes, limits: Limits, is_plain: bool) -> None:
    assert both_ways(text, limits) is is_plain


NUMBERS = st.integers(-(2**65), 2**65) | st.integers(-3, 300) | st.floats(width=32) | st.floats() | st.booleans()
VALUES = NUMBERS | st.none() | st.text(max_size=3)
DATA: dict[str, st.SearchStrategy[Any]] = {
    "BOOL": st.booleans(),
    "UINT8": st.integers(0, 255),
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "UINT64": st.integers(0, 2**64 - 1),
    "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "FP64": st.floats(allow_nan=False, allow_infinity=False),
    "BYTES": st.text(max_size=5),
}


@st.composite
def entries(draw: st.DrawFn) -> Members:
    datatype = draw(st.sampled_from(list(DATA)))
    count = draw(st.integers(1, 6))
    usual = st.lists(DATA[datatype], min_size=count, max_size=count)
    values = draw(usual | st.lists(DATA[datatype] | VALUES, min_size=count, max_size=count))
    shape, data = draw(
        st.sampled_from([([count], values), ([1, count], [values]), ([count, 1], [[v] for v in values])])
    )
    return jsonic(datatype, shape, draw(st.sampled_from([data, values, data])))


@settings(max_examples=examples(500))
@given(st.lists(entries() | st.just(binary("INT8", [2], 2)), min_size=1, max_size=2), st.booleans(), st.booleans())
def test_any_values(tensors: list[Members], is_ascii: bool, has_minus: bool) -> None:
    named = [tensor | {"name": str(number)} for number, tensor in enumerate(tensors)]
    text = json.dumps({"inputs": named, "id": "-0"[has_minus:]}, ensure_ascii=is_ascii)
    both_ways(text.replace("0.0", "0").encode("utf-8", "surrogatepass"))


@settings(max_examples=examples(300))
@given(st.sampled_from(sorted(USUAL)), st.data())
def test_any_change_of_usual_values(name: str, data: st.DataObject) -> None:
    text = USUAL[name]
    place, removed = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 3))
    added = data.draw(st.sampled_from([b"", *map(bytes, zip(rb'{}[],:"\0-.e ax'))]))
    both_ways(text[:place] + added + text[place + removed :])
