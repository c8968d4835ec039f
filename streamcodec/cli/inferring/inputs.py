"""Inputs: the arrays that a command sends, from files or from chance. `infer`, `encode` and `bench` share this.

Arrays of .npy files are memory-mapped, so a tensor may be larger than memory. Those of archives, of .safetensors files
and of standard input are read into memory, and so are images, which Pillow decodes (the extra `image`).
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from streamcodec.cli.arguments import by_name
from streamcodec.cli.inferring.making import random_inputs
from streamcodec.client import Client
from streamcodec.engine.errors import LocalProtocolError, ProtocolError, shown
from streamcodec.engine.memory.placement import new_array
from streamcodec.engine.memory.windows import chosen
from streamcodec.formats.safetensors import decoder
from streamcodec.transports.files import decode

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]
T = TypeVar("T")

_TENSORS: Final = ".safetensors"
_ARCHIVE: Final = ".npz"
_IMAGES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def add_inputs(group: argparse._ArgumentGroup) -> None:
    """Add the option for inputs from files."""
    group.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        type=_input,
        metavar="NAME=FILE.npy",
        help="an input; give one for each; - as the file stands for the next array of .npy on standard input; "
        "NAME=FILE.safetensors or NAME=FILE.npz is the tensor of that name, and the file alone is all of them; an "
        "image, as NAME=FILE.png, is UINT8 [height, width, channels], with 1 channel if it is grey, and 3 if not",
    )


def given_inputs(options: argparse.Namespace) -> Inputs:
    """Return the inputs from files."""
    if options.shapes and not getattr(options, "is_random", True):  # `bench` always makes the others
        options.fail("--shape is for random inputs: add --random")
    return by_name(options, "--input", chain.from_iterable(options.inputs))


def made_inputs(options: argparse.Namespace, client: Client) -> Inputs:
    """Return random inputs, and those from files in their place.

    Raises:
        LocalProtocolError: the options do not fit the model.
        ServerError: the server gives no metadata of the model; so are the other errors of the client.
    """
    given = given_inputs(options)
    shapes = by_name(options, "--shape", ((each.name, each) for each in options.shapes))
    metadata = client.model_metadata(options.model, options.model_version)
    made = random_inputs(metadata, shapes, size=options.size, seed=options.seed, without=given)
    if not (made or given):
        raise LocalProtocolError("the model declares no inputs; give them with --shape, as --shape x:FP32:1,16")
    return {**made, **given}


def _input(text: str) -> list[tuple[str, Array]]:
    """Read `NAME=FILE`, or the name of a file that has names for its tensors."""
    name, separator, path = text.partition("=")
    if not separator and (read := _NAMED.get(Path(text).suffix)) is not None:
        return list(_read(read, text, None).items())
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy, nor FILE{_TENSORS} or FILE{_ARCHIVE}")
    if path == "-":
        return [(name, _read(_read_standard_input, path))]
    if (read := _NAMED.get(Path(path).suffix)) is not None:
        return [(name, _read(read, path, name)[name])]
    return [(name, _read(_read_image if Path(path).suffix.lower() in _IMAGES else _map, path))]


def _read(read: Callable[..., T], path: str, *others: object) -> T:
    """Read a file; an error names the file."""
    try:
        return read(path, *others)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, ProtocolError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {path!r}: {error}") from None


def _map(path: str) -> Array:
    """Map a .npy file into memory; the array stays on disk until it is sent."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        kinds = ", ".join((".npy", _ARCHIVE, _TENSORS, *_IMAGES))
        raise ValueError(f"it holds no numbers or texts of a kind that is read: {kinds}") from None
    if isinstance(array, np.ndarray):
        return array
    array.close()
    raise ValueError(f"it is an archive of several arrays; its name must end with {_ARCHIVE}")


def _read_standard_input(_: str) -> Array:
    """Read the next array of .npy from standard input."""
    return np.lib.format.read_array(_Pipe(), allow_pickle=False)  # type: ignore[arg-type]  # it needs no more


class _Pipe:
    """Standard input without its file descriptor, in which numpy would search."""

    def read(self, nbytes: int) -> bytes:
        return sys.stdin.buffer.read(nbytes)


def _read_image(path: str) -> Array:
    """Read the pixels of an image, upright."""
    try:
        from PIL import Image, ImageOps  # noqa: PLC0415 - an extra
    except ImportError:
        raise ValueError("images need Pillow: pip install 'streamcodec[image]'") from None
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            pixels = np.asarray(upright if upright.mode == "L" else upright.convert("RGB"))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from None
    return np.atleast_3d(pixels)


def _read_tensors(path: str, name: str | None) -> Inputs:
    """Read the tensors of a safetensors file, or the one of a name."""
    place = new_array if name is None else chosen({name})
    with Path(path).open("rb") as file:
        received = decode(file, decoder(place=place))
    _check_has(name, [spec.name for spec in received.header.tensors])
    return received.arrays


def _read_archive(path: str, name: str | None) -> Inputs:
    """Read the arrays of a .npz file, or the one of a name."""
    with Path(path).open("rb") as file:  # numpy would not close a file that is no archive
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it is one array, not an archive; its name must end with .npy")  # noqa: TRY004 - the file
        _check_has(name, archive.files)
        return {each: archive[each] for each in (archive.files if name is None else [name])}


def _check_has(name: str | None, names: list[str]) -> None:
    if name is not None and name not in names:
        raise ValueError(f"it has no tensor {name!r}, only {shown(', '.join(names))}")


_NAMED: Final = {_TENSORS: _read_tensors, _ARCHIVE: _read_archive}
"""What reads the kinds of files that have names for their tensors."""
