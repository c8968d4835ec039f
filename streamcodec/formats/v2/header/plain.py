"""Plain headers: a fast parser for the usual headers.

Nearly every header describes binary tensors, or has a few values as JSON, and has no other members than the protocol's.
So most checks of the strict parser are not needed. This module never refuses a header. If it accepts a header, the
strict parser (`text.py` and `header.py`) would accept it, too, with the same result. If anything is unusual, it returns
None, and the strict parser decides. So verdicts are the same, and the tests compare the two.

Duplicate keys are detected by counting. A colon follows each name in the text, so there are at least as many colons as
members. If there are not more colons than members in the result, no member was lost because of a duplicate key. Colons
also stand in texts. If no white space stands before any colon, then a quote and a colon follow each name, and these can
be counted instead. Within a text, they mean one more of them, so that the strict parser decides.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.engine.json.depth import too_deep_at
from streamcodec.engine.json.quick import count_members
from streamcodec.engine.json.text import WHITE_SPACE, holds_negative_zero, parse_unguarded
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import constructor
from streamcodec.engine.spec import NOTHING, TensorSpec
from streamcodec.formats.v2.json.data import fits_as_json, flatten, pack
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
        root = parse_unguarded(text)
        entries = root[key]
    except (ValueError, TypeError, KeyError):
        return None
    if type(entries) is not list or len(entries) > limits.max_tensors:
        return None
    tensors: dict[str, TensorSpec] = {}
    offset = len(data)
    kept = len(root)
    for name, value in root.items():
        if name != key and type(value) is not str:
            kept += count_members(value)
    for entry in entries:
        spec = read_plain_tensor(entry, offset, limits) or _read_plain_values(entry, text, len(data), limits)
        if spec is None:
            return None
        tensors[spec.name] = spec
        offset += spec.nbytes
        kept += len(entry) + len(spec.parameters)
    is_plain = len(tensors) == len(entries) and offset <= limits.max_message_bytes and _are_all_members(kept, text)
    return (root, tuple(tensors.values())) if is_plain else None


def _are_all_members(count: int, text: str) -> bool:
    """Tell whether a text certainly has no more members than were counted."""
    if count == text.count(":"):
        return True
    return count == text.count('":') and not any(map(text.__contains__, _BEFORE_COLONS))


_BEFORE_COLONS: Final = (" :", "\t:", "\n:", "\r:")


def parse_plain_entries(text: bytes) -> list[dict[str, Any]]:
    """Parse some entries of the array of tensors, with commas between them. They are not nested too deeply.

    Returns:
        The entries, as the strict parser would return them; an empty list if the strict parser has to decide.
    """
    try:
        whole = f"[{str(text, 'utf-8')}]"
        if "\\" in whole or holds_negative_zero(whole):  # which this parser reads as 0
            return []
        entries = parse_unguarded(whole)
    except ValueError:
        return []
    if set(map(type, entries)) != {dict}:
        return []
    parameters = [members for entry in entries if type(members := entry.get("parameters")) is dict]
    kept = sum(map(len, entries)) + sum(map(len, parameters))
    return entries if kept == text.count(b":") else []


def read_plain_tensor(entry: Any, offset: int, limits: Limits) -> TensorSpec | None:  # noqa: ANN401 - any JSON value
    """Read one binary tensor, whose bytes start at an offset of the body; None if it is not a plain one."""
    try:
        parameters = entry["parameters"]
        nbytes = parameters["binary_data_size"]
        datatype = DATATYPES[entry["datatype"]]
        name, shape = entry["name"], entry["shape"]
    except (KeyError, TypeError):
        return None
    count = _plain_count(name, shape, limits)
    size = count * datatype.itemsize
    if (
        not count
        or type(nbytes) is not int
        # Elements of BYTES have a size that fits, even if one of them is as long as all together.
        or (nbytes != size and not (datatype.is_bytes and size < nbytes <= size + limits.max_element_bytes))
        or (datatype.is_bytes and count > limits.max_bytes_elements)
        or nbytes > limits.max_tensor_bytes
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


def _plain_count(name: Any, shape: Any, limits: Limits) -> int:  # noqa: ANN401 - any JSON value
    """Return the number of elements of a tensor; 0 if its name or its shape is not a plain one."""
    if type(name) is not str or not name or type(shape) is not list or len(shape) > limits.max_rank:
        return 0
    count, most = 1, limits.max_elements
    for size in shape:
        if type(size) is not int or not 0 < size <= most:
            return 0
        count *= size
    return count if count <= most else 0


def _read_plain_values(entry: Any, text: str, nbytes: int, limits: Limits) -> TensorSpec | None:  # noqa: ANN401
    """Read one tensor whose values are there as JSON; None if it is not a plain one.

    Args:
        entry: parsed without a look at `-0`.
        text: of the whole header.
        nbytes: length of the header; no string is longer.
        limits: caps on what it may declare.
    """
    try:
        data, datatype = entry["data"], DATATYPES[entry["datatype"]]
        name, shape = entry["name"], entry["shape"]
    except (KeyError, TypeError):
        return None
    count, parameters = _plain_count(name, shape, limits), entry.get("parameters", NOTHING)
    if (
        not count
        or not fits_as_json(datatype, count, nbytes, limits)
        or (parameters is not NOTHING and not _are_plain_parameters(parameters))
    ):
        return None
    try:
        values = flatten(data, tuple(shape), "")
    except RemoteProtocolError:
        return None
    array = pack(values, datatype)
    if array is None or (datatype.kind == "f" and not all(values) and holds_negative_zero(text)):
        return None
    return _tensor_spec(
        name=name,
        datatype=datatype,
        shape=tuple(shape),
        nbytes=0,
        data=array.reshape(shape),
        parameters=MappingProxyType(parameters) if parameters else NOTHING,
    )


def _are_plain_parameters(parameters: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether parameters of a JSON tensor need no closer look."""
    return (
        type(parameters) is dict
        and "binary_data_size" not in parameters
        and PLAIN_TYPES.issuperset(map(type, parameters.values()))
    )


def _is_unusual(text: str, data: bytes | bytearray | memoryview, max_depth: int) -> bool:
    """Tell whether this parser would not accept a text, or must not parse it."""
    if "\\" in text and ("\\ud" in text or "\\uD" in text):  # which may be half of a surrogate pair
        return True
    if len(text) <= max_depth:  # usual, and far below `_SHORT`
        return False
    objects = text.count("{")
    if len(text) >= _SHORT and text.count(":") + objects > _MOST_MARKS * (1 + text.count('"shape"')):
        return True
    # If there are few brackets, their places are not searched.
    return objects + text.count("[") > max_depth and too_deep_at(data, max_depth) is not None
