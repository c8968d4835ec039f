"""Claims: which memory the tensors of one message have been given by placements that are not our own.

Two tensors in one memory would come out as two views of the second one's bytes, and nobody would know. Memory that is
made for a tensor cannot be another's; of all else (the caller's arrays, placements of the caller's own making) this
room keeps the spans, and refuses one that reaches into another tensor's before a byte is written. It also makes sure
that the memory can be written to at all. Slabs of the same tensor may share memory: windows do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from ctypes import addressof, c_char

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.spec import TensorSpec


class Claims:
    """The memory of one message's tensors. Keeps it alive, so that no address can come to mean something else."""

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
            LocalProtocolError: it cannot be written to byte by byte, or some of it is another tensor's already.
        """
        if buffer.format != "B" or buffer.ndim != 1 or not buffer.c_contiguous:
            msg = f"the buffer of a slab is a contiguous memoryview of format 'B', unlike {buffer!r}"
            raise LocalProtocolError(msg)
        if buffer.readonly:
            msg = f"the memory to receive tensor {spec.name!r} is read-only"
            raise LocalProtocolError(msg)
        if buffer:
            start = addressof(c_char.from_buffer(buffer))
            self._claim_span(spec, buffer, start, start + len(buffer))

    def _claim_span(self, spec: TensorSpec, buffer: memoryview, start: int, end: int) -> None:
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
