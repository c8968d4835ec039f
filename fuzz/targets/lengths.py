"""How long the JSON header of a message is, by the fields of its head: a naive reader, character by character.

It follows RFC 9110, section 5.6, and the rules of `docs/formats.md`, and shares no code with the library.
"""

from __future__ import annotations

from typing import Final

from streamcodec import ErrorCode, RemoteProtocolError
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import Fields

REFUSED: Final = "refused"
_MOST_PARAMETERS: Final = 32

_NAMES: Final = ("application/vnd.sagemaker-triton.binary+json", "application/vnd.vertex-ai-triton.binary+json")
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def check_header_length(fields: Fields) -> None:
    """Compare what the library reads with what the naive reader does."""
    try:
        found: int | str | None = header_length_of(fields)
    except RemoteProtocolError as error:
        found = REFUSED if error.code is ErrorCode.INVALID_HEADER_LENGTH else error.code
    assert found == naive_header_length(fields), "the header's length is read otherwise"


def naive_header_length(fields: Fields) -> int | str | None:
    """Return the length, None if nothing says it, or `REFUSED`."""
    lengths = [value.decode("latin-1") for value in fields.values(b"inference-header-content-length")]
    types = [value.decode("latin-1") for value in fields.values(b"content-type")]
    found: list[int | str] = [_decimal(value) if len(lengths) == 1 else REFUSED for value in lengths]
    found += [_parameter(value) if len(types) == 1 else REFUSED for value in types if _mentions(value)]
    if REFUSED in found or len(set(found)) > 1:
        return REFUSED
    return found[0] if found else None


def _mentions(value: str) -> bool:
    lower = value.lower()
    for name in _NAMES:
        for start in range(len(value)):
            around = value[max(0, start - 1) : start] + value[start + len(name) : start + len(name) + 1]
            if lower.startswith(name, start) and not set(around) & _TOKEN:
                return True
    return False


def _parameter(value: str) -> int | str:
    name = next((name for name in _NAMES if value.lower().startswith(name)), None)
    if name is None:
        return REFUSED
    rest, sizes, count = value[len(name) :], [], 0
    while rest:
        count += 1
        if count > _MOST_PARAMETERS:
            return REFUSED
        rest = rest.lstrip(" \t")
        if not rest.startswith(";"):
            return REFUSED
        rest = rest[1:].lstrip(" \t")
        key, rest = _token(rest)
        if not key:
            continue  # an empty parameter
        if not rest.startswith("="):
            return REFUSED
        is_quoted = rest.startswith('="')
        text, rest = _quoted(rest[2:]) if is_quoted else _token(rest[1:])
        if text is None or not (text or is_quoted):
            return REFUSED
        if key.lower() == "json-header-size":
            sizes.append(text)
    return _decimal(sizes[0]) if len(sizes) == 1 else REFUSED


def _token(text: str) -> tuple[str, str]:
    end = next((index for index, character in enumerate(text) if character not in _TOKEN), len(text))
    return text[:end], text[end:]


def _quoted(text: str) -> tuple[str | None, str]:
    """Return a quoted string, and what follows its closing quote; None if there is none."""
    found, position = "", 0
    while position < len(text) and text[position] != '"':
        position += text[position] == "\\"
        found += text[position : position + 1]
        position += 1
    return (found, text[position + 1 :]) if position < len(text) else (None, "")


def _decimal(text: str) -> int | str:
    return int(text) if 0 < len(text) < 20 and not set(text) - set("0123456789") else REFUSED  # noqa: PLR2004 - 19 digits
