"""JSON text: bytes to Python values, strictly.

This module knows RFC 8259, and does not know tensors. The parser of the standard library does the work, but alone it is
not strict enough: it guesses UTF-16, accepts a byte order mark, keeps the last of two duplicate keys, accepts NaN
anywhere, and recurses as deep as the interpreter allows. This module has a check for each of these. The cheap checks
run before the parser. A duplicate key or a NaN stops the usual parser; then a second, slower parser finds the place.
Texts that are not short use only the second parser. For large texts, a quick parser is tried before all of this; see
`quick.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn, cast

from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError, shown
from streamcodec.engine.json.depth import too_deep_at
from streamcodec.engine.json.quick import LEAST_BYTES, parse_quickly, parse_unchecked
from streamcodec.engine.limits import Limits


class NonFinite(float):
    """A literal NaN, Infinity or -Infinity of the text; a number that merely overflows is a plain `float`."""

    __slots__ = ()


class NegativeZero(int):
    """The literal `-0` in the data of a tensor. It is an integer in JSON, and -0.0 in a tensor of floats."""

    __slots__ = ()

    def __float__(self) -> float:
        """Return -0.0."""
        return -0.0


NEGATIVE_ZERO: Final = re.compile(rb"(?<![^\[,:\s])-0(?![.eE])")
"""Finds the literal `-0`, which is rare. An exponent is none: `1e-05`. It also matches within strings, but not within a
UUID."""


class _DuplicateKeys(dict[str, Any]):
    """An object that had a member twice, kept until its path is known."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    @property
    def key(self) -> str:
        """The member that occurs most often. Only one object is counted, even if there are many."""
        return Counter(key for key, _ in self._pairs).most_common(1)[0][0]


_CONTAINERS: Final = (dict, list, _DuplicateKeys)
"""Types of values that hold others."""


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
    if (
        len(data) >= LEAST_BYTES
        and too_deep_at(data, limits.max_json_depth) is None
        and not NEGATIVE_ZERO.search(data)
        and (quick := parse_quickly(data))
    ):
        return quick[0], 0
    value, text, constants = _parse_strictly(data, limits)
    if "\\" in text and re.search(_SURROGATE, text) and re.search(_SURROGATE, re.sub(_HARMLESS, "", text)):
        raise half_of_a_pair(find(value, str, are_unencodable))  # it has no UTF-8 form, so it could not be sent back
    return value, constants


def parse_slice(data: bytes, limits: Limits) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a part of a tensor's data that was completed to a JSON value.

    Lone surrogates are not searched for, and there is no `NegativeZero`.

    Raises:
        RemoteProtocolError: as from `parse_json`.
    """
    quick = parse_quickly(data) if len(data) >= LEAST_BYTES // _SLICES else []
    return quick[0] if quick else _parse_strictly(data, limits)[0]


_SLICES: Final = 16
"""The quick parser is used for parts of a long text that are this many times shorter than `LEAST_BYTES`."""


def parse_unguarded(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a short text, without white space around it, at once: `parse_json` without its guards.

    The caller has checked the depth, and has to notice what is not noticed here. The last of two members of one name is
    kept, half of a surrogate pair is a character, and `-0` is 0.

    Raises:
        ValueError: it is not JSON, or holds a constant, or an integer of thousands of digits.
    """
    if len(text) >= LEAST_BYTES // _SHORT_TEXTS and (quick := parse_unchecked(text.encode())):
        return quick[0]
    value, end = _UNGUARDED.raw_decode(text)
    if end != len(text):
        raise ValueError
    return value


_SHORT_TEXTS: Final = 32
"""The same for a short text."""


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


_UNGUARDED: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def holds_negative_zero(text: str) -> bool:
    """Tell whether the literal `-0` may stand in a text. Most texts have `-0` only as the beginning of a fraction."""
    return text.count("-0") != text.count("-0.") and NEGATIVE_ZERO.search(text.encode()) is not None


def _parse_strictly(data: bytes | bytearray | memoryview, limits: Limits) -> tuple[Any, str, int]:
    """Parse a text with the standard library's parser; return its value, itself, and how many `NonFinite` it holds."""
    text = _decode_utf8(data)
    offset = too_deep_at(data, limits.max_json_depth)
    if offset is not None:
        raise too_deep(offset, limits)
    constants: list[NonFinite] = []
    decoder = _SIGNED if holds_negative_zero(text) else _USUAL
    try:
        value = _parse(text, constants, decoder)
    except json.JSONDecodeError as error:
        offset = len(text[: _place(error)].encode())
        msg = f"the header is not JSON: {error.msg.removesuffix(' at').lower()}"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_JSON, offset=offset) from None
    except ValueError:  # the interpreter's bound on the digits of an integer, which keeps parsing linear
        msg = "the header holds an integer with thousands of digits"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_JSON) from None
    return value if decoder is _USUAL else _without_signs(value), text, len(constants)


def _parse(text: str, constants: list[NonFinite], decoder: json.JSONDecoder) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a text, twice if it is short and unusual. A long text is parsed once, because others wait meanwhile."""
    if len(text) <= _PARSED_TWICE:
        with suppress(_Unusual):
            return _parse_usual(text, decoder)
    return _parse_unusual(text, constants, decoder)


_PARSED_TWICE: Final = 4 << 10
"""Characters of a short text. Up to this length it is quicker to use the second parser only where it is needed."""


def too_deep(offset: int, limits: Limits) -> LimitExceededError:
    """Make the error for a bracket that opens more than `max_json_depth` levels."""
    msg = f"the header nests deeper than {limits.max_json_depth} arrays and objects"
    return LimitExceededError(msg, limit="max_json_depth", offset=offset, status_hint=400)


def _place(error: json.JSONDecodeError) -> int:
    """Return the offset of the first wrong character. Python 3.13 reports the comma before a wrong bracket instead."""
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
"""Made once: to make a decoder costs more than to parse a small text."""


def _integer(literal: str) -> int:
    return NegativeZero() if literal == "-0" else int(literal)


_SIGNED = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer)
"""For texts with a `NegativeZero`. It is slower for many integers."""


def _without_signs(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Replace negative zeros by plain ones, except in the data of tensors."""
    if type(value) is dict:
        return {key: member if key == "data" else _without_signs(member) for key, member in value.items()}
    if type(value) is list:
        return list(map(_without_signs, value))
    return 0 if type(value) is NegativeZero else value


WHITE_SPACE = " \t\n\r"
"""The white space of RFC 8259, section 2."""


def _parse_usual(text: str, decoder: json.JSONDecoder) -> Any:  # noqa: ANN401 - any JSON value
    """Parse as `JSONDecoder.decode` does, but without its regular expressions for white space."""
    value, end = decoder.raw_decode(text, len(text) - len(text.lstrip(WHITE_SPACE)))
    rest = text[end:].lstrip(WHITE_SPACE)
    if rest:
        msg = "Extra data"
        raise json.JSONDecodeError(msg, text, len(text) - len(rest))
    return value


def _parse_unusual(text: str, constants: list[NonFinite], decoder: json.JSONDecoder) -> Any:  # noqa: ANN401
    """Parse with the second parser, which keeps NaN literals; refuse duplicate keys with their path."""
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

    value = json.loads(text, object_pairs_hook=pairs_to_dict, parse_constant=constant, parse_int=decoder.parse_int)
    if marks:  # if one has replaced an object that contained another one, the outer object is marked, too
        steps, marked = cast("Found", _find(value, _DuplicateKeys, lambda _: True))
        path = cut_path("".join(["$", *reversed(steps)]))
        msg = f"an object of the header has the member {shown(marked.key)} twice"
        raise RemoteProtocolError(msg, code=ErrorCode.DUPLICATE_KEY, path=path)
    return value


Found = tuple[list[str], Any]
"""The steps of a path, innermost first, and what is there."""


def find(value: Any, kind: type, are_wanted: Callable[[list[Any]], bool], path: str = "$") -> str | None:  # noqa: ANN401 - any JSON value
    """Return the path of the first value (or member name) that is wanted, in the order of the text.

    It costs about as much as parsing. Lists of other types are skipped at once, and the path is built only when the
    value has been found.

    Args:
        value: any JSON value whose depth has been checked.
        kind: exact type of what is wanted; names of members are looked at where it is `str`.
        are_wanted: tells whether any of these values, all of that type, is wanted.
        path: of the value.
    """
    found = _find(value, kind, are_wanted)
    return None if found is None else cut_path("".join([path, *reversed(found[0])]))


_LONGEST_PATH: Final = 200


def cut_path(path: str) -> str:
    """Shorten a path: the peer can make its steps long."""
    return path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "..."


_LONGEST_PLAIN_KEY = 60


def _find(value: Any, kind: type, are_wanted: Callable[[list[Any]], bool]) -> Found | None:  # noqa: ANN401 - any JSON value
    if type(value) is kind and are_wanted([value]):
        return [], value
    if isinstance(value, dict):
        return _find_member(value, kind, are_wanted)
    if isinstance(value, list):
        return _find_item(value, kind, are_wanted)
    return None


def _find_member(members: dict[str, Any], kind: type, are_wanted: Callable[[list[Any]], bool]) -> Found | None:
    has_wanted_names = kind is str and are_wanted(list(members))
    for key, member in members.items():
        if has_wanted_names and are_wanted([key]):
            return [" (a member's name)"], key
        if type(member) is kind or (member and isinstance(member, _CONTAINERS)):
            found = _find(member, kind, are_wanted)
            if found is not None:
                is_plain = len(key) <= _LONGEST_PLAIN_KEY and key.isidentifier()
                found[0].append(f".{key}" if is_plain else f"[{shown(key)}]")
                return found
    return None


def _find_item(items: list[Any], kind: type, are_wanted: Callable[[list[Any]], bool]) -> Found | None:
    kinds = set(map(type, items))
    if kinds == {kind}:  # a long list of texts or of numbers
        if not are_wanted(items):
            return None
        index = first_wrong(items, are_wanted)
        return [f"[{index}]"], items[index]
    if kind in kinds or not kinds.isdisjoint(_CONTAINERS):
        for index, item in enumerate(items):
            if type(item) is kind or (item and isinstance(item, _CONTAINERS)):
                found = _find(item, kind, are_wanted)
                if found is not None:
                    found[0].append(f"[{index}]")
                    return found
    return None


def first_wrong(values: list[Any], are_wrong: Callable[[list[Any]], bool]) -> int:
    """Return the index of the first wrong value, by bisection. It costs about as much as one look at all values.

    Args:
        values: at least one of them is wrong.
        are_wrong: tells whether any of them is.
    """
    start, end = 0, len(values)
    while end - start > 1:
        middle = (start + end) // 2
        if are_wrong(values[start:middle]):
            end = middle
        else:
            start = middle
    return start


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


_SURROGATE = r"\\u[dD][89a-fA-F]"
_HARMLESS = r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F].."
"""An escaped backslash, so that the characters after it are not taken for an escape; or a whole surrogate pair. It is
compiled at the first use, which is rare."""


def half_of_a_pair(path: str | None) -> RemoteProtocolError:
    """Make the error for a string without UTF-8 form."""
    msg = "a string of the header holds half of a surrogate pair"
    return RemoteProtocolError(msg, code=ErrorCode.INVALID_UTF8, path=path)


def are_unencodable(texts: list[str]) -> bool:
    """Tell whether any of these strings has no UTF-8 form."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return True
    return False
