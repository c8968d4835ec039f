"""Inputs: the inputs of a model, and small values for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcodec.engine.datatypes import Datatype

_OPEN_SIZE = 2
"""The size of a dimension that is open in the metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of the model."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    """-1 for a dimension of any size."""

    def __str__(self) -> str:
        """Return the text that `--input` takes for it."""
        return f"{self.name}:{self.datatype.name}:{','.join(map(str, self.shape))}"

    @property
    def has_elements(self) -> bool:
        """Whether its samples have elements. Without elements, few things can be wrong with it."""
        return 0 not in self.shape

    @property
    def is_open(self) -> bool:
        """Whether the size of a dimension is open."""
        return -1 in self.shape

    def sample_shape(self, size: int = _OPEN_SIZE) -> list[int]:
        """Return a shape that the model accepts: `size` in the first open dimension, and 1 in the others."""
        shape = list(self.shape)
        if self.is_open:
            shape[shape.index(-1)] = size
        return [1 if size == -1 else size for size in shape]

    def shape_of(self, count: int) -> list[int]:
        """Return a shape that the model accepts, with `count` elements or as near to that as its fixed sizes allow."""
        fixed = math.prod(size for size in self.shape if size != -1)
        return self.sample_shape(max(1, count // max(1, fixed)))

    def sample(self, count: int) -> np.ndarray[Any, Any]:
        """Return small values, counted up from 0."""
        numbers = np.arange(count)
        if self.datatype.is_bytes:
            return np.array([b"%d" % (number % 100) for number in numbers], object)
        if self.datatype.name == "BF16":
            return (0x3F80 + numbers % 100).astype("<u2")  # their bits
        return (numbers % (2 if self.datatype.name == "BOOL" else 100)).astype(self.datatype.dtype)

    def varied(self, count: int) -> np.ndarray[Any, Any]:
        """Return other values: negative and fractional if the datatype has them, and 0 or 1 only for BOOL."""
        numbers = np.arange(count) % 97
        if self.datatype.is_bytes:
            return np.array([b"-%d.5" % (2 + number) for number in numbers], object)
        if self.datatype.name == "BF16":
            return (0xC020 + numbers).astype("<u2")  # the bits of -2.5 and what follows
        values = {"b": 1 - numbers % 2, "u": 2 + numbers, "i": -2 - numbers, "f": -2.5 - numbers}
        return values[self.datatype.kind].astype(self.datatype.dtype)

    def to_bytes(self, values: np.ndarray[Any, Any]) -> bytes:
        """Return values as they are on the wire."""
        return b"".join(map(prefixed, values)) if self.datatype.is_bytes else values.tobytes()

    def to_json(self, values: np.ndarray[Any, Any]) -> list[Any]:
        """Return values as flat JSON data."""
        return [value.decode() for value in values] if self.datatype.is_bytes else values.tolist()


def prefixed(element: bytes, length: int | None = None) -> bytes:
    """Return an element of BYTES as it is on the wire; the length in its prefix may be another one."""
    return (len(element) if length is None else length).to_bytes(4, "little") + element
