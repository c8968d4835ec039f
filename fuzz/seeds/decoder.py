"""Seeds of the decoder: one small message each, delivered in one of the ways there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from targets.case import Case, Face, Kind, Length

from streamcodec import DATATYPES, EncodedMessage, RequestedOutput, Tensor, encode_request, encode_response

Seed = tuple[str, Case]


def seeds() -> Iterator[Seed]:
    """Yield every seed of the decoder with its name."""
    yield from _encoded()
    yield from _tensors()
    yield from _headers()
    yield from _deliveries()


def _joined(message: EncodedMessage) -> bytes:
    return b"".join(message.buffers)


def _array(name: str) -> np.ndarray[Any, Any]:
    if DATATYPES[name].is_bytes:
        return np.array([b"", b"\x00\xff"], dtype=object)
    # By bits: BF16 has arithmetic only where ml_dtypes is installed, and the files are to be the same everywhere.
    bits = np.array([0, 1], f"<u{DATATYPES[name].itemsize}")
    return bits.view(DATATYPES[name].dtype)


def _encoded() -> Iterator[Seed]:
    """Messages as our encoder writes them."""
    for name, datatype in DATATYPES.items():
        binary = Tensor(name="x", array=_array(name))
        yield f"request-{name}", Case(message=_joined(encode_request([binary])), first_piece=1, piece=5)
        yield f"response-{name}", Case(message=_joined(encode_response([binary], model_name="m")), kind=Kind.RESPONSE)
        yield f"raw-{name}", Case(message=b"\x01" * 8, kind=Kind.RAW, datatype=name, first_piece=3, piece=0)
        if name != "BYTES" and datatype.has_json:
            text = Tensor(name="x", array=_array(name), is_binary=False)
            yield f"json-{name}", Case(message=_joined(encode_request([text])), header=Length.UNKNOWN)
    mixed = encode_request(
        [
            Tensor(name="a", array=np.zeros((0, 3), np.float32)),
            Tensor(name="b", array=np.array(7, np.int8)),
            Tensor(name="c", array=np.array([["é"], ["\0"]], dtype=object), is_binary=False),
            Tensor(name="d", array=np.eye(2, dtype=np.bool_), parameters={"k": [1.5, None, {"deep": "é"}]}),
        ],
        outputs=[RequestedOutput(name="y", binary_data=True), RequestedOutput(name="z", binary_data=None)],
        request_id="id",
        parameters={"binary_data_output": True},
    )
    yield "request-mixed", Case(message=_joined(mixed), first_piece=7, piece=2)
    yield "request-mixed-scattered", Case(message=_joined(mixed), face=Face.SCATTER, first_piece=3)
    yield "request-mixed-placed", Case(message=_joined(mixed), face=Face.PUSH, first_piece=1, piece=1, is_placed=True)
    nan = Tensor(name="x", array=np.array([np.nan, np.inf, -np.inf]), is_binary=False)
    answer = encode_response([nan], model_name="m", model_version="1", request_id="id", parameters={"k": 1})
    yield "response-nan", Case(message=_joined(answer), kind=Kind.RESPONSE, header=Length.UNKNOWN)


def _tensors() -> Iterator[Seed]:
    """One tensor each, right and wrong."""
    entries: dict[str, tuple[dict[str, Any], bytes]] = {
        "scalar": ({"datatype": "INT8", "shape": [], "data": 1}, b""),
        "nested": ({"datatype": "INT64", "shape": [2, 2], "data": [[1, 2], [3, 9007199254740993]]}, b""),
        "nested-wrong": ({"datatype": "INT64", "shape": [2, 2], "data": [[1, 2], [3]]}, b""),
        "null-data": ({"datatype": "FP32", "shape": [0], "data": None, "parameters": {"binary_data_size": 0}}, b""),
        "no-source": ({"datatype": "FP32", "shape": [0]}, b""),
        "two-sources": ({"datatype": "INT8", "shape": [1], "data": [1], "parameters": {"binary_data_size": 1}}, b"\1"),
        "bool-2": ({"datatype": "BOOL", "shape": [2], "parameters": {"binary_data_size": 2}}, b"\1\2"),
        "bool-json": ({"datatype": "BOOL", "shape": [2], "data": [True, 1]}, b""),
        "uint8-256": ({"datatype": "UINT8", "shape": [1], "data": [256]}, b""),
        "int32-fraction": ({"datatype": "INT32", "shape": [1], "data": [1.0]}, b""),
        "fp32-1e39": ({"datatype": "FP32", "shape": [1], "data": [1e39]}, b""),
        "fp16-json": ({"datatype": "FP16", "shape": [1], "data": [1.5]}, b""),
        "size-wrong": ({"datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 7}}, b"1234567"),
        "size-larger": ({"datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 5}}, b"12345"),
        "shape-negative": ({"datatype": "INT8", "shape": [-1, -2], "parameters": {"binary_data_size": 2}}, b"ab"),
        "scalar-flat": ({"datatype": "INT8", "shape": [], "data": [1]}, b""),
        "size-negative": ({"datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": -8}}, b""),
        "size-huge": ({"datatype": "INT8", "shape": [1 << 62], "parameters": {"binary_data_size": 1 << 62}}, b""),
        "shape-overflow": (
            {"datatype": "INT8", "shape": [1 << 32, 1 << 32], "parameters": {"binary_data_size": 0}},
            b"",
        ),
        "shape-zero": ({"datatype": "INT8", "shape": [0, 1 << 63], "parameters": {"binary_data_size": 0}}, b""),
        "rows-of-nothing": (
            {"datatype": "BYTES", "shape": [1 << 31, 0], "parameters": {"binary_data_size": 0}},
            b"",
        ),
        "rank-4": ({"datatype": "INT8", "shape": [1, 1, 1, 1], "parameters": {"binary_data_size": 1}}, b"a"),
        "datatype-lower": ({"datatype": "fp32", "shape": [1], "data": [1]}, b""),
        "elements": ({"datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 9}}, b"\1\0\0\0a\0\0\0\0"),
        "elements-over": ({"datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}, b"\2\0\0\0a"),
        "elements-left": ({"datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}, b"\0\0\0\0a"),
        "elements-cut": ({"datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 8}}, b"\2\0\0\0ab\0\0"),
    }
    for name, (entry, payload) in entries.items():
        text = json.dumps({"inputs": [{"name": "x", **entry}]}, separators=(",", ":")).encode()
        case = Case(message=text + payload)
        yield f"tensor-{name}", case
        yield (
            f"tensor-{name}-limited",
            replace(case, is_limited=True, body=Length.UNKNOWN, face=Face.PUSH, first_piece=6, piece=1),
        )
        yield f"tensor-{name}-headerless", replace(case, header=Length.UNKNOWN, allow_headerless=True)
        yield (
            f"tensor-{name}-response",
            replace(case, kind=Kind.RESPONSE, message=text.replace(b"in", b"out", 1) + payload),
        )


def _headers() -> Iterator[Seed]:
    """Texts that are not, or hardly, a header."""
    texts = {
        "empty": b"",
        "minimal": b'{"inputs":[]}',
        "array": b"[]",
        "nan": b"NaN",
        "bom": b'\xef\xbb\xbf{"inputs":[]}',
        "utf16": '{"inputs":[]}'.encode("utf-16-le"),
        "latin1": b'{"inputs":[],"id":"\xe9"}',
        "surrogate": rb'{"inputs":[],"id":"\ud800"}',
        "escapes": rb'{"inputs":[],"id":"\"[{\\\u00e9\ud83d\ude00"}',
        "duplicate": b'{"inputs":[],"inputs":[]}',
        "duplicate-deep": b'{"inputs":[],"parameters":{"a":{"b":1,"b":2}}}',
        "deep": b'{"inputs":[],"parameters":{"a":[[[[[[[[1]]]]]]]]}}',
        "brackets": b'{"inputs":[],"id":"[[[[[[[[[[[[[[[[[[[[[["}',
        "nan-parameter": b'{"inputs":[],"parameters":{"a":NaN}}',
        "huge-float": b'{"inputs":[],"parameters":{"a":-1e999}}',
        "digits": b'{"inputs":[],"parameters":{"a":' + b"9" * 40 + b"}}",
        "nulls": b'{"inputs":[],"outputs":null,"id":null,"parameters":null}',
        "spaces": b' \t\r\n{ "inputs" : [ ] } \t\r\n',
        "comma": b'{"inputs":[],}',
        "same-names": b'{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}',
        "same-tensors": b'{"inputs":[' + b",".join([b'{"name":"x","datatype":"INT8","shape":[],"data":1}'] * 2) + b"]}",
        "wish-number": b'{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]}',
    }
    for name, text in texts.items():
        yield f"header-{name}", Case(message=text, header=Length.UNKNOWN, first_piece=1, piece=2)
        yield f"header-{name}-open", Case(message=text, header=Length.UNKNOWN, body=Length.UNKNOWN, is_limited=True)


def _deliveries() -> Iterator[Seed]:
    """One good message, framed and delivered in every way."""
    message = _joined(encode_request([Tensor(name="x", array=np.array([1.5, -2], np.float32))]))
    length = message.index(b"}]}") + 3
    case = Case(message=message)
    # Without the spaces that align the tensor, which would be the tensor's first bytes.
    headerless = {"message": message[:length] + message[-8:], "header": Length.UNKNOWN, "allow_headerless": True}
    variants: dict[str, dict[str, Any]] = {
        "padded": {"padding": 9},
        "padded-open": {"padding": 9, "body": Length.UNKNOWN},
        "no-eof": {"has_eof": False},
        "truncated": {"message": message[:-1], "body": Length.NUMBER, "body_number": len(message)},
        "truncated-open": {"message": message[:-1], "body": Length.UNKNOWN},
        "unfinished": {"message": message[:20], "body": Length.UNKNOWN, "has_eof": False, "header": Length.UNKNOWN},
        "header-number": {"header": Length.NUMBER, "header_number": length},
        "header-beyond": {"header": Length.NUMBER, "header_number": len(message) + 1},
        "header-zero": {"header": Length.NUMBER},
        "body-short": {"body": Length.NUMBER, "body_number": len(message) - 1},
        "body-zero": {"body": Length.NUMBER},
        "headerless": headerless | {"piece": 1},
        "headerless-open": headerless | {"body": Length.UNKNOWN, "piece": 7},
        "headerless-padded": headerless | {"body": Length.UNKNOWN, "padding": 1},
        "headerless-aligned": headerless | {"message": message},
        "limited": {"is_limited": True, "is_placed": True},
        "push-bytes": {"face": Face.PUSH, "piece": 1},
        "pull-bytes": {"face": Face.PULL, "piece": 1},
        "scatter-bytes": {"face": Face.SCATTER, "piece": 1},
    }
    for name, changes in variants.items():
        yield f"delivery-{name}", replace(case, **changes)
