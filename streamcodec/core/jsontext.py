"""JSON text: bytes to Python values, strictly.

This room knows RFC 8259 and nothing of tensors. Python's own parser does the work, but alone it would let too much
pass: it guesses UTF-16, takes a byte order mark, lets the last of two equal keys win, accepts NaN anywhere, and
recurses as deep as the interpreter allows. Each of these has a check here. The cheap ones run before the parser. A
duplicate key or a NaN stops the usual parser, and a second, slower one says where it is. For large texts, a quicker one
may say yes before all of this; see `quickjson.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from streamcodec.core.errors import ErrorCode, LimitExceededError, RemoteProtocolError, shown
from streamcodec.core.jsondepth import too_deep_at
from streamcodec.core.limits import Limits
from streamcodec.core.quickjson import LEAST_BYTES, parse_quickly


class NonFinite(float):
    """A literal NaN, Infinity or -Infinity of the text; a number that merely overflows is a plain `float`."""

    __slots__ = ()


class _DuplicateKeys(dict[str, Any]):
    """An object that had a member twice, kept until its path is known."""

    __slots__ = ("key",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.key = counts.most_common(1)[0][0]


def parse_json(data: bytes | bytearray | memoryview, limits: Limits) -> tuple[Any, int]:
    """Parse one JSON value with optional white space around it.

    Args:
        data: the text, all of it.
        limits: `max_json_depth` applies.

    Returns:
        The value, and how many `NonFinite` literals it holds: the caller accepts them where its rules allow.

    Raises:
        RemoteProtocolError: `invalid-utf8`, `invalid-json` or `duplicate-key`, with offset or path.
        LimitExceededError: nested deeper than `max_json_depth`.
    """
    if len(data) >= LEAST_BYTES and too_deep_at(data, limits.max_json_depth) is None and (quick := parse_quickly(data)):
        return quick[0], 0
    text = _decode_utf8(data)
    offset = too_deep_at(data, limits.max_json_depth)
    if offset is not None:
        msg = f"the header nests deeper than {limits.max_json_depth} arrays and objects"
        raise LimitExceededError(msg, limit="max_json_depth", offset=offset, status_hint=400)
    constants: list[NonFinite] = []
    try:
        try:
            value = _parse_usual(text)
        except _Unusual:
            value = _parse_unusual(text, constants)
    except json.JSONDecodeError as error:
        offset = len(text[: _place(error)].encode())
        msg = f"the header is not JSON: {error.msg.removesuffix(' at').lower()}"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_JSON, offset=offset) from None
    except ValueError:  # the interpreter's bound on the digits of an integer, which keeps parsing linear
        msg = "the header holds an integer with thousands of digits"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_JSON) from None
    if "\\" in text and re.search(_SURROGATE, text) and re.search(_SURROGATE, re.sub(_HARMLESS, "", text)):
        _refuse_surrogate(value)
    return value, len(constants)


def _place(error: json.JSONDecodeError) -> int:
    """Return the first character that fits nowhere. Python 3.13 blames a comma for the bracket that follows it."""
    behind_comma = error.doc[error.pos + 1 :].lstrip(WHITE_SPACE)
    return len(error.doc) - len(behind_comma) if error.msg.startswith("Illegal trailing comma") else error.pos


class _Unusual(Exception):  # noqa: N818 - not an error, but a turn to the parser that looks closer
    """The text has a duplicate key or a literal NaN or Infinity."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Unusual
    return members


def _no_constant(_: str) -> NoReturn:
    raise _Unusual


_USUAL = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
"""Made once: making one for each text would cost more than parsing a small one."""

WHITE_SPACE = " \t\n\r"
"""RFC 8259, section 2: all that JSON knows."""


def _parse_usual(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Do as `JSONDecoder.decode` does, which looks for white space by regular expressions."""
    value, end = _USUAL.raw_decode(text, len(text) - len(text.lstrip(WHITE_SPACE)))
    rest = text[end:].lstrip(WHITE_SPACE)
    if rest:
        msg = "Extra data"
        raise json.JSONDecodeError(msg, text, len(text) - len(rest))
    return value


def _parse_unusual(text: str, constants: list[NonFinite]) -> Any:  # noqa: ANN401 - any JSON value
    """Parse once more, collecting what the usual parser stumbled over; refuse duplicate keys with their path."""
    marks: list[_DuplicateKeys] = []

    def pairs_to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        marks.append(_DuplicateKeys(pairs))
        return marks[-1]

    def constant(literal: str) -> NonFinite:
        constants.append(NonFinite(literal))
        return constants[-1]

    value = json.loads(text, object_pairs_hook=pairs_to_dict, parse_constant=constant)
    if marks:
        _refuse_duplicate(value)
    return value


def find(value: Any, wanted: Callable[[Any], bool], path: str = "$") -> str | None:  # noqa: ANN401 - any JSON value
    """Return the path of the first value (or member name) that is `wanted`, in the order of the text.

    Only the error path calls this, with a value whose depth has been checked.
    """
    return next(_walk(value, wanted, path), None)


_LONGEST_PLAIN_KEY = 60


def _walk(value: Any, wanted: Callable[[Any], bool], path: str) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if wanted(value):
        yield path
    if isinstance(value, dict):
        for key, member in value.items():
            if wanted(key):
                yield f"{path} (a member's name)"
            is_plain = len(key) <= _LONGEST_PLAIN_KEY and key.isidentifier()
            yield from _walk(member, wanted, f"{path}.{key}" if is_plain else f"{path}[{shown(key)}]")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, wanted, f"{path}[{index}]")


def _decode_utf8(data: bytes | bytearray | memoryview) -> str:
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        msg = "the header is not UTF-8"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_UTF8, offset=error.start) from None
    if text.startswith("\ufeff"):
        msg = "the header starts with a byte order mark, which RFC 8259 forbids"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_UTF8, offset=0)
    return text


def _refuse_duplicate(value: Any) -> NoReturn:  # noqa: ANN401 - any JSON value
    """Locate a marked object. Where a duplicate replaced the object that held another, the outer one is marked too."""
    keys: list[str] = []

    def is_marked(item: object) -> bool:
        if isinstance(item, _DuplicateKeys):
            keys.append(item.key)
        return bool(keys)

    path = find(value, is_marked)
    msg = f"an object of the header has the member {shown(keys[0])} twice"
    raise RemoteProtocolError(msg, code=ErrorCode.DUPLICATE_KEY, path=path)


_SURROGATE = r"\\u[dD][89a-fA-F]"
_HARMLESS = r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F].."
"""An escaped backslash, so that what follows it is not taken for an escape, or a whole surrogate pair. Compiled when
first used, which is seldom."""


def _refuse_surrogate(value: Any) -> NoReturn:  # noqa: ANN401 - any JSON value
    """Refuse an escaped half of a surrogate pair: such a text has no UTF-8 form, so it could never be sent back."""
    path = find(value, lambda item: isinstance(item, str) and not _is_encodable(item))
    msg = "a string of the header holds half of a surrogate pair"
    raise RemoteProtocolError(msg, code=ErrorCode.INVALID_UTF8, path=path)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
