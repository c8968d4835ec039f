"""Scratch: memory for one read, which connections share. A connection has some only while it holds bytes.

A thousand idle connections would have 72 MiB of it, where one after the other can use the same 72 KiB. Those also stay
in the processor's cache. No connection sees another's bytes: it looks only at those that it was told have arrived.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Final

from streamcodec.engine.memory.blocks import new_block

SCRATCH_BYTES: Final = 72 << 10
"""Size of one read while the bytes may belong to several things. A tensor of 64 KiB, which is a usual size, has room
with its head and its JSON header; two reads took half as long again. More is needed only if heads may be larger."""

LONG_SCRATCH_BYTES: Final = 136 << 10
"""The same after long JSON, of which nothing is a tensor: to parse it whole takes a third of the time. Tensors of this
size are copied less if the network writes into them."""

NOTHING: Final = memoryview(b"")
"""The scratch memory of a connection that has none."""

_MOST_IDLE: Final = 16
"""Blocks of one size that are kept for the next reads: one for each thread that reads at the same time."""

_idle: Final[defaultdict[int, deque[memoryview]]] = defaultdict(lambda: deque(maxlen=_MOST_IDLE))
"""The blocks that nobody uses, by their size."""


def borrow(nbytes: int) -> memoryview:
    """Return scratch memory; its contents are whatever was there.

    Raises:
        MemoryError: there is none.
    """
    try:
        return _idle[nbytes].pop()
    except IndexError:
        return new_block(nbytes)


def give_back(block: memoryview) -> None:
    """Keep what `borrow` returned for the next reads; beyond a few blocks of its size, one is freed."""
    _idle[len(block)].append(block)
