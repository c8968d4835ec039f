"""Making: random inputs for a model, by what its metadata say. `bench`, `encode` and `infer --random` share this.

Metadata may leave the sizes of dimensions free. The user gives them by name with `--shape`; `--size` is for all others.
A model may also declare no inputs. Then `--shape` gives the datatypes, too.

Values are small: floats from 0 to 1, integers from 0 to 99, texts of 8 characters. Large integers would be invalid for
models that use them as indices. The same seed gives the same values.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from streamcodec.cli.arguments import count, number
from streamcodec.engine.datatypes import DATATYPES, Datatype
from streamcodec.engine.errors import LocalProtocolError

Array = np.ndarray[Any, Any]

_MAX_BYTES: Final = 4 << 30
"""The most for one input: the sizes come from the server."""

_MAX_TEXTS: Final = 1 << 22
_TEXT_BYTES: Final = 8
_INTEGERS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of an input, from the command line or from metadata."""

    name: str
    """Of the input."""
    datatype: Datatype | None
    """None if the metadata say it."""
    sizes: tuple[int, ...]
    """-1 for a free dimension; only metadata have these."""


def add_making(group: argparse._ArgumentGroup) -> None:
    """Add the options about random inputs."""
    group.add_argument(
        "--shape",
        dest="shapes",
        action="append",
        default=[],
        type=shape,
        metavar="NAME:SHAPE",
        help="shape of a random input, as x:1,16; or with its datatype, as x:FP32:1,16, if the model declares no "
        "inputs; give one for each",
    )
    group.add_argument(
        "--size",
        type=count,
        default=1,
        metavar="COUNT",
        help="size of each free dimension of the other random inputs (default: %(default)s)",
    )
    group.add_argument("--seed", type=number, default=0, help="of the random values (default: %(default)s)")


def shape(text: str) -> Shape:
    """Read `NAME:SHAPE` or `NAME:DATATYPE:SHAPE`; a name may contain colons, and a shape may be empty."""
    name, separator, sizes = text.rpartition(":")
    rest, _, word = name.rpartition(":")
    datatype = DATATYPES.get(word) if rest else None
    name = name if datatype is None else rest
    try:
        found = tuple(number(size) for size in sizes.split(",") if sizes)
    except argparse.ArgumentTypeError:
        found = None
    if not (name and separator) or found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:SHAPE or NAME:DATATYPE:SHAPE, as x:1,16 or x:FP32:1,16")
    return Shape(name=name, datatype=datatype, sizes=found)


def random_inputs(
    metadata: Mapping[str, Any], shapes: Mapping[str, Shape], *, size: int, seed: int, without: Container[str] = ()
) -> dict[str, Array]:
    """Make random inputs; none, if the model declares none and no shapes are given.

    Args:
        metadata: of the model, from its server.
        shapes: for inputs with free dimensions, and of inputs that are not declared.
        size: of each free dimension without a shape.
        seed: of the values.
        without: names of inputs that are not wanted.

    Raises:
        LocalProtocolError: the metadata are invalid, a shape does not fit them, or an input would be too large.
    """
    declared = [each for each in _declared(metadata) if each.name not in without]
    known = {each.name for each in declared}
    others = [each for each in shapes.values() if each.name not in known]
    if declared and others:
        raise LocalProtocolError(f"no random input of the model is named {others[0].name!r}, as --shape says")
    generator = np.random.default_rng(seed)
    found = [_resolved(each, shapes.get(each.name), size) for each in declared or others]
    return {each.name: _values(generator, each) for each in found}


def _declared(metadata: Mapping[str, Any]) -> list[Shape]:
    """Read the inputs of a model's metadata; negative sizes are free dimensions."""
    try:
        return [
            Shape(
                name=str(entry["name"]),
                datatype=DATATYPES[entry["datatype"]],
                sizes=tuple(max(-1, int(size)) for size in entry["shape"]),
            )
            for entry in metadata.get("inputs") or ()
        ]
    except (KeyError, TypeError, ValueError):
        raise LocalProtocolError("the model's metadata are not as the V2 protocol describes them") from None


def _resolved(declared: Shape, given: Shape | None, size: int) -> Shape:
    """Return an input without free dimensions."""
    name = declared.name
    datatype = declared.datatype or (None if given is None else given.datatype)
    if datatype is None:
        raise LocalProtocolError(f"input {name!r} is not declared; give its datatype too, as --shape {name}:FP32:1,16")
    if given is None:
        sizes = tuple(size if each == -1 else each for each in declared.sizes)
    else:
        sizes = given.sizes
        fits = len(sizes) == len(declared.sizes) and all(
            free in {-1, own} for free, own in zip(declared.sizes, sizes, strict=True)
        )
        if not fits or given.datatype not in {None, datatype}:
            is_declared = f"{datatype.name} {list(declared.sizes)}"
            raise LocalProtocolError(f"--shape of input {name!r} does not fit its declaration, {is_declared}")
    nbytes, most = math.prod(sizes) * datatype.itemsize, _MAX_BYTES
    if datatype.is_bytes:
        most = _MAX_TEXTS * datatype.itemsize
    if nbytes > most:
        raise LocalProtocolError(f"input {name!r} would have the shape {list(sizes)}, which is too large to be random")
    return Shape(name=name, datatype=datatype, sizes=sizes)


def _values(generator: np.random.Generator, each: Shape) -> Array:
    datatype = each.datatype
    if datatype is None:
        raise LocalProtocolError(f"input {each.name!r} has no datatype")
    if datatype.is_bytes:
        return _texts(generator, each.sizes)
    if datatype.name == "BF16":  # its bits are the first half of FP32
        bits = generator.random(each.sizes, np.float32).view("<u4") >> 16
        return np.asarray(bits, "<u2").view(datatype.dtype)
    if datatype.kind == "f":
        return generator.random(each.sizes, np.float64 if datatype.name == "FP64" else np.float32).astype(
            datatype.dtype, copy=False
        )
    numbers = generator.integers(2 if datatype.kind == "b" else _INTEGERS, size=each.sizes, dtype=np.int8)
    return np.asarray(numbers, datatype.dtype)


def _texts(generator: np.random.Generator, sizes: tuple[int, ...]) -> Array:
    total = math.prod(sizes)
    letters = generator.integers(ord("a"), ord("z") + 1, total * _TEXT_BYTES, np.uint8).tobytes()
    texts = np.empty(total, object)
    texts[:] = [letters[start : start + _TEXT_BYTES] for start in range(0, len(letters), _TEXT_BYTES)]
    return texts.reshape(sizes)
