"""The oracle reads what is right and refuses what is wrong, by itself: no decoder is asked here."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec.testing import OracleRefusal, oracle, read_message
from tests.formats.v2.messages import Message, binary, json_message, jsonic, message, request, response


def read(source: Message, *, is_response: bool | None = None) -> list[Any]:
    tensors = read_message(source.body, source.header_length, is_response=is_response)["tensors"]
    return [array.tolist() for array in tensors.values()]


def test_it_shares_no_code_with_the_library() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text())
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules == {"__future__", "json", "math", "numpy", "typing"}


@pytest.mark.parametrize(
    ("entry", "payload", "values"),
    [
        (binary("INT8", [2], 2), b"\1\xff", [1, -1]),
        (binary("UINT64", [], 8), b"\xff" * 8, (1 << 64) - 1),
        (binary("INT16", [1, 2], 4), b"\1\0\0\x80", [[1, -(1 << 15)]]),
        (binary("FP16", [1], 2), b"\0\x3c", [1.0]),
        (binary("BF16", [1], 2), b"\x80\x3f", [0x3F80]),
        (binary("FP32", [0, 2], 0, data=None), b"", []),
        (binary("BOOL", [2], 2), b"\1\0", [True, False]),
        (binary("BYTES", [2], 9), b"\0\0\0\0\1\0\0\0\xff", [b"", b"\xff"]),
        (binary("BYTES", [2, 0], 0), b"", [[], []]),
        (jsonic("INT64", [1], [(1 << 53) + 1]), b"", [(1 << 53) + 1]),
        (jsonic("INT8", [2, 1], [[1], [2]]), b"", [[1], [2]]),
        (jsonic("INT8", [2, 1], [1, 2]), b"", [[1], [2]]),
        (jsonic("INT8", [], 3), b"", 3),
        (jsonic("INT8", [], [3]), b"", 3),
        (jsonic("FP32", [3], [1, 0.5, float("inf")]), b"", [1.0, 0.5, float("inf")]),
        (jsonic("BYTES", [2], ["", "é"]), b"", [b"", "é".encode()]),
        (jsonic("BOOL", [1], [True]), b"", [True]),
    ],
    ids=str,
)
def test_values(entry: dict[str, Any], payload: bytes, values: object) -> None:
    assert read(request(entry, payload=payload)) == [values]
    assert read(response(entry, payload=payload)) == [values]


def test_several_tensors_one_behind_the_other_and_the_header() -> None:
    source = request(
        binary("INT8", [1], 1, name="a"),
        jsonic("INT8", [1], [2], name="b"),
        binary("INT8", [1], 1, name="c"),
        id="7",
        payload=b"\1\3",
    )
    assert read(source) == [[1], [2], [3]]
    assert read_message(source.body, source.header_length)["header"]["id"] == "7"
    assert read(json_message({"inputs": []})) == []


def test_what_responses_may_leave_out() -> None:
    null = response(jsonic("FP32", [1], [None]))
    assert np.isnan(read(null)[0][0])
    empty = response({"name": "y", "datatype": "INT8", "shape": [0]})
    assert read(empty) == [[]]
    for source in (request(jsonic("FP32", [1], [None])), request({"name": "y", "datatype": "INT8", "shape": [0]})):
        with pytest.raises(OracleRefusal):
            read(source)


def test_which_tensors_are_meant_can_be_told() -> None:
    both = message({"inputs": [], "outputs": [jsonic("INT8", [1], [1])]})
    assert read(both) == read(both, is_response=False) == []
    assert read(both, is_response=True) == [[1]]


WRONG: dict[str, Message] = {
    "missing bytes": request(binary("INT16", [2], 4), payload=b"abc"),
    "bytes behind": request(binary("INT16", [2], 4), payload=b"abcde"),
    "another size": request(binary("INT16", [2], 2), payload=b"ab"),
    "a part of a number": request(binary("INT16", [1], 1), payload=b"a"),
    "negative size": request(binary("INT8", [0], -1)),
    "BOOL": request(binary("BOOL", [1], 1), payload=b"\2"),
    "element overruns": request(binary("BYTES", [1], 5), payload=b"\2\0\0\0x"),
    "element short": request(binary("BYTES", [1], 6), payload=b"\1\0\0\0xy"),
    "elements without room": request(binary("BYTES", [1 << 40], 4), payload=bytes(4)),
    "no elements, but bytes": request(binary("BYTES", [0], 4), payload=bytes(4)),
    "both sources": request(binary("INT8", [1], 1, data=[1]), payload=b"a"),
    "datatype": request(binary("INT4", [1], 1), payload=b"a"),
    "no name": request({"datatype": "INT8", "shape": [1], "data": [1]}),
    "empty name": request(jsonic("INT8", [1], [1], name="")),
    "name twice": request(jsonic("INT8", [1], [1]), jsonic("INT8", [1], [1])),
    "negative shape": request(jsonic("INT8", [-1, -1], [1])),
    "boolean shape": request({"name": "x", "datatype": "INT8", "shape": [True], "data": [1]}),
    "no shape": request({"name": "x", "datatype": "INT8", "data": [1]}),
    "too few values": request(jsonic("INT8", [2], [1])),
    "wrong nesting": request(jsonic("INT8", [2, 2], [[1], [2, 3, 4]])),
    "no list": request(jsonic("INT8", [1], 1)),
    "out of range": request(jsonic("UINT8", [1], [256])),
    "fraction": request(jsonic("INT8", [1], [1.0])),
    "boolean as integer": request(jsonic("INT8", [1], [True])),
    "integer as boolean": request(jsonic("BOOL", [1], [1])),
    "string as float": request(jsonic("FP32", [1], ["1"])),
    "too large": request(jsonic("FP32", [1], [1e39])),
    "much too large": request(jsonic("FP64", [1], [10**400])),
    "number as element": request(jsonic("BYTES", [1], [5])),
    "JSON of FP16": request(jsonic("FP16", [1], [1.0])),
    "no object": message(b"[]"),
    "no inputs": message({}),
    "inputs of another type": message({"inputs": 5}),
    "inputs that look empty": message({"inputs": {}}),
    "parameters that look empty": request({**jsonic("INT8", [1], [1]), "parameters": []}),
    "entry of another type": message({"inputs": [5]}),
    "member twice": message(b'{"inputs":[],"inputs":[]}'),
    "no UTF-8": message(b'{"inputs":[],"x":"\xff"}'),
    "byte order mark": message(b'\xef\xbb\xbf{"inputs":[]}'),
    "surrogate": message(b'{"inputs":[],"x":"\\ud800"}'),
    "no JSON": message(b'{"inputs":[]'),
    "digits": message(b'{"inputs":[],"x":%b}' % (b"9" * 5000)),
    "depth": message(b'{"inputs":[],"x":%b%b}' % (b"[" * 100_000, b"]" * 100_000)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    source = WRONG[name]
    with pytest.raises(OracleRefusal):
        read(source)


@pytest.mark.parametrize("header_length", [0, -1, 14])
def test_impossible_header_lengths_are_refused(header_length: int) -> None:
    with pytest.raises(OracleRefusal, match="impossible"):
        read_message(json.dumps({"inputs": []}).encode()[:13], header_length)
