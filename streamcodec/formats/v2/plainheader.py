"""Plain headers: the usual ones, read at a glance.

Nearly every header describes binary tensors of fixed size, by four members each. For those, most of what the strict way
looks for is not there: escapes, constants, values, unknown members, places for errors. This room may only say yes. What
it accepts, the strict way of `jsontext` and `header` accepts too, and it returns the same; where anything is unusual,
it returns None, and the strict way has the only say. So verdicts are the same, and the tests compare the two.

Even a member that occurs twice is noticed in passing: behind every name in the text stands a colon, so the colons are
at least as many as the members written; if they are not more than the members kept, none was lost to another of its
name.
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
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.model import PLAIN_TYPES

PlainHeader = tuple[dict[str, Any], tuple[TensorSpec, ...]]
"""The object of a header, and its tensors."""

_MEMBERS: Final = 4
"""Of a plain tensor: name, datatype, shape and parameters."""

_MOST_MARKS: Final = 16
"""Objects and members for each tensor: as many as the text has braces and colons, at most. A header with more has other
things than tensors, and would be parsed for nothing."""

_SHORT: Final = 1 << 10
"""A header of fewer characters is parsed twice without regret."""


def read_plainly(data: bytes | bytearray | memoryview, key: str, limits: Limits) -> PlainHeader | None:
    """Read a header if its tensors are plain ones.

    Args:
        data: exactly the header.
        key: of the tensors, `inputs` or `outputs`.
        limits: caps on what it may declare.

    Returns:
        What the strict way would make of the text, and of the tensors in it; the rest is still to be checked. None if
        the strict way has to decide.
    """
    try:
        text = str(data, "utf-8").rstrip(WHITE_SPACE)
        # A header with values in it would be parsed for nothing; an escape could hide any character.
        if "\\" in text or '"data"' in text or _has_others(text) or _is_deep(text, data, limits.max_json_depth):
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
    for name in root:
        if name != key:
            kept += count_members(root[name])
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
    """Parse some entries of the array of tensors, which are not nested too deeply; commas stand between them.

    Returns:
        The entries, as the strict way would return them; none if that has to decide.
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
    count = 1
    for size in shape:
        if type(size) is not int or not 0 < size <= limits.max_elements:
            return None
        count *= size
    if (
        datatype.is_bytes
        or type(nbytes) is not int
        or nbytes != count * datatype.itemsize
        or nbytes > limits.max_tensor_bytes
        or count > limits.max_elements
        or len(entry) != _MEMBERS
        or not PLAIN_TYPES.issuperset(map(type, parameters.values()))
    ):
        return None
    return TensorSpec(
        name=name,
        datatype=datatype,
        shape=tuple(shape),
        nbytes=nbytes,
        offset=offset,
        parameters=MappingProxyType(parameters),
    )


def _has_others(text: str) -> bool:
    """Whether there is much more in a long header than tensors, as far as can be told without parsing it."""
    if len(text) < _SHORT:
        return False
    return text.count(":") + text.count("{") > _MOST_MARKS * (1 + text.count('"shape"'))


def _is_deep(text: str, data: bytes | bytearray | memoryview, limit: int) -> bool:
    """Tell whether a text nests deeper; where there are few brackets, without looking where they are."""
    return text.count("[") + text.count("{") > limit and too_deep_at(data, limit) is not None


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
