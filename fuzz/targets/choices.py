"""Choices: how a target takes its options from the first bytes of an input.

Atheris has a provider of its own, but a target that uses it cannot be replayed without Atheris. Here every choice is
one byte (numbers two), in a fixed order and at a fixed place, so that one mutation changes one choice and leaves the
message behind it alone, and so that a corpus can be written as simply as it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


_MAX_BYTES = 64
"""More than any target needs for its choices."""


class Choices:
    """Reads choices from an input; one that has ended gives the first of everything."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._choices = data[:_MAX_BYTES].ljust(_MAX_BYTES, b"\0")
        self._position = 0

    def pick(self, values: Sequence[_T]) -> _T:
        """Choose one of several values by one byte."""
        position = self._position
        self._position = position + 1
        return values[self._choices[position] % len(values)]

    def number(self) -> int:
        """Take a number below 65,536, two bytes."""
        position = self._position
        self._position = position + 2
        return self._choices[position] | self._choices[position + 1] << 8

    def rest(self) -> bytes:
        """Take all that is left."""
        return self._data[self._position :]


class ChoicesWriter:
    """Writes what `Choices` reads, call for call."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def pick(self, values: Sequence[_T], value: _T) -> None:
        """Write the byte that chooses this value."""
        self._parts.append(bytes([values.index(value)]))

    def number(self, value: int) -> None:
        """Write a number below 65,536."""
        self._parts.append(value.to_bytes(2, "little"))

    def finish(self, rest: bytes) -> bytes:
        """Return the whole input."""
        return b"".join((*self._parts, rest))
