"""Cuts: a stream arrives in pieces of two sizes, a few times; many more executions find more than many more cuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat


def piece_sizes(first: int, piece: int, whole: int, *, count: int) -> Iterator[int]:
    """Yield the sizes of pieces, without end.

    Args:
        first: bytes of the first piece; 0 leaves it out.
        piece: bytes of each of the next pieces; 0 is all that there is.
        whole: bytes of all that there is, which is the size of the last piece, too.
        count: how many pieces there are between the first one and the last one.
    """
    if first:
        yield first
    yield from repeat(piece or whole, count)
    yield from repeat(whole)


def cut(stream: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Yield a stream in pieces of these sizes. None is empty; the last one is as long as is left."""
    rest = memoryview(stream)
    for size in sizes:
        if not rest:
            return
        yield bytes(rest[:size])
        rest = rest[size:]
