"""Pool: large blocks of memory, which are reused when no array uses them any more.

New memory from the system costs more than a copy, because each page is zeroed at the first access. So it is worth
keeping blocks. The danger is a caller that keeps an array longer than expected. So no caller has to say when an array
is no longer needed. Each tensor *leases* a block. The lease is the base of the tensor's array, and of each view of it.
When the last of these arrays is deleted, the interpreter calls the lease's `__del__`, which returns the block to the
pool. A block is not reused, and not overwritten, as long as an array of it exists.

`__del__` may run at any time, in any thread, within any allocation of memory. So there are no locks. Each change of the
kept blocks is a single operation of a dict, which is atomic. The bound on the kept bytes needs no counter: a thread
first adds its block, then computes the sum, then drops the oldest blocks until the sum is within the bound. The last
thread to compute the sum sees all added blocks. So two threads at once may drop more blocks than necessary, but they
never keep more than is allowed.

A server that counts its memory takes idle blocks from the pool before a request has to wait (`Pool.trim`). A block in
use does not belong to the pool. It is counted, at its full size, with the request that uses it. If an array is kept,
the block is counted with the owner of that array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from streamcodec.engine.arguments import checked_integer
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.placement import Block, NewArray, Slab, address_of, aligned_bytes, placed_bytes
from streamcodec.engine.spec import TensorSpec

_NEW_ARRAY: Final = NewArray()

_MAX_WASTE: Final = 4
"""A block may be larger than its tensor by at most one part in this number: a quarter."""


class Pool:
    """Arrays whose memory is reused when no reference to them is left.

    They are usual arrays: writable, and on a 64-byte boundary. The caller may keep them or pass them on. One pool
    serves any number of decoders, in any number of threads. JSON tensors have new arrays, which are filled while the
    text is read. To copy them into a block would only cost more.

    Example:
        >>> import numpy as np
        >>> from streamcodec import Tensor, encode_request, request_decoder
        >>> message = encode_request([Tensor(name="x", array=np.ones((1000, 1000), "<f4"))])
        >>> pool = Pool()
        >>> decoder = request_decoder(header_length=message.header_length, body_length=None, place=lambda spec: pool)
        >>> sum(decoder.feed(buffer) for buffer in message.buffers) == message.body_length
        True
        >>> header, tensor = decoder.next_event(), decoder.next_event()
        >>> pool.idle_bytes
        0
        >>> del decoder, tensor
        >>> pool.idle_bytes
        4000000
    """

    def __init__(self, *, max_idle_bytes: int = 256 << 20, min_bytes: int = 256 << 10) -> None:
        """Begin with nothing.

        Args:
            max_idle_bytes: most bytes to keep in unused blocks.
            min_bytes: bytes of the smallest tensor for which a block is used; for smaller ones a new array costs less.

        Raises:
            LocalProtocolError: a number is negative, or no integer.
        """
        least = min(checked_integer("max_idle_bytes", max_idle_bytes), checked_integer("min_bytes", min_bytes))
        if least < 0:
            msg = f"a pool's numbers of bytes are not negative, unlike {least}"
            raise LocalProtocolError(msg)
        self.max_idle_bytes = max_idle_bytes
        self._shelf = _Shelf(max_idle_bytes)
        self._min_bytes = min_bytes

    @property
    def idle_bytes(self) -> int:
        """Bytes of the unused blocks in the pool."""
        return self._shelf.nbytes

    @property
    def reused_bytes(self) -> int:
        """Bytes of blocks that are in use again. All their memory is allocated, even if few bytes of a tensor came."""
        return self._shelf.reused_bytes

    def trim(self, max_idle_bytes: int = 0) -> None:
        """Release idle blocks to the system; the blocks that were unused for the longest time are first.

        Blocks in use are not changed, and may be kept when they are returned. Any thread may call this.

        Args:
            max_idle_bytes: most bytes of idle blocks that stay in the pool.
        """
        self._shelf.drop(max_idle_bytes)

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield one slab of memory, used before or new."""
        nbytes = placed_bytes(spec)
        if nbytes < max(self._min_bytes, 1) or spec.data is not None:  # its values are in an array already
            yield from _NEW_ARRAY.slabs(spec)
            return
        memory = np.asarray(_Lease(self._shelf, self._shelf.take(nbytes), nbytes))
        array: np.ndarray[Any, Any] = np.ndarray(spec.shape, spec.datatype.dtype, memory)
        yield Slab(buffer=memory.data, array=array, is_new=True)


class _Shelf:
    """The idle blocks, in the order in which they were returned."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: dict[int, Block] = {}
        self._reused: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in list(self._blocks.values()))

    @property
    def reused_bytes(self) -> int:
        return sum(list(self._reused.values()))

    def take(self, nbytes: int) -> Block:
        """Return an idle block of `nbytes` bytes or a few more, or else a new block."""
        most = nbytes + nbytes // _MAX_WASTE
        fitting = [block for block in list(self._blocks.values()) if nbytes <= block.nbytes <= most]
        for block in sorted(fitting, key=lambda block: block.nbytes):
            if self._blocks.pop(id(block), None) is not None:  # else another thread was quicker
                self._reused[id(block)] = block.nbytes
                return block
        return aligned_bytes(nbytes)

    def put(self, block: Block) -> None:
        """Keep a block, and drop others for it."""
        self._reused.pop(id(block), None)
        if block.nbytes > self._max_bytes:
            return
        try:
            self._blocks[id(block)] = block
            self.drop(self._max_bytes)
        except MemoryError:  # no caller could catch the error; dropping this block may help
            self._blocks.pop(id(block), None)

    def drop(self, max_bytes: int) -> None:
        """Drop the oldest blocks until no more is kept."""
        if not self._blocks:
            return
        excess = self.nbytes - max_bytes
        for other in list(self._blocks.values()):
            if excess <= 0:
                break
            if self._blocks.pop(id(other), None) is not None:
                excess -= other.nbytes


class _Lease:
    """Owns a block as long as arrays of it exist.

    It has the `__array_interface__` of numpy. An array that is made from it has it as its base. The block itself is not
    accessible.
    """

    __slots__ = ("__array_interface__", "_block", "_shelf")

    def __init__(self, shelf: _Shelf, block: Block, nbytes: int) -> None:
        self._shelf = shelf
        self._block = block
        data = address_of(block), False  # to be written to
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": data}

    def __del__(self) -> None:
        self._shelf.put(self._block)
