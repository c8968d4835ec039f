"""Arguments: checks of what a program gives to the library, with advice. None of them is on the way of a message."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final

from streamcodec.engine.errors import LocalProtocolError, kind_of

_Kind = Any
"""A class, an interface of `collections.abc`, or a tuple of them."""


MAPPINGS: Final = (dict, Mapping)
"""Kinds for `check_kind`: most mappings are a `dict`, and to ask for the interface takes ten times as long."""


def whole(value: Any) -> int | None:  # noqa: ANN401 - it may be anything
    """Return an integer as Python's own, which does not overflow as those of numpy do; None if it is no integer."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def checked_integer(name: str, value: object) -> int:
    """Return an integer as Python's own.

    Args:
        name: of the argument.
        value: an integer, also of numpy.

    Raises:
        LocalProtocolError: it is none.
    """
    number = whole(value)
    if number is None:
        advice = f": int({value!r})" if isinstance(value, str | bytes) and value.isdigit() else ""
        msg = f"{name} is an int, not {kind_of(value)}{advice}"
        raise LocalProtocolError(msg)
    return number


def checked_length(name: str, value: object) -> int:
    """Return a length as Python's own integer.

    Raises:
        LocalProtocolError: it is no integer, or negative.
    """
    length = checked_integer(name, value)
    if length < 0:
        msg = "a length is negative"
        raise LocalProtocolError(msg)
    return length


def check_kind(value: object, kind: _Kind, expected: str) -> None:
    """Refuse an argument of another type.

    Args:
        value: the argument.
        kind: of a right one.
        expected: the beginning of the message: what is expected, and how it is made.

    Raises:
        LocalProtocolError: it is of another type.
    """
    if not isinstance(value, kind):
        msg = f"{expected}, not {kind_of(value)}"
        raise LocalProtocolError(msg)


def not_field_values() -> LocalProtocolError:
    """Return the error for something else than the values of an HTTP field."""
    return LocalProtocolError(
        "the values of a field are a list of bytes, as [b'128']; text.encode('latin-1') makes bytes of a str"
    )
