"""Plain headers: a fast parser for the usual headers.

Nearly every header describes binary tensors of fixed size, with four members each. Such a header has no escapes, no
constants, no values and no unknown members, so most checks of the strict parser are not needed. This module never
refuses a header. If it accepts a header, the strict parser (`text.py` and `header.py`) would accept it, too, with the
same result. If anything is unusual, it returns None, and the strict parser decides. So verdicts are the same, and the
tests compare the two.

Duplicate keys are detected by counting. A colon follows each name in the text, so there are at least as many colons as
members. If there are not more colons than members in the result, no member was lost because of a duplicate key.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any, Final, NoReturn

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.json.depth import too_deep_at
from streamcodec.engine.json.quick import count_members
from streamcodec.engine.json.text import NEGATIVE_ZERO, WHITE_SPACE
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import constructor
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.model import PLAIN_TYPES

_tensor_spec: Final = constructor(TensorSpec)

PlainHeader = tuple[dict[str, Any], tuple[TensorSpec, ...]]
"""The object of a header, and its tensors."""

_MEMBERS: Final = 4
"""Members of a plain tensor: name, datatype, shape and parameters."""

_MOST_MARKS: Final = 16
"""Largest number of braces and colons for each tensor. A header with more of them has other content than tensors, and
this parser would not accept it."""

_SHORT: Final = 1 << 10
"""Characters of a short header. To parse such a header twice costs little."""


def read_plainly(data: bytes | bytearray | memoryview, key: str, limits: Limits) -> PlainHeader | None:
    """Read a header if its tensors are plain ones.

    Args:
        data: exactly the header.
        key: of the tensors, `inputs` or `outputs`.
        limits: caps on what it may declare.

    Returns:
        The root and its tensors, as the strict parser would return them; the rest of the root is not checked yet. None
        if the strict parser has to decide.
    """
    try:
        text = str(data, "utf-8").rstrip(WHITE_SPACE)
        if _is_unusual(text, data, limits.max_json_depth):
            return None
        root, end = _DECODER.raw_decode(text)
        entries = root[key]
    except (ValueError, TypeError, KeyError):
        return None
    if type(entries) is not list or len(entries) > limits.max_tensors or end != len(text):
        return None
    tensors: dict[str, TensorSpec] = {}
    offset = len(data)
    kept = len(root)
    for name, value in root.items():
        if name != key and type(value) is not str:
            kept += count_members(value)
    for entry in entries:
        spec = read_plain_tensor(entry, offset, limits)
        if spec is None:
            return None
        tensors[spec.name] = spec
        offset += spec.nbytes
        kept += _MEMBERS + len(spec.parameters)
    if len(tensors) != len(entries) or kept != text.count(":") or offset > limits.max_message_bytes:
        return None
    return root, tuple(tensors.values())


def parse_plain_entries(text: bytes) -> list[dict[str, Any]]:
    """Parse some entries of the array of tensors, with commas between them. They are not nested too deeply.

    Returns:
        The entries, as the strict parser would return them; an empty list if the strict parser has to decide.
    """
    if b"\\" in text or NEGATIVE_ZERO.search(text):  # which this parser reads as 0
        return []
    try:
        entries = _DECODER.decode(f"[{str(text, 'utf-8')}]")
    except ValueError:
        return []
    if set(map(type, entries)) != {dict}:
        return []
    parameters = [members for entry in entries if type(members := entry.get("parameters")) is dict]
    kept = sum(map(len, entries)) + sum(map(len, parameters))
    return entries if kept == text.count(b":") else []


def read_plain_tensor(entry: Any, offset: int, limits: Limits) -> TensorSpec | None:  # noqa: ANN401 - any JSON value
    """Read one tensor, whose bytes start at an offset of the body; None if it is not a plain one."""
    try:
        name, datatype, shape = entry["name"], DATATYPES[entry["datatype"]], entry["shape"]
        parameters = entry["parameters"]
        nbytes = parameters["binary_data_size"]
    except (KeyError, TypeError):
        return None
    if type(name) is not str or not name or type(shape) is not list or len(shape) > limits.max_rank:
        return None
    count, most = 1, limits.max_elements
    for size in shape:
        if type(size) is not int or not 0 < size <= most:
            return None
        count *= size
    if (
        datatype.is_bytes
        or type(nbytes) is not int
        or nbytes != count * datatype.itemsize
        or nbytes > limits.max_tensor_bytes
        or count > most
        or len(entry) != _MEMBERS
        or (len(parameters) > 1 and not PLAIN_TYPES.issuperset(map(type, parameters.values())))
    ):
        return None
    return _tensor_spec(
        name=name,
        datatype=datatype,
        shape=tuple(shape),
        nbytes=nbytes,
        offset=offset,
        parameters=MappingProxyType(parameters),
    )


def _is_unusual(text: str, data: bytes | bytearray | memoryview, max_depth: int) -> bool:
    """Tell whether this parser would not accept a text, or must not parse it."""
    if "\\" in text or '"data"' in text:  # an escape could hide any character
        return True
    if len(text) <= max_depth:  # usual, and far below `_SHORT`
        return False
    objects = text.count("{")
    if len(text) >= _SHORT and text.count(":") + objects > _MOST_MARKS * (1 + text.count('"shape"')):
        return True
    # If there are few brackets, their places are not searched.
    return objects + text.count("[") > max_depth and too_deep_at(data, max_depth) is not None


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
