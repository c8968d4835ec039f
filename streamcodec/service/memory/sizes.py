"""Memory: computes the memory that the tensors of a request will take, from its header. It takes no memory itself."""

from __future__ import annotations

from heapq import nlargest
from typing import Final

from streamcodec.engine.elements.prefixes import PREFIX_BYTES
from streamcodec.engine.memory.windows import Windows
from streamcodec.engine.spec import TensorSpec

_OFFSET_BYTES: Final = 8
"""For each element of BYTES, besides its own bytes: the offset where it starts."""

_REFERENCE_BYTES: Final = 8
"""For each element of an object array."""

_OBJECT_BYTES: Final = 48
"""For each object of `bytes`, besides its content: 33, rounded up to 16 with the content."""

_LEAST_OBJECT_BYTES: Final = 2
"""Shorter content needs no new object: Python has one for each byte, and one for none."""

_TEXT_BYTES: Final = 41
"""For each element of BYTES that came as JSON, besides its own bytes and those of the array: a Python object."""


def bytes_beside(spec: TensorSpec) -> int:
    """Return the memory that a tensor takes besides its bytes in the body, before it is an array of objects."""
    if spec.data is None:
        if spec.is_single_element:  # it is copied to an object
            return spec.nbytes
        return _OFFSET_BYTES * spec.count if spec.datatype.is_bytes else 0
    # JSON numbers are parsed into an array and then copied into their placement.
    return spec.data.nbytes + (_TEXT_BYTES * spec.count if spec.datatype.is_bytes else spec.data.nbytes)


def bytes_of_objects(tensors: tuple[TensorSpec, ...]) -> int:
    """Return the memory that the elements of BYTES take as Python objects, if they came in binary form."""
    nbytes = 0
    for spec in tensors:
        if spec.is_binary and spec.datatype.is_bytes and not spec.is_single_element:
            content = spec.nbytes - PREFIX_BYTES * spec.count
            objects = min(spec.count, content // _LEAST_OBJECT_BYTES)
            nbytes += _REFERENCE_BYTES * spec.count + _OBJECT_BYTES * objects + content
    return nbytes


def bytes_taken(offset: int, held_bytes: int, tensors: tuple[TensorSpec, ...] | None) -> int:
    """Return how much memory a request really takes now, whatever it has announced.

    Args:
        offset: bytes of the body that have been decoded.
        held_bytes: bytes that the decoder holds of a JSON header.
        tensors: of its JSON header; None if that has not arrived.
    """
    if tensors is None:
        return max(offset, held_bytes)
    from_json = sum(bytes_beside(spec) for spec in tensors if not spec.is_binary)
    # The offsets of BYTES are found while the elements arrive. In the worst case all elements are empty.
    return offset + from_json + min(2 * offset, sum(bytes_beside(spec) for spec in tensors if spec.is_binary))


def bytes_placed(tensors: tuple[TensorSpec, ...], windows: Windows | None) -> int:
    """Return the memory that tensors take for their bytes in the body.

    A model that takes windows gets the windows of one input after the other. When the windows of an input are made,
    those of the input before it are still in use, and with two buffers those of one input more.
    """
    if windows is None:
        return sum(spec.nbytes for spec in tensors)
    most = windows.max_window_bytes * windows.buffer_count
    return sum(nlargest(1 + windows.buffer_count, (min(spec.nbytes, most) for spec in tensors)))
