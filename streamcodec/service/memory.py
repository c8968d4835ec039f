"""Memory: what the tensors of a request take, by what its header says of them. Only reckoned here, never taken."""

from __future__ import annotations

from heapq import nlargest
from typing import Final

from streamcodec.engine.spec import TensorSpec
from streamcodec.engine.windows import Windows

_OFFSET_BYTES: Final = 8
"""For each element of BYTES, besides its own: where it starts."""

_OBJECT_BYTES: Final = 41
"""For each element of BYTES that came as JSON, besides its own and the array's: it is an object."""


def bytes_beside(spec: TensorSpec) -> int:
    """Return the memory that a tensor takes besides its bytes in the body."""
    if spec.data is None:
        return _OFFSET_BYTES * spec.count if spec.datatype.is_bytes else 0
    # Numbers are placed as others are, which is a copy.
    return spec.data.nbytes + (_OBJECT_BYTES * spec.count if spec.datatype.is_bytes else spec.data.nbytes)


def bytes_placed(tensors: tuple[TensorSpec, ...], windows: Windows | None) -> int:
    """Return the memory that tensors take for their bytes in the body.

    Of a model that takes windows, an input's are made when it is its turn. Then those of the input before it are still
    in use, and with two buffers one input more.
    """
    if windows is None:
        return sum(spec.nbytes for spec in tensors)
    most = windows.max_window_bytes * windows.buffer_count
    return sum(nlargest(1 + windows.buffer_count, (min(spec.nbytes, most) for spec in tensors)))
