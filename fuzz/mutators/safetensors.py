"""A mutator that knows safetensors: after an edit, offsets follow each other, and the length is that of the text."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Final

from targets.stream import Case

from mutators.structured import LEFT_OUT, Root, value

_SIZES: Final = {"BOOL": 1, "U8": 1, "F8_E4M3": 1, "F4": 1, "I16": 2, "BF16": 2, "F32": 4, "C64": 8, "U64": 8, "F9": 1}
_NAMES: Final = ("a", "", "é", "__metadata__", "dtype", "shape", "data_offsets", "x")
_MOST_BYTES: Final = 256


class SafetensorsForm:
    """Inputs of the target `safetensors`."""

    def text(self, data: bytes) -> bytes:
        """Return what the length at the beginning says."""
        stream = Case.read(data).stream
        return stream[8 : 8 + int.from_bytes(stream[:8], "little")]

    def edit(self, root: Root, random: Random) -> None:
        """Change one thing of a tensor, or of the metadata."""
        name = random.choice([*root, random.choice(_NAMES)])
        entry = root.get(name)
        match random.randrange(5):
            case 0:
                dtype = random.choice([*_SIZES])
                root[name] = {"dtype": dtype, "shape": [random.randrange(4)], "data_offsets": [0, 0]}
            case 1 if isinstance(entry, dict):
                entry[random.choice([*entry, *_NAMES])] = value(random)
            case 2 if isinstance(entry, dict):
                entry["shape"] = [random.choice((0, 1, 2, 3, 1 << 40)) for _ in range(random.randrange(5))]
            case 3 if isinstance(entry, dict):
                entry["dtype"] = random.choice([*_SIZES])
            case _:
                root["__metadata__"] = {random.choice(_NAMES): random.choice(_NAMES)}

    def repair(self, root: Root, random: Random) -> bytes:
        """Lay the tensors one behind the other, in any order; return as many zeros as they need."""
        entries = [entry for entry in root.values() if isinstance(entry, dict) and isinstance(entry.get("dtype"), str)]
        random.shuffle(entries)
        position = 0
        for entry in entries:
            shape = entry.get("shape")
            sizes = shape if isinstance(shape, list) and all(type(size) is int for size in shape) else [0]
            nbytes = prod(sizes) * _SIZES.get(entry["dtype"], 1)
            end = position + (nbytes if 0 <= nbytes <= _MOST_BYTES else 1)
            entry["data_offsets"] = [position, end]
            position = end if random.random() >= LEFT_OUT else end + 1
        return bytes(position)

    def join(self, data: bytes, text: bytes, payload: bytes, _: Random) -> bytes:
        """Put the length before the text."""
        choices = data[: len(data) - len(Case.read(data).stream)]
        return choices + len(text).to_bytes(8, "little") + text + payload
