"""Pool: large blocks of memory that are used again, each when the last array that shows it has gone.

Memory fresh from the system costs more than a copy: each page is zeroed when it is first touched. So blocks are worth
keeping; the danger is a caller who keeps an array longer than expected. Here nobody has to say when an array is done
with. Each tensor *leases* a block: the lease is the base of the tensor's array, hence of every view of it, and when the
last of them dies, the interpreter calls the lease's `__del__`, which puts the block back. An array that is kept keeps
its block, and is never overwritten.

`__del__` may run anywhere, in any thread, in the middle of whatever allocates memory. So there are no locks, and every
change of what is kept is a single operation of a dict, which is atomic. The bound on what is kept needs no counter: who
puts a block back first adds it, then looks at the sum, and drops the oldest blocks until it fits. The last one to look
has seen all that was added; so two at once may drop more than they had to, and never keep more than is allowed.

Who counts memory asks a pool for its idle blocks before anybody waits (`Pool.trim`). A block that is used is not the
pool's: it is counted with what it is used for, whatever it is larger than that, and where an array is kept, with what
keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.placement import NewArray, Slab, address_of, aligned_bytes, placed_bytes
from streamcodec.engine.spec import TensorSpec

Block = np.ndarray[Any, np.dtype[np.uint8]]

_NEW_ARRAY: Final = NewArray()

_MAX_WASTE: Final = 4
"""A block is used for a tensor that it is larger than by at most a quarter, one part in so many."""


class Pool:
    """Arrays in memory that is used again when nobody has them any more.

    To whoever gets them they are arrays like any others: writable, on a 64-byte boundary, to be kept or passed on at
    will. One pool serves any number of decoders, in any number of threads. Tensors that came as JSON have new arrays,
    which were filled while their text was read; to copy them into a block would only cost more.

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
            max_idle_bytes: of memory that is kept while nobody uses it.
            min_bytes: of a tensor; for smaller ones a new array costs less.

        Raises:
            LocalProtocolError: a number is negative.
        """
        if min(max_idle_bytes, min_bytes) < 0:
            msg = f"a pool's numbers of bytes are not negative, unlike {min(max_idle_bytes, min_bytes)}"
            raise LocalProtocolError(msg)
        self.max_idle_bytes = max_idle_bytes
        self._shelf = _Shelf(max_idle_bytes)
        self._min_bytes = min_bytes

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept and that nobody uses."""
        return self._shelf.nbytes

    @property
    def reused_bytes(self) -> int:
        """Bytes of blocks that are in use, and not for the first time: each is there as a whole, whatever has come."""
        return self._shelf.reused_bytes

    def trim(self, max_idle_bytes: int = 0) -> None:
        """Give idle blocks back to the system, those first that have not been used for longest.

        Blocks that are in use are left alone, and may be kept when they come back. May be called by any thread.

        Args:
            max_idle_bytes: so much may stay.
        """
        self._shelf.drop(max_idle_bytes)

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield one slab of memory, used before or new."""
        nbytes = placed_bytes(spec)
        if nbytes < max(self._min_bytes, 1) or spec.data is not None:  # which is in memory of its own already
            yield from _NEW_ARRAY.slabs(spec)
            return
        memory = np.asarray(_Lease(self._shelf, self._shelf.take(nbytes), nbytes))
        array: np.ndarray[Any, Any] = np.ndarray(spec.shape, spec.datatype.dtype, memory)
        yield Slab(buffer=memory.data, array=array, is_new=True)


class _Shelf:
    """Blocks that nobody uses, the one that was put back last at the end."""

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
        """Return a block of so many bytes or a few more."""
        fitting = (block for block in list(self._blocks.values()) if self._fits(block, nbytes))
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
        except MemoryError:  # nobody could be told; the memory of this very block may help
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

    def _fits(self, block: Block, nbytes: int) -> bool:
        return nbytes <= block.nbytes <= nbytes + nbytes // _MAX_WASTE


class _Lease:
    """Owns a block for as long as there are arrays of it.

    To numpy it is an object with memory, by the protocol of `__array_interface__`; arrays made of it have it as their
    base, and nothing shows what is behind it.
    """

    __slots__ = ("__array_interface__", "_block", "_shelf")

    def __init__(self, shelf: _Shelf, block: Block, nbytes: int) -> None:
        self._shelf = shelf
        self._block = block
        data = address_of(block), False  # to be written to
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": data}

    def __del__(self) -> None:
        self._shelf.put(self._block)
