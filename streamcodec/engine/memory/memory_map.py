"""Memory maps: a tensor is written to a file in numpy's format, and is never in memory as a whole.

The system writes pages to the disk at any time, and a program that maps the file meanwhile sees the same bytes. Until
the tensor is complete, the file begins with a zero, where numpy's format has its mark: no program takes half a tensor
for a whole one. A temporary name would not do, because Windows renames no file that is mapped.

A map that can be *resumed* survives the end of the process and of the machine. Beside the file there is a *record*, a
small file that says how many bytes of the tensor are on the disk for certain. The tensor is received in pieces. After
each piece comes first the data (`msync`), and then the record: a new file with the number, synced, that replaces the
old one. So at any moment the record is one of two whole records, and the data that it counts are on the disk. A new
file begins with a record of 0, before the file is made, so an old record never counts the bytes of a new file. The
pages of a piece are given back to the system when they are on the disk. So a tensor of any size takes the memory of one
piece.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO, FileIO
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np

from streamcodec.engine.limits import check_addressable
from streamcodec.engine.memory.placement import Slab, byte_view
from streamcodec.engine.memory.reserving import reserve_bytes
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec

_MOST_HEADER_BYTES: Final = 16 << 10
"""Of the file's own header, which is mapped too; numpy allows 10,000 bytes."""

_PIECE_BYTES: Final = 4 << 20
"""Bytes between two records: the most that come twice after a crash. To sync them takes a disk some 10 to 50 ms."""

_RECORD_BYTES: Final = 32
"""More than a record has: a number of at most 19 digits, and the end of its line."""


class _Path(Protocol):
    def __fspath__(self) -> str: ...


@record(kw_only=False)
class MemoryMap:
    """A new `.npy` file, which `numpy.load(path, mmap_mode="r")` reads; an existing file is overwritten.

    The event's array is a view of the file's memory. BF16 is stored as `uint16`, because the format does not know it.
    The file is made when it is the tensor's turn. If the message ends before the tensor does, the file stays, and numpy
    refuses it. Each tensor needs a path of its own.

    With `resume`, a file of the same dtype and shape is continued if its record says so. The record is the file
    `path.received`. One path then belongs to one message, until `forget` is called: two messages with the same header
    cannot be told apart.
    """

    path: str | _Path
    """Path of the file."""
    resume: bool = False
    """Whether to keep a record of what has come, and to continue where it ends; see `Decoder.resume_at`."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the memory of the file: one slab, or with `resume` one for each piece.

        Raises:
            LimitExceededError: the tensor is larger than the machine can address; no file is made.
            OSError: the file cannot be made, or the disk has no room for it; nothing is left.
        """
        check_addressable(spec.nbytes + _MOST_HEADER_BYTES, limit="max_tensor_bytes", offset=spec.offset)
        if self.resume:
            yield from self._pieces(spec)
            return
        mapped = self._new_file(spec)
        yield Slab(buffer=byte_view(mapped), array=mapped.view(spec.datatype.dtype), is_new=True)
        _mark(mapped)

    def kept_bytes(self, spec: TensorSpec) -> int:
        """Return how many bytes of a tensor are in the file for certain, from its first one on.

        A message continues at `spec.offset + kept_bytes(spec)` of the first tensor that is not whole.

        Returns:
            The number; 0 if there is no file with a record, or if the file has another dtype or shape.
        """
        try:
            with FileIO(self._record) as record:
                kept = int(record.read(_RECORD_BYTES))
            header = npy_header(spec)
            with FileIO(os.fspath(self.path)) as file:
                found = file.read(len(header))
                fits = found[1:] == header[1:] and os.fstat(file.fileno()).st_size == len(header) + spec.nbytes
        except (OSError, ValueError):
            return 0
        return kept if fits and 0 <= kept <= spec.nbytes else 0

    def forget(self) -> None:
        """Remove the record: the message is complete, or is not wanted any more. The next one begins the file anew."""
        with suppress(FileNotFoundError):
            os.unlink(self._record)  # noqa: PTH108 - the engine does without pathlib, whose import takes 18 ms

    @property
    def _record(self) -> str:
        return f"{os.fspath(self.path)}.received"

    def _new_file(self, spec: TensorSpec) -> np.memmap[Any, Any]:
        """Make the file, whose mark is missing; remove it if the disk has no room for it."""
        header = npy_header(spec)
        with FileIO(os.fspath(self.path), "w") as file:
            try:
                reserve_bytes(file.fileno(), len(header) + spec.nbytes)
                file.seek(0)
                file.write(bytes(1) + header[1:])
            except OSError:
                file.close()
                os.unlink(self.path)  # noqa: PTH108 - see `forget`
                raise
        return self._mapped(spec)

    def _mapped(self, spec: TensorSpec) -> np.memmap[Any, Any]:
        """Map the file, from its header on."""
        return np.memmap(self.path, _stored_dtype(spec), "r+", len(npy_header(spec)), spec.shape)

    def _pieces(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield what the file holds already as one piece, and then the other pieces."""
        kept = self.kept_bytes(spec)
        if kept:
            mapped = self._mapped(spec)
        else:
            _write_record(self._record, 0)
            mapped = self._new_file(spec)
        view = byte_view(mapped)
        starts = range(kept, max(len(view), 1), _PIECE_BYTES)
        for start, end in pairwise([*([0] if kept else []), *starts, len(view)]):
            array = mapped.view(spec.datatype.dtype) if end == len(view) else None
            yield Slab(buffer=view[start:end], array=array, is_new=start >= kept)  # what is new cannot be passed over
            if end > kept:
                _write_out(mapped, start)
                _write_record(self._record, end)
        _mark(mapped)
        mapped.flush()


def _write_record(path: str, nbytes: int) -> None:
    """Replace the record; the bytes that it counts must be on the disk by now."""
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        os.write(descriptor, b"%d\n" % nbytes)
        os.fsync(descriptor)
    except OSError:  # a full disk
        os.close(descriptor)
        os.unlink(new)  # noqa: PTH108 - see `forget`
        raise
    os.close(descriptor)
    os.replace(new, path)  # noqa: PTH105 - see `forget`
    if hasattr(os, "O_DIRECTORY"):  # not on Windows, where a folder cannot be opened
        folder = os.path.dirname(path) or os.curdir  # noqa: PTH120 - see `forget`
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)  # the names of its files, too
        finally:
            os.close(descriptor)


def _stored_dtype(spec: TensorSpec) -> np.dtype[Any]:
    return np.dtype("<u2") if spec.datatype.name == "BF16" else spec.datatype.dtype


def npy_header(spec: TensorSpec) -> bytes:
    """Return what stands before the values, as numpy writes it."""
    dtype = np.lib.format.dtype_to_descr(_stored_dtype(spec))
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": spec.shape})
    return file.getvalue()


def _mark(mapped: np.ndarray[Any, Any]) -> None:
    """Say that the file is complete."""
    pages: mmap.mmap = mapped.base  # type: ignore[assignment] # of a file that was just mapped
    pages[0] = np.lib.format.MAGIC_PREFIX[0]


def _write_out(mapped: np.ndarray[Any, Any], start: int) -> None:
    """Write the memory from byte `start` on to the disk, and give its pages back; they are read again when needed."""
    pages: mmap.mmap = mapped.base  # type: ignore[assignment] # of a file that was just mapped
    pages.flush()
    if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        header = len(pages) - mapped.nbytes
        pages.madvise(mmap.MADV_DONTNEED, (header + start) // mmap.PAGESIZE * mmap.PAGESIZE)
