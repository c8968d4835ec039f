"""The model of a header: its content as typed, immutable objects.

These are plain data. `header.py` makes them from JSON text, and is responsible for their values. The header of a raw
binary request is deduced. All other modules only read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from streamcodec.engine.events import EndOfMessage, HeaderReceived, TensorReceived, WindowReceived
from streamcodec.engine.record import record
from streamcodec.engine.spec import NOTHING, TensorSpec

PLAIN_TYPES: Final = frozenset({str, int, bool})
"""Types of parameters that nobody can change, and that JSON always has a form for."""


@record(eq=True)
class RequestedOutput:
    """One entry of a request's `outputs`."""

    name: str
    """Name of the output."""
    binary_data: bool | None = True
    """Whether the client wants the binary form; None if it does not say so. In a received header, this is what was
    sent."""
    parameters: Mapping[str, Any] = NOTHING
    """The entry's `parameters`, as sent. If `binary_data` is not None, it replaces the parameter of that name."""


@record()
class RequestHeader:
    """The header of an inference request."""

    tensors: tuple[TensorSpec, ...]
    """The `inputs`, in order."""
    outputs: tuple[RequestedOutput, ...] | None = None
    """The requested outputs; None means all outputs of the model."""
    id: str | None = None
    """To be echoed in the response."""
    parameters: Mapping[str, Any] = NOTHING
    """The request's `parameters`, as sent."""

    def wants_binary(self, output: RequestedOutput | None) -> bool:
        """Tell whether an output is to be sent in binary.

        Specification: an explicit `binary_data` wins, else `binary_data_output` of the request, else JSON.

        Args:
            output: the entry that requests it; None if the request lists no outputs.
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


MessageT = TypeVar("MessageT", bound=RequestHeader | ResponseHeader)

Event = HeaderReceived[RequestHeader] | HeaderReceived[ResponseHeader] | TensorReceived | WindowReceived | EndOfMessage
"""Everything that a decoder of requests or responses reports."""
