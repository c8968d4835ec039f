"""Placement: whose memory a tensor's bytes go to.

The caller decides, once per tensor, when its turn comes and before any byte of it is taken: a `place` callable gets the
`TensorSpec` and returns a `Placement`. The decoder then asks the placement for its *slabs*, one after the other: a slab
is a run of consecutive tensor bytes (the buffer to fill) together with the array that shows them, and is reported by an
event of its own. A tensor placed whole has one slab.

Room for what comes: windows of whole rows are a placement with many slabs, which gets control back between two of them.
Where slabs share memory, the decoder must in addition not go on before the last slab's event has been taken: it will
then want no data (`needs_data`) until `next_event` was called, on both faces alike.

This room knows memory, and neither where bytes come from nor what they mean. BYTES tensors do not come here: their
elements are objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import addressof, c_char
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamcodec.core.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.core.model import TensorSpec

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slab:
    """Memory for a run of consecutive bytes of one tensor."""

    buffer: memoryview
    """The bytes to fill: writable, format `B`, C-contiguous; empty only for a tensor without elements."""
    array: np.ndarray[Any, Any]
    """The same memory as values."""


class Placement(Protocol):
    """Where one tensor goes."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the memory for the tensor, in order; the iterator is resumed when the last slab is full.

        Raises:
            LocalProtocolError: the memory does not fit the tensor.
        """
        ...


Place = Callable[[TensorSpec], Placement]
"""Decides for one tensor. May raise `RemoteProtocolError` to refuse the message."""


@dataclass(frozen=True, slots=True)
class NewArray:
    """A new array for each tensor: writable, its first byte on a 64-byte boundary."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield one slab of new memory."""
        memory = aligned_bytes(spec.count * spec.datatype.itemsize)
        array: np.ndarray[Any, Any] = np.ndarray(spec.shape, spec.datatype.dtype, memory)
        yield Slab(buffer=memory.data, array=array)


@dataclass(frozen=True, slots=True, eq=False)
class Into:
    """The caller's own array, of exactly the tensor's shape and dtype."""

    array: np.ndarray[Any, Any]
    """C-contiguous, writable, little-endian."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the array's memory.

        Raises:
            LocalProtocolError: shape or dtype differ from the tensor's, or the array is read-only or not C-contiguous.
        """
        array, dtype = self.array, spec.datatype.dtype
        if array.shape != spec.shape or array.dtype != dtype:
            msg = f"array is {array.dtype} {list(array.shape)}, the tensor is {dtype} {list(spec.shape)}"
            raise LocalProtocolError(msg)
        if not (array.flags.c_contiguous and array.flags.writeable):
            msg = "the array to receive a tensor must be C-contiguous and writable"
            raise LocalProtocolError(msg)
        yield Slab(buffer=byte_view(array), array=array)


_NEW_ARRAY = NewArray()


def new_array(spec: TensorSpec) -> Placement:  # noqa: ARG001 - the signature of `Place`
    """Place every tensor in a new array: the default."""
    return _NEW_ARRAY


def aligned_bytes(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return uninitialised memory as a uint8 array of shape [nbytes] on a 64-byte boundary.

    Raises:
        RemoteProtocolError: `out-of-memory`, status 503.
    """
    try:
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    except MemoryError:
        msg = f"the message needs {nbytes} bytes of memory at once, which cannot be had here"
        raise RemoteProtocolError(msg, code=ErrorCode.OUT_OF_MEMORY, status_hint=503) from None
    # The quickest of the ways to ask an array for its address.
    start = -addressof(c_char.from_buffer(memory.data)) % ALIGNMENT
    return memory[start : start + nbytes]


def byte_view(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of a C-contiguous array as bytes, whatever its dtype and shape."""
    return np.asarray(array).reshape(-1).view(np.uint8).data
