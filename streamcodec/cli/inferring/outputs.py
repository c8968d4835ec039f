"""Outputs: the files of a model's answer, for `infer`.

A large output is received straight into its file, so it needs no memory of its own. The others are written when the
answer has come. All files get their names only then: an answer that breaks off leaves none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import numpy as np

from streamcodec.cli.files import keep, savable, unfinished_folder
from streamcodec.engine.events import TensorReceived
from streamcodec.engine.memory.memory_map import MemoryMap
from streamcodec.engine.memory.placement import Placement, Slab, new_array
from streamcodec.engine.spec import TensorSpec

_MAPPED_BYTES: Final = 1 << 20
"""Smaller outputs are received into memory, which costs less than a file."""


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
        self._received: dict[str, Path] = {}
        self._numbers = count()

    @classmethod
    @contextmanager
    def opened(cls, options: argparse.Namespace) -> Iterator[Self]:
        """Prepare a folder for unfinished files, and remove it at the end."""
        with unfinished_folder(options.output_dir) as folder:
            yield cls(folder, options)

    def place(self, spec: TensorSpec) -> Placement:
        """Return the place of an output: its file, or memory."""
        if spec.data is not None or spec.datatype.is_bytes or spec.nbytes < _MAPPED_BYTES:
            return new_array(spec)
        return _FileOrMemory(self._received.setdefault(spec.name, self._new_file()))

    def write(self, name: str, tensor: TensorReceived) -> Path:
        """Write an output; return its file.

        Raises:
            LocalProtocolError: a .npy file cannot hold it.
            FileExistsError: the file exists, and must not be replaced.
            OSError: it cannot be written.
        """
        path = path_of(name, self._options.output_dir)
        file = self._received.get(name)
        if file is None or not file.exists():
            file = self._new_file()
            with file.open("wb") as stream:
                np.save(stream, savable(tensor, self._options.max_padded_bytes))
        keep(file, path, replaces=self._options.force)
        return path

    def _new_file(self) -> Path:
        """Return an unused path. The file of an output keeps its unfinished name, too, until the folder is removed."""
        return self._unfinished / f"{next(self._numbers)}.npy"


class _FileOrMemory:
    """A new file, or new memory if the file cannot be made: then the output can still be shown why, and others kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the memory for the tensor."""
        try:
            slabs = MemoryMap(str(self._path)).slabs(spec)
            slab = next(slabs)
        except OSError:
            yield from new_array(spec).slabs(spec)
        else:
            yield slab
            yield from slabs
