"""The oracle: a simple, independent reader of messages. A decoder is compared with it.

It shares no code with the decoder, not even a table. `json` and `numpy.frombuffer` do the work, on the whole body at
once. So a bug stays unseen only if it is made twice, in two different ways. The oracle knows no limits. It does not
check ids, requested outputs, or parameters except sizes. Its rule: each message that a decoder accepts is accepted
here, too, with the same values.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

_DTYPES = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": "<u2"} | {
    f"{prefix}INT{8 * size}": f"<{kind}{size}" for prefix, kind in (("", "i"), ("U", "u")) for size in (1, 2, 4, 8)
}


class _Literal(float):
    """A literal NaN or Infinity, in contrast to a number that is too large."""


class _NegativeZero(int):
    """The integer `-0`, which as a float is -0.0."""

    def __float__(self) -> float:
        return -0.0


_INTEGERS = {int, _NegativeZero}


class OracleRefusal(ValueError):  # noqa: N818 - a verdict, not a mistake of anybody here
    """The bytes are not a well formed message."""


def read_message(body: bytes, header_length: int | None, *, is_response: bool | None = None) -> dict[str, Any]:
    """Read a whole message.

    Args:
        body: header and tensors.
        header_length: bytes of the JSON header; None if the whole body is JSON.
        is_response: whether the tensors are called `outputs`; None to decide by the header.

    Returns:
        `{"header": the parsed JSON, "tensors": {name: array}}`; BF16 as uint16, BYTES as objects.

    Raises:
        OracleRefusal: the bytes are not a message, or do not fit the header.

    Example:
        >>> header = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[2],"parameters":{"binary_data_size":2}}]}'
        >>> read_message(header + bytes([1, 255]), len(header))["tensors"]["x"].tolist()
        [1, -1]
    """
    try:
        return _read(body, len(body) if header_length is None else header_length, is_response=is_response)
    except OracleRefusal:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # A message that a dictionary, an array or the JSON parser refuses is invalid: this simple reader just raises.
        raise OracleRefusal(str(error)) from error


def _read(body: bytes, end: int, *, is_response: bool | None) -> dict[str, Any]:
    _require(0 < end <= len(body), "the header has an impossible length")
    text = body[:end].decode()
    header = json.loads(
        text,
        object_pairs_hook=_unique,
        parse_constant=_Literal,
        parse_int=lambda literal: _NegativeZero() if literal == "-0" else int(literal),
    )
    json.dumps(header, ensure_ascii=False).encode()  # raises for half of a surrogate pair
    is_response = "inputs" not in header if is_response is None else is_response
    entries = header["outputs" if is_response else "inputs"]
    _require(type(entries) is list, "the tensors are no array")
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for entry in entries:
        name, shape, data, parameters = (entry.get(key) for key in ("name", "shape", "data", "parameters"))
        _require(type(name) is str and name != "" and name not in tensors, "a name is wrong, or there twice")
        _require(type(shape) is list and all(type(n) in _INTEGERS and n >= 0 for n in shape), "a shape is wrong")
        _require(parameters is None or type(parameters) is dict, "the parameters are no object")
        nbytes = (parameters or {}).get("binary_data_size")
        if nbytes is None and data is None and is_response and 0 in shape:
            nbytes = 0
        _require((nbytes is None) != (data is None), "a tensor has either data or a size")
        if nbytes is None:
            values = _from_json(_flat(data, shape), entry["datatype"], null_is_nan=is_response)
        else:
            _require(type(nbytes) in _INTEGERS and 0 <= nbytes <= len(body) - end, "the bytes are not all there")
            values = _from_bytes(body[end : end + nbytes], entry["datatype"], math.prod(shape))
            end += nbytes
        _require(len(values) == math.prod(shape), "the number of elements is not that of the shape")
        tensors[name] = values.reshape(shape)
    _require(end == len(body), "bytes follow the last tensor")
    return {"header": header, "tensors": tensors}


def _from_bytes(data: bytes, datatype: str, count: int) -> np.ndarray[Any, Any]:
    if datatype != "BYTES":
        _require(datatype != "BOOL" or set(data) <= {0, 1}, "a BOOL is neither 0 nor 1")
        return np.frombuffer(data, _DTYPES[datatype])
    _require(len(data) >= 4 * count, "the elements have no room")
    values, position = np.empty(count, object), 0
    for index in range(count):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "little")
        values[index] = data[start:position]
    _require(position == len(data), "the elements do not fill the tensor")
    return values


def _from_json(values: list[Any], datatype: str, *, null_is_nan: bool) -> np.ndarray[Any, Any]:
    kinds = set(map(type, values))
    if datatype == "BYTES":
        _require(kinds <= {str}, "an element is not a string")
        return np.array([*map(str.encode, values), None], object)[:-1]  # None: or numpy makes strings of no length
    _require(datatype not in {"FP16", "BF16"}, "the datatype has no JSON form")
    dtype = np.dtype(_DTYPES[datatype])
    if dtype.kind != "f":
        _require(kinds <= ({bool} if dtype.kind == "b" else _INTEGERS), "a value is of another type")
        return np.array(values, dtype)  # raises for what is out of range
    _require(kinds <= {*_INTEGERS, float, _Literal, *([type(None)] if null_is_nan else [])}, "a value is not a number")
    with np.errstate(over="ignore"):
        array = np.array(values, "<f8").astype(dtype)  # None becomes NaN
    _require(
        all(type(value) in {_Literal, type(None)} for value in np.array(values, object)[~np.isfinite(array)]),
        "a number is too large",
    )
    return array


def _flat(data: Any, shape: list[int]) -> list[Any]:  # noqa: ANN401 - any JSON value
    if type(data) is not list:
        _require(shape == [], "data is not an array")
        return [data]
    if len(shape) > 1 and data and type(data[0]) is list:
        level = [data]
        for size in shape:
            _require(all(type(item) is list and len(item) == size for item in level), "the nesting is not the shape")
            level = [value for item in level for value in item]
        return level
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require(len(dict(pairs)) == len(pairs), "a member is there twice")
    return dict(pairs)


def _require(condition: object, message: str) -> None:
    if not condition:
        raise OracleRefusal(message)
