"""The model of a header: what a message says of itself, typed and immutable.

These are plain data. `header.py` makes them from JSON text and vouches for what they say; a raw binary request has one
that was deduced. Everybody else reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from streamcodec.core.datatypes import Datatype
from streamcodec.core.record import record

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@record()
class TensorSpec:
    """What a header says of one tensor."""

    name: str
    """Unique within its message."""
    datatype: Datatype
    """One of the specification's 14."""
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


@record(eq=True)
class RequestedOutput:
    """One entry of a request's `outputs`."""

    name: str
    """Name of the output."""
    binary_data: bool | None = None
    """The explicit wish for a form; None if there is none."""
    parameters: Mapping[str, Any] = NOTHING
    """The entry's `parameters`, as sent."""


@record()
class RequestHeader:
    """The header of an inference request."""

    tensors: tuple[TensorSpec, ...]
    """The `inputs`, in order."""
    outputs: tuple[RequestedOutput, ...] | None = None
    """The outputs asked for; None means all that the model has."""
    id: str | None = None
    """To be echoed in the response."""
    parameters: Mapping[str, Any] = NOTHING
    """The request's `parameters`, as sent."""

    def wants_binary(self, output: RequestedOutput | None) -> bool:
        """Tell in which form an output is to be answered.

        Specification: an explicit `binary_data` wins, else `binary_data_output` of the request, else JSON.

        Args:
            output: the entry that asks for it, or None if the request lists no outputs.
        """
        if output is not None and output.binary_data is not None:
            return output.binary_data
        return bool(self.parameters.get("binary_data_output"))


@record()
class ResponseHeader:
    """The header of an inference response."""

    tensors: tuple[TensorSpec, ...]
    """The `outputs`, in order."""
    model_name: str | None = None
    """Name of the model that answered."""
    model_version: str | None = None
    """Version of the model that answered."""
    id: str | None = None
    """The request's id."""
    parameters: Mapping[str, Any] = NOTHING
    """The response's `parameters`, as sent."""
