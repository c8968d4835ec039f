"""Receiving: what everything that takes bytes has in common, whether it makes arrays of them or not.

Decoders report more than this, in `events`, with numpy. HTTP and readers of frames pass on bytes that they do not look
into. They know this module only, so a program that forwards messages imports no numpy.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from streamcodec.engine.record import record

Buffer = bytes | bytearray | memoryview
"""The types that `feed` accepts."""

LONG_TARGET_BYTES: Final = 64 << 10
"""A target with more room than this is seldom filled by one read, so the next targets are not needed yet."""


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


@record(eq=True)
class EndOfMessage:
    """The message is complete; any further byte is not part of it."""

    nbytes: int
    """Length of the body in bytes: header and tensors, and the envelope around them if the format has one."""
