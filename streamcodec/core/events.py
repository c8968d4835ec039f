"""Events: what a decoder reports, in the order of the message.

First one `HeaderReceived`, then one `TensorReceived` for each tensor in the order of the header (JSON tensors in their
places between binary ones), then one `EndOfMessage`. `NEED_DATA` stands for "nothing yet".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np

from streamcodec.core.model import RequestHeader, ResponseHeader, TensorSpec

HeaderT = TypeVar("HeaderT", bound=RequestHeader | ResponseHeader)


class _NeedData(Enum):
    NEED_DATA = "NEED_DATA"

    def __repr__(self) -> str:
        return self.name


NEED_DATA: Final = _NeedData.NEED_DATA
"""Returned by `next_event` when the next event needs bytes that have not come yet."""

NeedData = Literal[_NeedData.NEED_DATA]
"""The type of `NEED_DATA`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeaderReceived(Generic[HeaderT]):
    """The JSON header has come and is valid; no memory has been taken yet for tensors."""

    header: HeaderT
    """All that the message says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorReceived:
    """All bytes of one tensor are in place."""

    spec: TensorSpec
    """What the header said of it."""
    array: np.ndarray[Any, Any]
    """Its values, of the spec's shape; object dtype with `bytes` elements for BYTES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfMessage:
    """The message is complete; any further byte is not part of it."""

    nbytes: int
    """Length of the body: header and tensors."""


Event = HeaderReceived[RequestHeader] | HeaderReceived[ResponseHeader] | TensorReceived | EndOfMessage
"""Everything a decoder reports."""
