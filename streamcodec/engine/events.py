"""Events: what a decoder reports, in the order of the message.

First one `HeaderReceived`, then one `TensorReceived` for each tensor in the order of the header (JSON tensors in their
places between binary ones), then one `EndOfMessage`. A tensor that is placed in windows has one `WindowReceived` for
each of them instead, and one that is discarded has none. `NEED_DATA` stands for "nothing yet".
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.record import record
from streamcodec.engine.spec import Header, TensorSpec

HeaderT = TypeVar("HeaderT", bound=Header)


class _NeedData(Enum):
    NEED_DATA = "NEED_DATA"

    def __repr__(self) -> str:
        return self.name


NEED_DATA: Final = _NeedData.NEED_DATA
"""Returned by `next_event` when the next event needs bytes that have not come yet."""

NeedData = Literal[_NeedData.NEED_DATA]
"""The type of `NEED_DATA`."""


class _NeedTurn(Enum):
    NEED_TURN = "NEED_TURN"

    def __repr__(self) -> str:
        return self.name


NEED_TURN: Final = _NeedTurn.NEED_TURN
"""Returned by `next_event` of a *paced* source: work is left that needs no more bytes. Let others have their turn, call
`work()`, which does a bounded piece of it, and ask again."""

NeedTurn = Literal[_NeedTurn.NEED_TURN]
"""The type of `NEED_TURN`."""


@record()
class HeaderReceived(Generic[HeaderT]):
    """The JSON header has come and is valid; no memory has been taken yet for tensors."""

    header: HeaderT
    """All that the message says of itself."""


@record()
class TensorReceived:
    """All bytes of one tensor are in place."""

    spec: TensorSpec
    """What the header said of it."""
    values: np.ndarray[Any, Any] | Elements
    """What has come: `Elements` where BYTES came in binary, else the array."""

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Its values, of the spec's shape; object dtype with `bytes` elements for BYTES.

        Those objects are made when this is first asked for, then it is always the same array.
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
    """What the header said of the whole tensor."""
    array: np.ndarray[Any, Any]
    """The rows, of shape `(rows, *spec.shape[1:])`; of shape `()` for a scalar."""
    row: int
    """Index of the first of them."""

    @property
    def is_last(self) -> bool:
        """Whether the tensor ends with this window."""
        return not self.spec.shape or self.row + len(self.array) == self.spec.shape[0]


@record(eq=True)
class EndOfMessage:
    """The message is complete; any further byte is not part of it."""

    nbytes: int
    """Length of the body: header and tensors; with the envelope, if the format has one around them."""
