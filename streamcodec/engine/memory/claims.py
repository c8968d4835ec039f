"""Claims: a check that the tensors of one message do not overlap in memory.

Two tensors in the same memory would both show the bytes of the second one, and nobody would notice. Memory that the
library allocates for one tensor cannot overlap. All other memory comes from the caller: arrays, or slabs of the
caller's own placements. This module keeps the address spans of that memory. It refuses a span that overlaps another
tensor's, before a byte is written. It also refuses memory that cannot be written to. Slabs of the same tensor may
share memory: windows do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from ctypes import addressof, c_char

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.spec import TensorSpec


class Claims:
    """The memory of one message's tensors. It is kept alive, so that no address is used again meanwhile."""

    def __init__(self) -> None:
        """Begin with nothing claimed."""
        # Spans of addresses, disjoint and in order, so that the starts are sorted and the ends are too.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._owners: list[TensorSpec] = []
        self._views: list[memoryview] = []

    def claim(self, spec: TensorSpec, buffer: memoryview) -> None:
        """Claim memory for a tensor.

        Raises:
            LocalProtocolError: it cannot be written to byte by byte, or it overlaps the memory of another tensor.
        """
        if buffer.format != "B" or buffer.ndim != 1 or not buffer.c_contiguous:
            msg = f"the buffer of a slab is a contiguous memoryview of format 'B', unlike {buffer!r}"
            raise LocalProtocolError(msg)
        if buffer.readonly:
            msg = f"the memory to receive tensor {spec.name!r} is read-only"
            raise LocalProtocolError(msg)
        if not buffer:
            return
        start = addressof(c_char.from_buffer(buffer))
        end = start + len(buffer)
        overlapping = slice(bisect_right(self._ends, start), bisect_left(self._starts, end))
        for other in self._owners[overlapping]:
            if other is not spec:
                msg = f"tensors {other.name!r} and {spec.name!r} were given memory that overlaps"
                raise LocalProtocolError(msg)
        first = min([start, *self._starts[overlapping]])
        last = max([end, *self._ends[overlapping]])
        if self._starts[overlapping] == [first] and self._ends[overlapping] == [last]:
            return  # the tensor has all of it already
        self._starts[overlapping] = [first]
        self._ends[overlapping] = [last]
        self._owners[overlapping] = [spec]
        self._views.append(buffer)
