"""Events: what a decoder reports, in the order of the message.

First comes one `HeaderReceived`. Then comes one `TensorReceived` for each tensor, JSON or binary, in the order of the
header. The last event is `EndOfMessage`. A tensor that is placed in windows has one `WindowReceived` for each window
instead. A tensor that is discarded has no event. `NEED_DATA` means that no event is ready yet.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.receiving import NEED_DATA, NEED_TURN, EndOfMessage, NeedData, NeedTurn
from streamcodec.engine.record import record
from streamcodec.engine.spec import Header, TensorSpec

__all__ = [
    "NEED_DATA",
    "NEED_TURN",
    "EndOfMessage",
    "Event",
    "HeaderReceived",
    "HeaderT",
    "NeedData",
    "NeedTurn",
    "TensorReceived",
    "WindowReceived",
]

HeaderT = TypeVar("HeaderT", bound=Header)


@record()
class HeaderReceived(Generic[HeaderT]):
    """The JSON header has come and is valid; no memory has been taken yet for tensors."""

    header: HeaderT
    """The parsed header."""


@record()
class TensorReceived:
    """All bytes of one tensor are in place."""

    spec: TensorSpec
    """The description of the tensor in the header."""
    values: np.ndarray[Any, Any] | Elements
    """The values: `Elements` for BYTES in binary form, else the array."""

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Its values, of the spec's shape; object dtype with `bytes` elements for BYTES.

        The objects are made at the first access. Later accesses return the same array.
        """
        return self.values.array if isinstance(self.values, Elements) else self.values

    @property
    def elements(self) -> Elements:
        """The values of a BYTES tensor without an object for each; copied from the objects if it came as JSON.

        Raises:
            LocalProtocolError: the tensor is not BYTES.
        """
        if not self.spec.datatype.is_bytes:
            msg = f"a tensor of {self.spec.datatype.name} has no elements of their own lengths"
            raise LocalProtocolError(msg)
        return self.values if isinstance(self.values, Elements) else Elements(self.values)


@record()
class WindowReceived:
    """All bytes of some rows of a tensor are in place; `Windows` says how long the memory is yours."""

    spec: TensorSpec
    """The description of the whole tensor in the header."""
    array: np.ndarray[Any, Any]
    """The rows, of shape `(rows, *spec.shape[1:])`; of shape `()` for a scalar."""
    row: int
    """Index of the first of them."""

    @property
    def is_last(self) -> bool:
        """Whether the tensor ends with this window."""
        return not self.spec.shape or self.row + len(self.array) == self.spec.shape[0]


Event = HeaderReceived[Any] | TensorReceived | WindowReceived | EndOfMessage
"""Everything that a decoder reports, whatever the header of its format is."""
