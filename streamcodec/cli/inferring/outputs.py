"""Outputs: the files of a model's answer, for `infer`.

A large output is written to its file as it comes, so it needs no memory of its own. The others are written when the
answer has come. All files get their names only then: an answer that breaks off leaves none.

No file is mapped: a full disk is an error and not the end of the process, and Windows neither renames nor removes files
that are mapped or open.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import numpy as np

from streamcodec.cli.files import keep, savable, unfinished_folder
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import TensorReceived
from streamcodec.engine.memory.memory_map import npy_header
from streamcodec.engine.memory.placement import Placement, Slab, new_array, scratch_bytes
from streamcodec.engine.memory.reserving import reserve_bytes
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.npy.writing import encode

_WRITTEN_BYTES: Final = 1 << 20
"""Smaller outputs are received into memory, which costs less than a file; larger ones are written in such pieces."""


def path_of(name: str, folder: Path) -> Path:
    """Return the file of an output. The server chooses the names; encoded, they cannot lead to another folder."""
    return folder / f"{quote(name, safe=' ')}.npy"


class OutputFiles:
    """The files of one call, or of the last one of several."""

    def __init__(self, unfinished: Path, options: argparse.Namespace) -> None:
        """Begin without files.

        Args:
            unfinished: a folder for files that are not complete.
            options: of the command line.
        """
        self._unfinished = unfinished
        self._options = options
        self._received: dict[str, _OutputFile] = {}
        self._numbers = count()

    @classmethod
    @contextmanager
    def opened(cls, options: argparse.Namespace) -> Iterator[Self]:
        """Prepare a folder for unfinished files, and remove it at the end."""
        with unfinished_folder(options.output_dir) as folder:
            files = cls(folder, options)
            try:
                yield files
            finally:
                files.close()

    def place(self, spec: TensorSpec) -> Placement:
        """Return the place of an output: its file, or memory."""
        if spec.data is not None or spec.datatype.is_bytes or spec.nbytes < _WRITTEN_BYTES:
            return new_array(spec)
        if spec.name in self._received:  # of a call before this one
            self._received[spec.name].close()
        file = self._received[spec.name] = _OutputFile(spec, self._new_path(), self._options.output_dir)
        return file

    def write(self, name: str, tensor: TensorReceived) -> Path:
        """Write an output; return its file.

        Raises:
            LocalProtocolError: a .npy file cannot hold it.
            FileExistsError: the file exists, and must not be replaced.
            OSError: it cannot be written.
        """
        path = path_of(name, self._options.output_dir)
        received = self._received.get(name)
        if received is not None and received.spec is tensor.spec:
            received.close()
            unfinished = received.path
        else:  # it came as JSON or as BYTES, or it is small
            unfinished = self._new_path()
            with unfinished.open("wb") as file:
                file.writelines(encode(savable(tensor, self._options.max_padded_bytes)).buffers)
        keep(unfinished, path, replaces=self._options.force)
        return path

    def close(self) -> None:
        """Close all files, so that they can be removed."""
        for file in self._received.values():
            file.close()

    def _new_path(self) -> Path:
        """Return an unused path. The file of an output keeps its unfinished name, too, until the folder is removed."""
        return self._unfinished / f"{next(self._numbers)}.npy"


class _OutputFile:
    """A file that an output is written to, piece by piece. The event's array has the last piece, which nobody reads."""

    def __init__(self, spec: TensorSpec, path: Path, folder: Path) -> None:
        self.spec = spec
        self.path = path
        self._folder = folder
        self._file: FileIO | None = None

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Make the file, with room for the whole output, and yield the same memory for each piece.

        Raises:
            LocalProtocolError: the disk has no room, or something else is wrong with it.
        """
        try:
            header = npy_header(spec)
            file = self._file = FileIO(self.path, "x")
            reserve_bytes(file.fileno(), len(header) + spec.nbytes)
            file.seek(0)
            file.write(header)
            memory = scratch_bytes(_WRITTEN_BYTES)
            for start in range(0, spec.nbytes, _WRITTEN_BYTES):
                piece = memory[: spec.nbytes - start]
                is_last = start + len(piece) == spec.nbytes
                yield Slab(buffer=piece, array=np.asarray(piece) if is_last else None, is_new=True)
                file.write(piece)
        except OSError as error:
            raise LocalProtocolError(
                f"output {spec.name}, {spec.nbytes} bytes, cannot be written to {self._folder}: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Close the file, so that it can be renamed or removed."""
        if self._file is not None:
            self._file.close()
