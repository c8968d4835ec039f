"""Header mutations: errors in the content of a header, member by member."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import ErrorCode
from streamcodec.testing.samples import Draft, Members
from streamcodec.testing.targets import (
    INTEGERS,
    Catalogue,
    Choose,
    Codes,
    binary,
    element_count,
    entered,
    everything,
    is_binary,
    jsonic,
    jsonic_values,
    of,
    tensors,
)

HEADER_MUTATIONS: Final[Catalogue] = {}
_header = entered(HEADER_MUTATIONS)


# Members


@_header("member missing", tensors)
def _member_missing(draft: Draft, index: int, choose: Choose) -> Codes:
    key = choose(["name", "datatype", "shape"])
    if choose([False, True]):
        del draft.entries[index][key]
    else:
        draft.entries[index][key] = None
    return [ErrorCode.MISSING_MEMBER]


_WRONG_MEMBERS: Final[list[tuple[str, Any, ErrorCode]]] = [
    ("name", "", ErrorCode.INVALID_MEMBER),
    ("name", 5, ErrorCode.INVALID_MEMBER),
    ("name", ["x"], ErrorCode.INVALID_MEMBER),
    ("datatype", 7, ErrorCode.INVALID_MEMBER),
    ("datatype", "fp32", ErrorCode.UNKNOWN_DATATYPE),
    ("datatype", "FP8", ErrorCode.UNKNOWN_DATATYPE),
    ("datatype", "", ErrorCode.UNKNOWN_DATATYPE),
    ("shape", 2, ErrorCode.INVALID_SHAPE),
    ("shape", "2", ErrorCode.INVALID_SHAPE),
    ("shape", {}, ErrorCode.INVALID_SHAPE),
    ("shape", [1] * 65, ErrorCode.LIMIT_EXCEEDED),
    ("shape", [1 << 62, 1 << 62], ErrorCode.LIMIT_EXCEEDED),
    ("parameters", [], ErrorCode.INVALID_MEMBER),
    ("parameters", "x", ErrorCode.INVALID_MEMBER),
]


@_header("member with a wrong value", tensors)
def _member_wrong(draft: Draft, index: int, choose: Choose) -> Codes:
    key, value, code = choose(_WRONG_MEMBERS)
    draft.entries[index][key] = value
    return [code]


@_header("dimension that is none", tensors)
def _dimension(draft: Draft, index: int, choose: Choose) -> Codes:
    shape = draft.entries[index]["shape"]
    shape.insert(choose(range(len(shape) + 1)), choose([-1, 1.0, "1", True, None, [1], -(1 << 70)]))
    return [ErrorCode.INVALID_SHAPE]


@_header("name twice", tensors)
def _name_twice(draft: Draft, index: int, _: Choose) -> Codes:
    draft.entries.append(draft.entries[index])
    draft.payloads.append(draft.payloads[index])
    return [ErrorCode.DUPLICATE_NAME]


@_header("tensor that is no object", everything)
def _no_object(draft: Draft, _: Draft, choose: Choose) -> Codes:
    entries: list[Any] = draft.entries
    entries.insert(choose(range(len(entries) + 1)), choose([None, [], "x", 5]))
    return [ErrorCode.INVALID_MEMBER]


@_header("no tensors", everything)
def _no_tensors(draft: Draft, _: Draft, choose: Choose) -> Codes:
    value: Any = choose([None, {}, "x", 5, True])
    draft.members[draft.key] = value
    return [ErrorCode.MISSING_MEMBER if value is None else ErrorCode.INVALID_MEMBER]


@_header("member of the message with a wrong value", everything)
def _root_member(draft: Draft, _: Draft, choose: Choose) -> Codes:
    keys = ["id", "parameters", *(["model_name", "model_version"] if draft.is_response else ["outputs"])]
    draft.members[choose(keys)] = choose([5, True, 1.5])
    return [ErrorCode.INVALID_MEMBER]


@_header("order of members", everything)
def _order(draft: Draft, _: Draft, __: Choose) -> Codes:
    draft.members = dict(reversed(draft.members.items()))
    draft.members[draft.key] = [dict(reversed(entry.items())) for entry in draft.entries]
    return []


@_header("unknown member", tensors)
def _unknown_member(draft: Draft, index: int, choose: Choose) -> Codes:
    draft.entries[index]["x"] = choose([None, 1, [[]], {"data": [1], "inputs": []}])
    return []


# Sizes and sources


@_header("size of another type", binary)
def _size_type(draft: Draft, index: int, choose: Choose) -> Codes:
    parameters = draft.entries[index]["parameters"]
    size = parameters["binary_data_size"]
    parameters["binary_data_size"] = choose([str(size), float(size), True, [size]])
    return [ErrorCode.INVALID_MEMBER]


@_header("size off by a little", binary)
def _size(draft: Draft, index: int, choose: Choose) -> Codes:
    entry = draft.entries[index]
    entry["parameters"]["binary_data_size"] += choose([-1, 1])
    if entry["datatype"] != "BYTES":
        return [ErrorCode.BINARY_SIZE_MISMATCH]
    # The size need not be wrong for the shape; then the body, or the elements, show it.
    behind = [ErrorCode.BODY_LENGTH_MISMATCH, ErrorCode.TRUNCATED, ErrorCode.INVALID_ELEMENTS]
    return [ErrorCode.BINARY_SIZE_MISMATCH, *behind]


@_header("two sources", tensors)
def _two_sources(draft: Draft, index: int, _: Choose) -> Codes:
    entry = draft.entries[index]
    if is_binary(entry):
        entry["data"] = []
    else:
        entry["parameters"] = {"binary_data_size": 0}
    return [ErrorCode.AMBIGUOUS_SOURCE]


@_header("no source", tensors)
def _no_source(draft: Draft, index: int, _: Choose) -> Codes:
    entry = draft.entries[index]
    entry.pop("data", None)
    entry.pop("parameters", None)
    # Servers leave both out of an empty output.
    return [] if draft.is_response and 0 in entry["shape"] else [ErrorCode.MISSING_MEMBER]


@_header("another number of elements", tensors)
def _another_count(draft: Draft, index: int, _: Choose) -> Codes:
    entry = draft.entries[index]
    entry["shape"] = [*entry["shape"], 2] if element_count(entry) else [1]
    if not is_binary(entry):
        return [ErrorCode.INVALID_DATA]
    return [ErrorCode.BINARY_SIZE_MISMATCH, *([ErrorCode.INVALID_ELEMENTS] if entry["datatype"] == "BYTES" else [])]


# Values


@_header("datatype without JSON form", jsonic)
def _no_json_form(draft: Draft, index: int, choose: Choose) -> Codes:
    draft.entries[index]["datatype"] = choose(["FP16", "BF16"])
    return [ErrorCode.JSON_NOT_SUPPORTED]


_WRONG_VALUES: Final[dict[str, list[Any]]] = {
    "b": [0, 1, "true", None, 1.0],
    "i": [1.5, 1.0, "1", True, None, 1 << 64, -(1 << 63) - 1],
    "u": [1.5, 1.0, "1", True, None, 1 << 64, -1],
    "f": ["1.5", "NaN", True, 10**400],
    "O": [5, None, True, 1.5],
}


def _replace_first(entry: Members, value: object) -> None:
    data = entry["data"]
    while isinstance(data, list) and isinstance(data[0], list):
        data = data[0]
    if isinstance(data, list):
        data[0] = value
    else:
        entry["data"] = value


@_header("value that does not fit", jsonic_values)
def _value(draft: Draft, index: int, choose: Choose) -> Codes:
    entry = draft.entries[index]
    _replace_first(entry, choose(_WRONG_VALUES[DATATYPES[entry["datatype"]].kind]))
    return [ErrorCode.MISSING_MEMBER if entry["data"] is None else ErrorCode.INVALID_DATA]


@_header("integer out of range", of(jsonic_values, INTEGERS))
def _out_of_range(draft: Draft, index: int, choose: Choose) -> Codes:
    entry = draft.entries[index]
    bounds = np.iinfo(DATATYPES[entry["datatype"]].dtype)
    _replace_first(entry, choose([int(bounds.min) - 1, int(bounds.max) + 1]))
    return [ErrorCode.INVALID_DATA]


@_header("null for a number", of(jsonic_values, {"FP32", "FP64"}))
def _null(draft: Draft, index: int, _: Choose) -> Codes:
    entry = draft.entries[index]
    _replace_first(entry, None)
    draft.tensors = None
    if entry["data"] is None:  # a scalar, of which nothing is left
        return [ErrorCode.MISSING_MEMBER]
    # Servers write so what is not finite; from clients nobody needs to take it.
    return [] if draft.is_response else [ErrorCode.INVALID_DATA]


@_header("one value too many", jsonic)
def _too_many(draft: Draft, index: int, _: Choose) -> Codes:
    entry = draft.entries[index]
    data = entry["data"] if isinstance(entry["data"], list) else [entry["data"]]
    entry["data"] = [*data, data[0] if data else 0]
    return [ErrorCode.INVALID_DATA]
