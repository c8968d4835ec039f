"""Mutators that know V2 messages: after an edit, sizes fit datatypes and shapes, and lengths fit text and body.

The JSON is the same for all V2 targets, and so is its repair: each binary tensor gets the size of its shape, and as
many bytes behind the header; each JSON tensor gets as many values as its shape has, of its datatype. The targets differ
in where an input has its text, and in how it says the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from random import Random
from typing import Any, Final, TypeGuard

from targets import frame, header
from targets.case import Case, Kind, Length

from mutators.structured import LEFT_OUT, Root, value
from streamcodec import DATATYPES

_NAMES: Final = ("x", "y", "", "é", "x y")
_SIZES: Final = (0, 1, 1, 2, 2, 3, 4)
_ODD_SIZES: Final = (-1, 1 << 31, 1 << 40, 1 << 63, 1.0, None, "1")
_MOST_BYTES: Final = 256
"""Of a tensor; for larger ones there are no bytes, and no values."""
_MOST_DIMENSIONS: Final = 64
_MOST_NUMBER: Final = (1 << 16) - 1
_SOME_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "b": (True, False),
    "i": (0, -1, 1, 127, -128, 1 << 31, -(1 << 63)),
    "u": (0, 1, 255, 1 << 31, (1 << 64) - 1),
    "f": (0, 1, -0.0, 0.1, 1e-5, 1e39, 1e-320, float("nan"), float("-inf")),
    "O": ("", "a", "é", "\0", "longer than the others"),
}
_TYPES: Final[dict[str, tuple[type, ...]]] = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float), "O": (str,)}
_ROOT_MEMBERS: Final = ("id", "parameters", "outputs", "model_name", "model_version", "x")
_PARAMETERS: Final = ("binary_data_size", "binary_data", "classification", "shared_memory_region", "x")


class V2Form:
    """The JSON of V2, whatever it travels in."""

    def edit(self, root: Root, random: Random) -> None:
        """Change one thing of a tensor, or of the message."""
        entries = _entries(root)
        places = [index for index, entry in enumerate(entries) if isinstance(entry, dict)]
        if not places or random.random() < 0.2:  # noqa: PLR2004 - a fifth
            _edit_message(root, entries, random)
        else:
            _edit_tensor(entries[random.choice(places)], random)

    def repair(self, root: Root, random: Random) -> bytes:
        """Make each tensor fit its datatype and shape; return the bytes of the binary ones."""
        tensors = [entry for entry in _entries(root) if isinstance(entry, dict)]
        return b"".join(_repaired(entry, random) for entry in tensors)


class MessageForm(V2Form):
    """Inputs of the targets `decoder` and `oracle`."""

    def text(self, data: bytes) -> bytes:
        """Return the message up to its last brace, which is where its header ends."""
        case = Case.read(data)
        return b"" if case.kind is Kind.RAW else b"".join(case.message.rpartition(b"}")[:2])

    def join(self, data: bytes, text: bytes, payload: bytes, random: Random) -> bytes:
        """Say the lengths as before, with other numbers."""
        case, text = Case.read(data), text + _spaces(text, random)
        message = text + payload
        changes: dict[str, Any] = {"message": message, "padding": 0}
        if case.header is Length.NUMBER:
            changes["header_number"] = min(len(text), _MOST_NUMBER)
        if case.body is Length.NUMBER:
            changes["body_number"] = min(len(message), _MOST_NUMBER)
        is_repaired = random.random() >= LEFT_OUT
        return replace(case, **(changes if is_repaired else {"message": message})).write()


class HeaderForm(V2Form):
    """Inputs of the target `header`, which have no tensors' bytes."""

    def text(self, data: bytes) -> bytes:
        """Return the header."""
        return header.Case.read(data).text

    def join(self, data: bytes, text: bytes, _: bytes, __: Random) -> bytes:
        """Leave the payload out."""
        return replace(header.Case.read(data), text=text).write()


class FrameForm(V2Form):
    """Inputs of the target `frame`: those that are a body."""

    def text(self, data: bytes) -> bytes:
        """Return the body up to its last brace."""
        case = frame.Case.read(data)
        return b"" if case.is_stream else b"".join(case.data.rpartition(b"}")[:2])

    def join(self, data: bytes, text: bytes, payload: bytes, random: Random) -> bytes:
        """Have the target make the frame, mostly with the right length."""
        case, body = frame.Case.read(data), text + _spaces(text, random) + payload
        change = 0 if random.random() >= LEFT_OUT else case.header_change
        return replace(case, data=body, header_change=change).write()


def _spaces(text: bytes, random: Random) -> bytes:
    """Return what aligns the first tensor, or nothing."""
    return b" " * (-len(text) % 64 * random.randrange(2))


def _entries(root: Root) -> list[Any]:
    """Return the tensors: the inputs, or the outputs of a response."""
    entries = root.get("inputs" if "inputs" in root else "outputs")
    return entries if isinstance(entries, list) else []


def _edit_message(root: Root, entries: list[Any], random: Random) -> None:
    match random.randrange(5):
        case 0 | 1:
            datatype = random.choice([*DATATYPES])
            source: Root = random.choice(({"data": [0]}, {"parameters": {"binary_data_size": 0}}))
            shape = _shape(random)
            entries.append({"name": f"x{len(entries)}", "datatype": datatype, "shape": shape, **source})
        case 2:
            random.shuffle(entries)
        case 3:
            root["outputs" if "inputs" in root else "parameters"] = random.choice(
                ([], [{"name": "y"}], [{"name": "y", "parameters": {random.choice(_PARAMETERS): value(random)}}])
            )
        case _:
            root[random.choice(_ROOT_MEMBERS)] = value(random)


def _edit_tensor(entry: Root, random: Random) -> None:
    match random.randrange(6):
        case 0:
            entry["datatype"] = random.choice([*DATATYPES])
        case 1:
            entry["shape"] = _shape(random)
        case 2:
            entry.pop("data", None)
            entry["parameters"] = {"binary_data_size": 0}
        case 3:
            entry.pop("parameters", None)
            entry["data"] = [value(random)]
        case 4:
            entry["name"] = random.choice(_NAMES)
        case _:
            parameters = entry.get("parameters")
            entry["parameters"] = parameters if isinstance(parameters, dict) else {}
            entry["parameters"][random.choice(_PARAMETERS)] = value(random)


def _shape(random: Random) -> list[Any]:
    shape: list[Any] = [random.choice(_SIZES) for _ in range(random.randrange(4))]
    if random.random() < 0.05:  # noqa: PLR2004 - a twentieth
        shape.append(random.choice(_ODD_SIZES))
    return shape


def _repaired(entry: Root, random: Random) -> bytes:
    """Make a tensor fit its datatype and shape, if it has such; return the bytes that belong behind the header."""
    shape, name = entry.get("shape"), entry.get("datatype")
    if not _is_shape(shape) or not isinstance(name, str) or name not in DATATYPES or random.random() < LEFT_OUT:
        return bytes(_declared(entry))
    datatype, count = DATATYPES[name], prod(shape)
    if count * datatype.itemsize > _MOST_BYTES:
        return bytes(_declared(entry))
    if entry.get("data") is not None:
        values = _values(entry["data"], datatype.kind, count, random)
        # Without values there may be any number of rows: a shape of [1 << 31, 0] is none to be nested.
        entry["data"] = _nested(values, shape) if values and random.randrange(2) else values
        return b""
    payload = _octets(datatype.kind, count, datatype.itemsize, random)
    parameters = entry.get("parameters")
    if isinstance(parameters, dict):
        parameters["binary_data_size"] = len(payload)
    else:
        entry["parameters"] = {"binary_data_size": len(payload)}
    return payload


def _is_shape(shape: object) -> TypeGuard[list[int]]:
    """Tell whether this is a shape whose product is worth a look."""
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        return False
    return all(type(size) is int and size >= 0 for size in shape)


def _declared(entry: Root) -> int:
    """Return the size that a tensor says it has, if there are to be so many bytes."""
    parameters = entry.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    return size if type(size) is int and 0 <= size <= _MOST_BYTES else 0


def _octets(kind: str, count: int, itemsize: int, random: Random) -> bytes:
    """Return the bytes of a binary tensor; without a brace, by which targets find the header's end."""
    if kind == "O":
        elements = [bytes(random.choice((0, 0, 1, 3, 20))) for _ in range(count)]
        return b"".join(len(element).to_bytes(4, "little") + element for element in elements)
    if kind == "b":
        return bytes(random.randrange(2) for _ in range(count))
    return random.choice((bytes(count * itemsize), random.randbytes(count * itemsize))).replace(b"}", b"~")


def _values(data: object, kind: str, count: int, random: Random) -> list[Any]:
    """Return as many values as there are to be: those that there are, where they fit the datatype."""
    leaves = [*_leaves(data)] or [None]
    values = [leaves[index % len(leaves)] for index in range(count)]
    types = _TYPES[kind]
    return [
        leaf if type(leaf) in types or random.random() < LEFT_OUT else random.choice(_SOME_VALUES[kind])
        for leaf in values
    ]


def _leaves(data: object) -> Iterator[Any]:
    if isinstance(data, list):
        for item in data:
            yield from _leaves(item)
    else:
        yield data


def _nested(values: Sequence[Any], shape: Sequence[int]) -> Any:  # noqa: ANN401 - any JSON value
    """Give values the shape of their tensor; of a scalar there is one."""
    if not shape:
        return values[0]
    step = len(values) // shape[0]
    return [_nested(values[step * index : step * (index + 1)], shape[1:]) for index in range(shape[0])]
