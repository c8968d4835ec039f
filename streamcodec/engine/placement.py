"""Placement: whose memory a tensor's bytes go to.

The caller decides, once per tensor, when the header is known and before any byte of the tensor is taken: a `place`
callable gets the `TensorSpec` and returns a `Placement`. The decoder then asks the placement for its *slabs*, one after
the other: a slab is a run of consecutive tensor bytes (the buffer to fill) together with the array that shows them, and
is reported by an event of its own. A tensor placed whole has one slab.

Windows of whole rows are a placement with many slabs, which gets control back between two of them. Where slabs share
memory, a slab says that the decoder *must wait* after it: it then wants no data until `next_event` was called again
after the slab's event, on both faces alike.

Small tensors may be placed a little ahead of their turn, so that one read can fill several.

This room knows memory, and neither where bytes come from nor what they mean. BYTES tensors do not come here: their
elements are objects, and are received whole. Other placements stand beside it, in rooms of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import addressof, c_char
from typing import Any, Final, Protocol

import numpy as np

from streamcodec.engine.errors import LocalProtocolError, OutOfMemoryError
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""

_LITTLE_BYTES: Final = 4 << 10

_first_byte = c_char.from_buffer


@record()
class Slab:
    """Memory for a run of consecutive bytes of one tensor."""

    buffer: memoryview
    """The bytes to fill: writable, format `B`, C-contiguous; empty only for a tensor without elements."""
    array: np.ndarray[Any, Any] | None
    """The same memory as values; None if nobody is to see them."""
    row: int | None = None
    """Of windows, the first row; None for a tensor that is placed whole."""
    must_wait: bool = False
    """Whether the decoder must not go on before `next_event` has been called again after this slab's event."""
    is_new: bool = False
    """Whether nobody else has this memory; if so, it is not held against what other tensors were given."""


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


@record(eq=True, kw_only=False)
class NewArray:
    """A new array for each tensor: writable, its first byte on a 64-byte boundary."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield one slab of new memory; values that came as JSON are in such memory already."""
        if spec.data is not None:
            yield Slab(buffer=byte_view(spec.data), array=spec.data, is_new=True)
            return
        memory = aligned_bytes(placed_bytes(spec))
        array: np.ndarray[Any, Any] = np.ndarray(spec.shape, spec.datatype.dtype, memory)
        yield Slab(buffer=memory.data, array=array, is_new=True)


@record(kw_only=False)
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


def placed_bytes(spec: TensorSpec) -> int:
    """Return the bytes that a tensor needs where it is placed, whichever way it comes."""
    return spec.nbytes if spec.data is None else spec.data.nbytes


def aligned_bytes(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return uninitialised memory as a uint8 array of shape [nbytes] on a 64-byte boundary.

    Raises:
        RemoteProtocolError: `out-of-memory`, status 503.
    """
    try:
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    except MemoryError:
        raise _out_of_memory(nbytes) from None
    start = -address_of(memory) % ALIGNMENT
    return memory[start : start + nbytes]


def address_of(memory: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """Return the address of a writable uint8 array that is not empty.

    This is the quickest of the ways. `__array_interface__` ends the process where there is no memory for its answer.
    """
    return addressof(_first_byte(memory.data))


def scratch_bytes(nbytes: int) -> memoryview:
    """Return memory for what is looked at and dropped.

    Raises:
        RemoteProtocolError: `out-of-memory`, status 503.
    """
    if nbytes <= _LITTLE_BYTES:
        return memoryview(bytearray(nbytes))  # which is zeroed, and still the quickest for little
    try:
        return uninitialised_bytes(nbytes)
    except MemoryError:
        raise _out_of_memory(nbytes) from None


def uninitialised_bytes(nbytes: int) -> memoryview:
    """Return memory that is not zeroed: 64 KiB take 6 microseconds, and 70 if they are.

    Raises:
        MemoryError: there is none.
    """
    return np.empty(nbytes, np.uint8).data


def _out_of_memory(nbytes: int) -> OutOfMemoryError:
    return OutOfMemoryError(f"the message needs {nbytes} bytes of memory at once, which cannot be had here")


def byte_view(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of a C-contiguous array as bytes, whatever its dtype and shape."""
    try:
        return array.data.cast("B")
    except (TypeError, ValueError):  # without elements, or of a dtype that buffers have no word for, as bfloat16
        return np.ndarray(array.nbytes, np.uint8, array).data
