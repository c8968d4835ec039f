"""Memory maps: a tensor that goes into a file of numpy's own format, and is never in memory as a whole.

numpy does all the work with the file. The system writes pages back when it likes; whoever opens the file meanwhile sees
the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from streamcodec.core.model import TensorSpec
from streamcodec.core.placement import Slab, byte_view
from streamcodec.core.record import record


class _Path(Protocol):
    def __fspath__(self) -> str: ...


@record(kw_only=False)
class MemoryMap:
    """A new `.npy` file, which `numpy.load(path, mmap_mode="r")` reads; one that is there already is overwritten.

    The event's array is a view of the file's memory. BF16, which the format does not know, is stored as `uint16`. The
    file is made when the tensor's turn comes; if the message turns out to be wrong later, it stays, and what has not
    come is zeros. It is sparse, so a disk that runs full is only noticed in the middle of it, by an error of the
    system. Each tensor needs a path of its own.
    """

    path: str | _Path
    """Where the file is to be."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield one slab, the memory of the file.

        Raises:
            OSError: the file cannot be made.
        """
        dtype = np.dtype("<u2") if spec.datatype.name == "BF16" else spec.datatype.dtype
        mapped: np.ndarray[Any, Any] = np.lib.format.open_memmap(self.path, "w+", dtype, spec.shape)
        yield Slab(buffer=byte_view(mapped), array=mapped.view(spec.datatype.dtype), is_new=True)
