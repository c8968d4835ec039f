"""Arena: divides one memory into blocks, and uses them again.

Nobody has to say when a block is no longer needed, as with `engine.pool`. An array of a block has a lease as its base,
and so has each view of it. When the last of them is deleted, the lease gives the block back. It may be deleted at any
time, in any thread, also while this module works. So a lease takes no lock: it appends to a list, which is read later.
"""

from __future__ import annotations

import mmap
from collections import deque
from threading import Lock
from typing import Any, Final

import numpy as np

from streamcodec.formats.v2.lane import LANE_ALIGNMENT

Octets = np.ndarray[Any, np.dtype[np.uint8]]


class Arena:
    """One memory. Several threads may call its methods."""

    def __init__(self, memory: mmap.mmap) -> None:
        """Begin with all of the memory free."""
        self._octets: Octets = np.frombuffer(memory, np.uint8)
        self._address = int(self._octets.ctypes.data)
        self._lock = Lock()
        self._free: list[range] = [range(len(memory))]
        self._returned: deque[range] = deque()

    @property
    def free_bytes(self) -> int:
        """How many bytes no array uses."""
        with self._lock:
            self._collect()
            return sum(map(len, self._free))

    def take(self, nbytes: int) -> ArenaBlock | None:
        """Return a block of so many bytes, at a multiple of 64; None if there is no room in one piece."""
        size = max(-(-nbytes // LANE_ALIGNMENT), 1) * LANE_ALIGNMENT
        with self._lock:
            self._collect()
            for index, free in enumerate(self._free):
                if len(free) >= size:
                    self._free[index] = free[size:]
                    return self._block(free[:size], nbytes)
        return None

    def take_largest(self) -> ArenaBlock | None:
        """Return the largest free block; None if there is none."""
        with self._lock:
            self._collect()
            if not self._free:
                return None
            largest = max(self._free, key=len)
            self._free.remove(largest)
            return self._block(largest, len(largest))

    def offset_of(self, octets: Octets) -> int | None:
        """Return where bytes are in this memory; None if they are elsewhere."""
        offset = int(octets.ctypes.data) - self._address
        return offset if 0 <= offset <= len(self._octets) - octets.nbytes else None

    def _block(self, place: range, nbytes: int) -> ArenaBlock:
        return ArenaBlock(self._octets, place, nbytes, self._returned)

    def _collect(self) -> None:
        """Add the blocks that have been given back, and join those that touch."""
        while self._returned:
            self._free.append(self._returned.popleft())
        joined: list[range] = []
        for free in sorted(filter(len, self._free), key=lambda free: free.start):
            if joined and joined[-1].stop == free.start:
                joined[-1] = range(joined[-1].start, free.stop)
            else:
                joined.append(free)
        self._free = joined


class ArenaBlock:
    """A part of an arena, as long as this object or an array of it exists.

    Attributes:
        octets: its bytes.
        offset: where it begins in the memory.
    """

    def __init__(self, memory: Octets, place: range, nbytes: int, returned: deque[range]) -> None:
        """Take a part that is free."""
        self.offset: int = place.start
        self._lease = _ArenaLease(memory, place, nbytes, returned)
        self.octets: Octets = np.asarray(self._lease)

    def keep(self, nbytes: int) -> None:
        """Give back all but the first bytes; nobody uses the others any more."""
        self._lease.keep(-(-nbytes // LANE_ALIGNMENT) * LANE_ALIGNMENT)


class _ArenaLease:
    """Owns a part of an arena as long as arrays of it exist."""

    __slots__ = ("__array_interface__", "_memory", "_place", "_returned")

    def __init__(self, memory: Octets, place: range, nbytes: int, returned: deque[range]) -> None:
        self._memory: Final = memory  # which stays mapped
        self._place = place
        self._returned: Final = returned
        data = int(memory.ctypes.data) + place.start, False
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": data}

    def keep(self, nbytes: int) -> None:
        self._place, rest = self._place[:nbytes], self._place[nbytes:]
        self._returned.append(rest)

    def __del__(self) -> None:
        self._returned.append(self._place)
