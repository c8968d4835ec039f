"""A mutator that knows safetensors: it edits the JSON text, and then repairs what the edit has broken.

A plain mutation of the text changes the length of the header, or a shape, and nearly every such file is refused for its
length or its offsets alone. Here, after an edit, the offsets follow each other again, and the length is that of the
text. Some mutations are left plain, and some repairs are left out: a fuzzer that makes right files only finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from math import prod
from random import Random
from typing import Any, Final, TypeAlias

from targets.stream import Case

Mutate: TypeAlias = Callable[[bytes, int], bytes]

_SIZES: Final = {"BOOL": 1, "U8": 1, "F8_E4M3": 1, "F4": 1, "I16": 2, "BF16": 2, "F32": 4, "C64": 8, "U64": 8, "F9": 1}
_VALUES: Final[tuple[Any, ...]] = (None, True, -1, 0, 1.0, 1 << 63, 1 << 64, "", "F32", [], {}, [1, 2], {"a": "b"})
_NAMES: Final = ("a", "", "é", "__metadata__", "dtype", "shape", "data_offsets", "x")
_MOST_BYTES: Final = 256


def mutate(data: bytes, max_size: int, seed: int, plainly: Mutate) -> bytes:
    """Change an input of the target.

    Args:
        data: the input.
        max_size: bytes that the result may have.
        seed: decides what is changed.
        plainly: changes any bytes a little.
    """
    random = Random(seed)  # noqa: S311 - nothing secret
    case = Case.read(data)
    try:
        root = json.loads(case.stream[8 : 8 + int.from_bytes(case.stream[:8], "little")])
    except (ValueError, RecursionError):
        root = None
    if type(root) is not dict or random.random() < 0.2:  # noqa: PLR2004 - a fifth
        return plainly(data, max_size)
    for _ in range(random.randint(1, 3)):
        _edit(root, random)
    nbytes = _repair(root, random)
    words = json.dumps(root, separators=(",", ":"), ensure_ascii=random.choice((True, False)))
    text = words.encode(errors="surrogatepass")
    if random.random() < 0.1:  # noqa: PLR2004 - a tenth
        text = plainly(text, len(text) + 8)
    stream = len(text).to_bytes(8, "little") + text + bytes(nbytes)
    return (data[: len(data) - len(case.stream)] + stream)[:max_size]


def _edit(root: dict[str, Any], random: Random) -> None:
    """Change one thing."""
    name = random.choice([*root, random.choice(_NAMES)])
    entry = root.get(name)
    match random.randrange(6):
        case 0:
            dtype = random.choice([*_SIZES])
            root[name] = {"dtype": dtype, "shape": [random.randrange(4)], "data_offsets": [0, 0]}
        case 1:
            root.pop(name, None)
        case 2:
            root[name] = deepcopy(random.choice(_VALUES))
        case 3 if isinstance(entry, dict):
            entry[random.choice([*entry, *_NAMES])] = deepcopy(random.choice(_VALUES))
        case 4 if isinstance(entry, dict):
            entry["shape"] = [random.choice((0, 1, 2, 3, 1 << 40)) for _ in range(random.randrange(5))]
        case _ if isinstance(entry, dict):
            entry["dtype"] = random.choice([*_SIZES])
        case _:
            root["__metadata__"] = {random.choice(_NAMES): random.choice(_NAMES)}


def _repair(root: dict[str, Any], random: Random) -> int:
    """Lay the tensors one behind the other, in any order; return the bytes that they need."""
    entries = [entry for entry in root.values() if isinstance(entry, dict) and isinstance(entry.get("dtype"), str)]
    random.shuffle(entries)
    position = 0
    for entry in entries:
        shape = entry.get("shape")
        sizes = shape if isinstance(shape, list) and all(type(size) is int for size in shape) else [0]
        nbytes = prod(sizes) * _SIZES.get(entry["dtype"], 1)
        end = position + (nbytes if 0 <= nbytes <= _MOST_BYTES else 1)
        entry["data_offsets"] = [position, end]
        position = end if random.random() < 0.97 else end + 1  # noqa: PLR2004 - sometimes a hole
    return position
