"""Placement: the choice of the memory for a tensor's bytes.

The caller decides once per tensor, after the header is known and before any byte of the tensor is taken. A `place`
callable gets the `TensorSpec` and returns a `Placement`. The decoder then takes the *slabs* of the placement, one after
the other. A slab is the buffer for a range of consecutive tensor bytes, together with the array that shows them. An
event reports each slab. A tensor that is placed as a whole has one slab.

Windows of whole rows are a placement with many slabs, which gets control back between two slabs. If slabs share memory,
a slab says that the decoder *must wait* after it. Then the decoder takes no data, through either interface, until
`next_event` has been called again after the event of the slab.

Small tensors may be placed a little ahead of their turn, so that one read can fill several.

This module knows memory. It does not know where bytes come from, or what they mean. BYTES tensors are not placed: they
are received as a whole. Other placements have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import addressof, c_char
from typing import Any, Final, Protocol

import numpy as np

from streamcodec.engine.errors import LocalProtocolError, OutOfMemoryError, kind_of
from streamcodec.engine.limits import check_addressable
from streamcodec.engine.memory.blocks import make_blocks_by
from streamcodec.engine.record import constructor, record
from streamcodec.engine.spec import TensorSpec

ALIGNMENT = 64
"""Alignment of new memory in bytes: the size of a cache line and of the widest vector register."""

_LITTLE_BYTES: Final = 4 << 10

_MUCH_BYTES: Final = 1 << 20
"""Up to this number of bytes, nobody asks whether the machine can address them."""

Block = np.ndarray[Any, np.dtype[np.uint8]]
"""Memory, as an array of bytes."""

_FREED_ONCE_BYTES: Final = 1 << 20

_BYTE: Final = np.dtype(np.uint8)
_first_byte = c_char.from_buffer


@record()
class Slab:
    """Memory for a run of consecutive bytes of one tensor."""

    buffer: memoryview
    """The bytes to fill: writable, format `B`, C-contiguous; empty only for a tensor without elements."""
    array: np.ndarray[Any, Any] | None
    """The same memory as values; None if no event shows them."""
    row: int | None = None
    """Index of the first row of a window; None for a tensor that is placed as a whole."""
    must_wait: bool = False
    """Whether the decoder must not go on before `next_event` has been called again after this slab's event."""
    is_new: bool = False
    """Whether the memory was just allocated for this slab. Then it is not checked for overlaps with other tensors."""


_slab: Final = constructor(Slab)


class Placement(Protocol):
    """The place of one tensor."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the memory for the tensor, in order; the iterator is resumed when the last slab is full.

        Raises:
            LocalProtocolError: the memory does not fit the tensor.
        """
        ...


Place = Callable[[TensorSpec], Placement]
"""Returns the placement of one tensor. It may raise `RemoteProtocolError` to refuse the message."""


@record(eq=True, kw_only=False)
class NewArray:
    """A new array for each tensor: writable, its first byte on a 64-byte boundary."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Return one slab of new memory. JSON values are in new memory already, and that is used."""
        if spec.data is not None:
            return iter((_slab(buffer=byte_view(spec.data), array=spec.data, is_new=True),))
        block, view, start = aligned_block(spec.nbytes)
        array: np.ndarray[Any, Any] = np.ndarray(spec.shape, spec.datatype.dtype, block, start)
        return iter((_slab(buffer=view[start : start + spec.nbytes], array=array, is_new=True),))


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
        given: object = array
        if not isinstance(given, np.ndarray):
            msg = f"Into(array) fills a numpy array, not {kind_of(given)}"
            raise LocalProtocolError(msg)
        if array.shape != spec.shape or array.dtype != dtype:
            msg = f"array is {array.dtype} {list(array.shape)}, the tensor is {dtype} {list(spec.shape)}"
            raise LocalProtocolError(msg)
        if not (array.flags.c_contiguous and array.flags.writeable):
            msg = "the array to receive a tensor must be C-contiguous and writable"
            raise LocalProtocolError(msg)
        yield Slab(buffer=byte_view(array), array=array)


def into_bytes(spec: TensorSpec, memory: memoryview) -> Into:
    """Return the place of a tensor in bytes of the caller's, as many as it has, and aligned for its elements."""
    array: np.ndarray[Any, Any] = np.ndarray(spec.shape, spec.datatype.dtype, memory)
    return Into(array)


def check_place(place: object) -> None:
    """Refuse what cannot place tensors.

    Raises:
        LocalProtocolError: it is no function.
    """
    if not callable(place):
        advice = "placement" if hasattr(place, "slabs") else "placements[spec.name]"
        msg = f"place is a function that returns a placement, as lambda spec: {advice}, not {kind_of(place)}"
        raise LocalProtocolError(msg)


def check_placement(placement: object) -> None:
    """Refuse what a `place` function may return by mistake.

    Raises:
        LocalProtocolError: it is no placement.
    """
    if isinstance(placement, type) or not callable(getattr(placement, "slabs", None)):
        kind = f"the class {placement.__name__}" if isinstance(placement, type) else kind_of(placement)
        msg = f"place returned {kind}, not a placement, such as NewArray(), Into(array) or Discard()"
        raise LocalProtocolError(msg)


def check_slab(slab: object) -> None:
    """Refuse what a placement may yield by mistake.

    Raises:
        LocalProtocolError: it is no slab of memory.
    """
    if not isinstance(slab, Slab):
        msg = f"slabs() of a placement yields Slab objects, not {kind_of(slab)}"
        raise LocalProtocolError(msg)
    buffer: object = slab.buffer
    if not isinstance(buffer, memoryview):
        msg = f"the buffer of a slab is a memoryview of bytes, not {kind_of(buffer)}; memoryview(x).cast('B') is one"
        raise LocalProtocolError(msg)


_NEW_ARRAY = NewArray()


def new_array(spec: TensorSpec) -> Placement:  # noqa: ARG001 - the signature of `Place`
    """Place every tensor in a new array: the default."""
    return _NEW_ARRAY


def placed_bytes(spec: TensorSpec) -> int:
    """Return the bytes of memory that a tensor needs, both for binary and for JSON tensors."""
    return spec.nbytes if spec.data is None else spec.data.nbytes


def aligned_bytes(nbytes: int) -> Block:
    """Return uninitialised memory as a uint8 array of shape [nbytes] on a 64-byte boundary.

    Raises:
        LimitExceededError: more than the machine can address.
        RemoteProtocolError: `out-of-memory`, status 503.
    """
    block, _, start = aligned_block(nbytes)
    return block[start : start + nbytes]


def _keep_freed_memory() -> None:
    """Have glibc keep up to 2 MiB of freed memory for the next tensors, as it does once it has freed a large block.

    Until then it returns all above 128 KiB to the system, so that tensors of 64 KiB take new pages each time: half of
    the CPU time of their requests. It learns from the first block that it frees by `munmap` (mallopt(3),
    M_MMAP_THRESHOLD), which may never come. Nothing is written to this block, so it takes no page.
    """
    with suppress(MemoryError):
        np.empty(_FREED_ONCE_BYTES, _BYTE)


_keep_freed_memory()


def aligned_block(nbytes: int) -> tuple[Block, memoryview, int]:
    """Return uninitialised memory with room for `nbytes` bytes from a 64-byte boundary on; raises as `aligned_bytes`.

    Returns:
        The memory, a view of it, and where in it the boundary is.
    """
    if nbytes > _MUCH_BYTES:
        check_addressable(nbytes + ALIGNMENT, limit="max_tensor_bytes")
    try:
        block = np.empty(nbytes + ALIGNMENT, _BYTE)
    except MemoryError:
        raise _out_of_memory(nbytes) from None
    view = block.data
    return block, view, -addressof(_first_byte(view)) % ALIGNMENT


def address_of(memory: Block) -> int:
    """Return the address of a writable uint8 array that is not empty.

    This is the quickest way. `__array_interface__` ends the process if there is no memory for its result.
    """
    return addressof(_first_byte(memory.data))


def scratch_bytes(nbytes: int, *, limit: str = "max_header_bytes") -> memoryview:
    """Return memory for bytes that are used for a short time and dropped.

    Args:
        nbytes: how many.
        limit: name of the field of `Limits` that bounds them.

    Raises:
        LimitExceededError: more than the machine can address.
        RemoteProtocolError: `out-of-memory`, status 503.
    """
    if nbytes <= _LITTLE_BYTES:
        return memoryview(bytearray(nbytes))  # the memory is zeroed, and this is still the quickest way for small sizes
    check_addressable(nbytes, limit=limit)
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


make_blocks_by(uninitialised_bytes)


def zeros(nbytes: int) -> memoryview:
    """Return read-only zeros that take one byte of memory, where only their number matters."""
    return np.broadcast_to(np.uint8(0), nbytes).data


def _out_of_memory(nbytes: int) -> OutOfMemoryError:
    return OutOfMemoryError(f"the message needs {nbytes} bytes of memory at once, which cannot be had here")


def masked() -> LocalProtocolError:
    """Return the error for a masked array, whose `data` are an array of their own."""
    msg = "values are a masked array, and no format has a place for its mask: give array.filled(value)"
    return LocalProtocolError(msg)


def byte_view(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of a C-contiguous array as bytes, whatever its dtype and shape."""
    try:
        return array.data.cast("B")
    except AttributeError:
        raise masked() from None
    except (
        TypeError,
        ValueError,
    ):  # an array without elements, or of a dtype that the buffer protocol does not know, such as bfloat16
        return np.ndarray(array.nbytes, np.uint8, array).data
