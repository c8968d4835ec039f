"""Memory maps: a tensor that goes into a file of numpy's own format, and is never in memory as a whole.

numpy does all the work with the file. The system writes pages back when it likes; whoever opens the file meanwhile sees
the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from streamcodec.engine.placement import Slab, byte_view
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec


class _Path(Protocol):
    def __fspath__(self) -> str: ...


@record(kw_only=False)
class MemoryMap:
    """A new `.npy` file, which `numpy.load(path, mmap_mode="r")` reads; one that is there already is overwritten.

    The event's array is a view of the file's memory. BF16, which the format does not know, is stored as `uint16`. The
    file is made when the tensor's turn comes; if the message turns out to be wrong later, it stays, and what has not
    come is zeros. Each tensor needs a path of its own.
    """

    path: str | _Path
    """Where the file is to be."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield one slab, the memory of the file.

        Raises:
            OSError: the file cannot be made, or the disk has no room for it.
        """
        dtype = np.dtype("<u2") if spec.datatype.name == "BF16" else spec.datatype.dtype
        mapped: np.ndarray[Any, Any] = np.lib.format.open_memmap(self.path, "w+", dtype, spec.shape)
        _reserve(self.path)
        yield Slab(buffer=byte_view(mapped), array=mapped.view(spec.datatype.dtype), is_new=True)


def _reserve(path: str | _Path) -> None:
    """Have the disk keep room for all of a file, which so far is only as long as if it were there.

    A write to a file that is mapped cannot fail; where the disk is full, the system ends the process.
    """
    if not hasattr(os, "posix_fallocate"):  # of macOS and Windows
        return
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
