"""Memory maps: a tensor is written to a file in numpy's format, and is never in memory as a whole.

numpy does all the work with the file. The system writes pages to the disk at any time. A program that opens the file
meanwhile sees the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np

from streamcodec.engine.limits import check_addressable
from streamcodec.engine.placement import Slab, byte_view
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec

_MOST_HEADER_BYTES: Final = 16 << 10
"""Of the file's own header, which is mapped too; numpy allows 10,000 bytes."""


class _Path(Protocol):
    def __fspath__(self) -> str: ...


@record(kw_only=False)
class MemoryMap:
    """A new `.npy` file, which `numpy.load(path, mmap_mode="r")` reads; an existing file is overwritten.

    The event's array is a view of the file's memory. BF16 is stored as `uint16`, because the format does not know it.
    The file is made when it is the tensor's turn. If the message is refused later, the file stays, and the missing
    bytes are zeros. Each tensor needs a path of its own.
    """

    path: str | _Path
    """Path of the file."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield one slab, the memory of the file.

        Raises:
            LimitExceededError: the tensor is larger than the machine can address; no file is made.
            OSError: the file cannot be made, or the disk has no room for it.
        """
        check_addressable(spec.nbytes + _MOST_HEADER_BYTES, limit="max_tensor_bytes", offset=spec.offset)
        dtype = np.dtype("<u2") if spec.datatype.name == "BF16" else spec.datatype.dtype
        mapped: np.ndarray[Any, Any] = np.lib.format.open_memmap(self.path, "w+", dtype, spec.shape)
        _reserve(self.path)
        yield Slab(buffer=byte_view(mapped), array=mapped.view(spec.datatype.dtype), is_new=True)


def _reserve(path: str | _Path) -> None:
    """Reserve disk space for the whole file; up to now only its length is set.

    A write to mapped memory cannot report an error: if the disk is full, the system ends the process.
    """
    if not hasattr(os, "posix_fallocate"):  # of macOS and Windows
        return
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
