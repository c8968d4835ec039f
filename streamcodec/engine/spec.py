"""The description of a message's tensors, typed and immutable. The engine knows nothing else of a header.

A format makes these objects from the header of a message, and is responsible for their values. The engine checks them
against the limits once more, reads the tensors, and passes the header to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.record import record

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@record()
class TensorSpec:
    """The description of one tensor in a header."""

    name: str
    """Unique within its message."""
    datatype: Datatype
    """The type of its elements."""
    shape: tuple[int, ...]
    """Sizes of the dimensions; `()` is a scalar."""
    nbytes: int
    """Bytes of the binary form in the body: `binary_data_size`; 0 for a JSON tensor."""
    offset: int | None = None
    """Where the binary form starts in the body; None for a JSON tensor."""
    data: np.ndarray[Any, Any] | None = None
    """The values of a JSON tensor, of that shape; None for a binary one."""
    is_single_element: bool = False
    """Whether the bytes are one BYTES element without length prefix, as in a raw binary request."""
    parameters: Mapping[str, Any] = NOTHING
    """The tensor's `parameters`, as sent."""

    @property
    def count(self) -> int:
        """Number of elements: the product of the shape, 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def is_binary(self) -> bool:
        """Whether the tensor's bytes follow the header."""
        return self.data is None


class Header(Protocol):
    """The interface of the object that a format returns for a header."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The tensors, in the order of their bytes."""
        ...
