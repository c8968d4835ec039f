"""Inputs: what a model takes, and small values for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcodec.core.datatypes import Datatype

_OPEN_SIZE = 2
"""What is put where the metadata leaves a size open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of the model."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    """-1 where any size will do."""

    @property
    def is_open(self) -> bool:
        """Whether some size may be chosen."""
        return -1 in self.shape

    def sample_shape(self, size: int = _OPEN_SIZE) -> list[int]:
        """Return a shape that the model takes: `size` in the first open dimension, and 1 in the others."""
        shape = list(self.shape)
        if self.is_open:
            shape[shape.index(-1)] = size
        return [1 if size == -1 else size for size in shape]

    def sample(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Return small values."""
        count = math.prod(shape)
        if self.datatype.is_bytes:
            return np.array([b"%d" % (index % 100) for index in range(count)], object).reshape(shape)
        numbers = np.arange(count) % (2 if self.datatype.name == "BOOL" else 100)
        if self.datatype.name == "BF16":
            return (0x3F80 + numbers).astype("<u2").reshape(shape)  # their bits
        return numbers.astype(self.datatype.dtype).reshape(shape)

    def to_bytes(self, array: np.ndarray[Any, Any]) -> bytes:
        """Return values as they are on the wire."""
        if self.datatype.is_bytes:
            return b"".join(prefixed(element) for element in array.reshape(-1))
        return array.tobytes()

    def to_json(self, array: np.ndarray[Any, Any]) -> list[Any]:
        """Return values as flat JSON data."""
        values = array.reshape(-1).tolist()
        return [value.decode() for value in values] if self.datatype.is_bytes else values


def prefixed(element: bytes, length: int | None = None) -> bytes:
    """Return an element of BYTES as it is on the wire, with another length in its prefix if that is wanted."""
    return (len(element) if length is None else length).to_bytes(4, "little") + element
