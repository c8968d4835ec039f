"""Compact headers: reads the JSON header of a request with one tensor, by one strict expression.

Most requests are like that: one tensor of four members, and perhaps an `id`, or the wish for binary outputs. The
expression is JSON's grammar for exactly these members, in any order and with any white space. So no text is accepted
that is not JSON, and no member can occur twice. Names, shape, size and id are read and checked each time, by the rules
of the strict parser. It takes half the time of `plainheader`.

The tensor may have its values in the header, in one list that is not nested. The expression only finds its end; the
parser of JSON reads it.

This module never refuses a header. If it accepts a header, the strict parser would accept it, too, with the same
result. If anything is unusual, it returns None, and the others decide. The tests compare them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from streamcodec.engine.datatypes import DATATYPES, Datatype
from streamcodec.engine.json.scan import DIGITS_PER_VALUE, LONG_BYTES
from streamcodec.engine.json.text import holds_negative_zero, parse_unguarded
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import constructor
from streamcodec.engine.spec import NOTHING, TensorSpec
from streamcodec.formats.v2.json.data import fits_as_json, pack
from streamcodec.formats.v2.model import RequestHeader

_tensor_spec: Final = constructor(TensorSpec)
_request_header: Final = constructor(RequestHeader)

_DEPTH: Final = 4
"""Brackets around the size of a tensor."""

MOST_BYTES: Final = 128 << 10
"""The longest header that is read."""

_MOST_VALUES: Final = 20_000
"""Most values of a tensor: as JSON they take a millisecond."""

_SHORT_BYTES: Final = 4 << 10
"""The longest header that is matched with its values."""

_W: Final = rb"[ \t\r\n]*+"
_TEXT: Final = rb'"([ !#-\[\]-~]*+)"'
_NUMBER: Final = rb"(?:0|[1-9][0-9]{0,14}+)"
_PLAIN: Final = rb'[^\[\]{}"\\]*+'
_COMMA: Final = rb'(?:%b,%b(?=")|(?=%b\}))' % (_W, _W, _W)


def _object(*members: bytes) -> bytes:
    """Return an expression for an object of these members, in any order.

    It is not possessive: with groups within, the module `re` of Python 3.11 loses count.
    """
    return rb"\{%b(?:(?:%b)%b)*%b\}" % (_W, rb"|".join(members), _COMMA, _W)


def _member(group: int, name: bytes, value: bytes) -> bytes:
    """Return an expression for a member that may occur once, and in whose value this group stands."""
    return rb'(?(%d)(?!)|"%b"%b:%b%b)' % (group, name, _W, _W, value)


_TENSOR: Final = _object(
    _member(2, b"name", _TEXT),
    _member(3, b"shape", rb"\[%b(%b(?:%b,%b%b)*+)%b\]" % (_W, _NUMBER, _W, _W, _NUMBER, _W)),
    _member(4, b"datatype", rb'"([A-Z0-9]++)"'),
    _member(5, b"parameters", rb'\{%b"binary_data_size"%b:%b(%b)%b\}' % (_W, _W, _W, _NUMBER, _W)),
    _member(6, b"data", rb'(\[%b(?:"[^"\\]*+"%b)*+\])' % (_PLAIN, _PLAIN)),
)
_HEADER: Final = re.compile(
    _W
    + _object(
        _member(1, b"inputs", rb"(\[)%b%b%b\]" % (_W, _TENSOR, _W)),
        _member(7, b"id", _TEXT),
        _member(8, b"parameters", rb'\{%b"binary_data_output"%b:%b(true|false)%b\}' % (_W, _W, _W, _W)),
    )
    + _W
)

_DATA: Final = re.compile(rb'"data"%b:%b\[' % (_W, _W))
_DATA_GROUP: Final = 6
_NOT_NUMBERS: Final = (b'"', b"[", b"{")

Compact = tuple[re.Match[bytes], bytes]
"""A header that has been matched, and the numbers that were cut out of it."""

_FLAGS: Final[dict[bytes | None, Mapping[str, Any]]] = {
    b"true": MappingProxyType({"binary_data_output": True}),
    b"false": MappingProxyType({"binary_data_output": False}),
    None: NOTHING,
}
_DATATYPES: Final = {name.encode(): datatype for name, datatype in DATATYPES.items()}


def read_compactly(data: bytes | bytearray | memoryview, limits: Limits) -> RequestHeader | None:
    """Read a header if it is a compact one; return None if the others have to decide.

    Args:
        data: exactly the header, of up to `MOST_BYTES`.
        limits: caps on what it may declare.
    """
    found = match_compactly(data)
    return None if found is None else compact_header(found, limits)


def match_compactly(data: bytes | bytearray | memoryview) -> Compact | None:
    """Match a header that has no other members than a compact one; what they are is not checked.

    Numbers of a long header are cut out before, up to the first closing bracket. If an empty list in their place makes
    the text a header, and they are the items of a list, then the whole is that header with this list.
    """
    begun = _DATA.search(data) if len(data) > _SHORT_BYTES else None
    if begun is not None:
        text, start = bytes(data), begun.end()
        end = max(text.find(b"]", start), start)
        if all(text.find(mark, start, end) < 0 for mark in _NOT_NUMBERS):
            found = _HEADER.fullmatch(text[:start] + text[end:])
            return None if found is None or found.end(_DATA_GROUP) != start + 1 else (found, text[start:end])
    found = _HEADER.fullmatch(data)
    return None if found is None else (found, b"")


def compact_header(compact: Compact, limits: Limits) -> RequestHeader | None:
    """Return the header that has been matched; None if the others have to decide."""
    found, cut = compact
    nbytes = found.end() + len(cut)
    _, name, sizes, kind, size, values, request_id, flag = found.groups()
    if values is not None:
        values = cut or values[1:-1]
    datatype = _DATATYPES.get(kind)
    if not name or sizes is None or datatype is None or sizes.count(b",") >= limits.max_rank:
        return None
    shape = tuple(map(int, sizes.split(b",")))
    count = 1
    for length in shape:
        count *= length
    if not count or count > limits.max_elements or limits.max_json_depth < _DEPTH or not limits.max_tensors:
        return None
    if nbytes > LONG_BYTES and not _is_within(nbytes, nbytes - len(values or b""), limits):
        return None
    if values is None:
        spec = _binary_tensor(name.decode(), datatype, shape, count, size, nbytes, limits)
    else:
        spec = _json_tensor(name.decode(), datatype, shape, count, values, nbytes, limits) if size is None else None
    if spec is None:
        return None
    return _request_header(
        tensors=(spec,), id=None if request_id is None else request_id.decode(), parameters=_FLAGS[flag]
    )


def compact_object(compact: Compact, limits: Limits) -> dict[str, Any] | None:
    """Return the object of a header that has been matched, as the strict parser reads it from the same text.

    So it need not read the text of a header that is refused for what its members are. None if it has to, because there
    are values of a tensor, or the text may be nested too deeply.
    """
    found = compact[0]
    begun, name, sizes, kind, size, values, request_id, flag = found.groups()
    if values is not None or limits.max_json_depth < _DEPTH or found.end() > LONG_BYTES:
        return None
    tensor = {
        "name": None if name is None else name.decode(),
        "shape": None if sizes is None else [*map(int, sizes.split(b","))],
        "datatype": None if kind is None else kind.decode(),
        "parameters": None if size is None else {"binary_data_size": int(size)},
    }
    root = {
        "inputs": None if begun is None else [_present(tensor)],
        "id": None if request_id is None else request_id.decode(),
        "parameters": None if flag is None else {"binary_data_output": flag == b"true"},
    }
    return _present(root)


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _is_within(nbytes: int, rest: int, limits: Limits) -> bool:
    """Tell whether a long header surely has no more text than is allowed, and no more values in the rest of it."""
    return nbytes <= limits.max_json_text_bytes and rest + rest // DIGITS_PER_VALUE <= limits.max_json_values


def _binary_tensor(  # noqa: PLR0917 - called once, for each message
    name: str, datatype: Datatype, shape: tuple[int, ...], count: int, size: bytes | None, offset: int, limits: Limits
) -> TensorSpec | None:
    """Return a tensor whose bytes start at an offset of the body."""
    if size is None:
        return None
    nbytes, least = int(size), count * datatype.itemsize
    if nbytes > limits.max_tensor_bytes or offset + nbytes > limits.max_message_bytes:
        return None
    if datatype.is_bytes:
        if nbytes < least or count > limits.max_bytes_elements or nbytes > limits.max_element_bytes:
            return None
    elif nbytes != least:
        return None
    return _tensor_spec(
        name=name,
        datatype=datatype,
        shape=shape,
        nbytes=nbytes,
        offset=offset,
        parameters=MappingProxyType({"binary_data_size": nbytes}),
    )


def _json_tensor(  # noqa: PLR0917 - as above
    name: str, datatype: Datatype, shape: tuple[int, ...], count: int, values: bytes, nbytes: int, limits: Limits
) -> TensorSpec | None:
    """Return a tensor whose values are there as the items of a JSON list, in a header of so many bytes."""
    if count > _MOST_VALUES or not fits_as_json(datatype, count, nbytes, limits) or nbytes > limits.max_message_bytes:
        return None
    try:
        text = f"[{str(values, 'utf-8')}]"
        data = parse_unguarded(text)
    except ValueError:
        return None
    array = pack(data, datatype) if len(data) == count else None
    if array is None or (datatype.kind == "f" and not all(data) and holds_negative_zero(text)):
        return None
    return _tensor_spec(name=name, datatype=datatype, shape=shape, nbytes=0, data=array.reshape(shape))
