"""Blocks: memory for bytes on their way, for rooms that do without numpy.

Python alone gives memory that it has filled with zeros, so that each of its pages is in use. numpy gives memory as it
is: what nobody writes to takes no page, as most of what a half-sent request has borrowed. So once `placement` has been
imported, and numpy with it, blocks come from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Maker = Callable[[int], memoryview]
"""Returns memory of a number of bytes, whatever is in it; raises `MemoryError`."""


def _zeroed(nbytes: int) -> memoryview:
    return memoryview(bytearray(nbytes))


_makers: Final[list[Maker]] = [_zeroed]


def new_block(nbytes: int) -> memoryview:
    """Return memory for bytes; its contents are whatever was there.

    Raises:
        MemoryError: there is none.
    """
    return _makers[-1](nbytes)


def make_blocks_by(maker: Maker) -> None:
    """Have all blocks from now on made in a better way."""
    _makers.append(maker)
