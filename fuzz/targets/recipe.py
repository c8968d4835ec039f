"""A recipe: one tensor to be written, made from a few bytes of an input, and what must come back of it.

The truth about its values is bytes: a tensor's own, little-endian and row-major, or a list of elements. Everything else
here is a way to give those to the encoder: as arrays of other byte orders and memory layouts, as `Elements`, as `Rows`.
What the datatypes are stands here once more, so that a mistake in the library's table is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np

from streamcodec import DATATYPES, Elements, NonFiniteOutput, Rows, Tensor
from targets.choices import Choices, ChoicesWriter


class Layout(Enum):
    """How an array lies in memory."""

    PLAIN = auto()
    COLUMNS = auto()
    """Column-major."""
    REVERSED = auto()
    """Rows from the last to the first, by a negative stride."""
    SPACED = auto()
    """With other bytes between the items."""
    SWAPPED = auto()
    """Big-endian."""
    READ_ONLY = auto()


class Form(Enum):
    """What the encoder is given."""

    ARRAY = auto()
    DECLARED = auto()
    """`Rows`, or `Elements` of BYTES, made from an array."""
    PACKED = auto()
    """`Rows` of several at once, or `Elements` of payloads with nothing between them."""


DTYPES: Final = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "BYTES": "O",
    "BF16": "<u2",
}
"""Each datatype's items on the wire; of BF16 the bits."""
_WITHOUT_JSON: Final = frozenset({"FP16", "BF16"})
NAMES: Final = ("x", "y", 'é"\\\n', "", "\ud800")
"""The last two cannot be written."""
PARAMETERS: Final[tuple[dict[str, Any] | None, ...]] = (None, {"k": [1.5, None, {"é": "\0"}]}, {"binary_data_size": 3})
_BOTH = (False, True)
_DATATYPES = tuple(DTYPES)
_LAYOUTS = tuple(Layout)
_FORMS = tuple(Form)
_RANKS = range(4)
_SIZES = range(6)
_LENGTHS: Final = 11
"""Elements of BYTES are shorter."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One tensor."""

    name: str = "x"
    datatype_name: str = "FP32"
    layout: Layout = Layout.PLAIN
    form: Form = Form.ARRAY
    is_binary: bool = True
    shape: tuple[int, ...] = (2,)
    parameters: dict[str, Any] | None = None
    payload: bytes = b""
    """Where the values come from, over and over."""

    @classmethod
    def read(cls, choices: Choices, payload: bytes) -> Recipe:
        """Take a recipe from an input."""
        name, datatype = choices.pick(NAMES), choices.pick(_DATATYPES)
        layout, form, is_binary = choices.pick(_LAYOUTS), choices.pick(_FORMS), choices.pick(_BOTH)
        parameters, rank = choices.pick(PARAMETERS), choices.pick(_RANKS)
        sizes = [choices.pick(_SIZES) for _ in _RANKS[1:]]
        return cls(
            name=name,
            datatype_name=datatype,
            layout=layout,
            form=form,
            is_binary=is_binary,
            shape=tuple(sizes[:rank]),
            parameters=parameters,
            payload=payload,
        )

    def write(self, choices: ChoicesWriter) -> None:
        """Write what `read` reads, but the payload."""
        choices.pick(NAMES, self.name)
        choices.pick(_DATATYPES, self.datatype_name)
        choices.pick(_LAYOUTS, self.layout)
        choices.pick(_FORMS, self.form)
        choices.pick(_BOTH, self.is_binary)
        choices.pick(PARAMETERS, self.parameters)
        choices.pick(_RANKS, len(self.shape))
        for size in (*self.shape, 0, 0, 0)[: len(_RANKS) - 1]:
            choices.pick(_SIZES, size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its arrays; what BF16 has there depends on what is installed."""
        is_bfloat = self.datatype_name == "BF16"
        return DATATYPES["BF16"].dtype if is_bfloat else np.dtype(DTYPES[self.datatype_name])

    @property
    def is_bytes(self) -> bool:
        """Whether its elements have lengths of their own."""
        return self.datatype_name == "BYTES"

    @cached_property
    def elements(self) -> list[bytes]:
        """The truth of BYTES: pieces of the payload, as long as their first byte says."""
        source = self.payload or b"\0"
        found, position = [], 0
        for _ in range(math.prod(self.shape)):
            length = source[position % len(source)] % _LENGTHS
            found.append((source * 2)[position % len(source) + 1 :][:length])
            position += length + 1
        return found

    @cached_property
    def octets(self) -> bytes:
        """The truth of all others: the bytes that a tensor has on the wire."""
        nbytes = math.prod(self.shape) * np.dtype(DTYPES[self.datatype_name]).itemsize
        octets = np.resize(np.frombuffer(self.payload or b"\0", np.uint8), nbytes)
        return (octets & 1 if self.datatype_name == "BOOL" else octets).tobytes()

    @cached_property
    def plain(self) -> np.ndarray[Any, Any]:
        """The truth as an array of the datatype's own dtype."""
        if not self.is_bytes:
            return np.frombuffer(self.octets, self.dtype).reshape(self.shape)
        flat = np.empty(len(self.elements), object)
        flat[:] = self.elements
        return flat.reshape(self.shape)

    def tensor(self) -> Tensor:
        """Make the tensor for the encoder."""
        return Tensor(name=self.name, array=self._values(), is_binary=self.is_binary, parameters=self.parameters)

    def is_refused(self, nonfinite: NonFiniteOutput) -> bool:
        """Tell whether the tensor has no form in the protocol; its name aside."""
        if self.is_binary:
            return False
        if self.is_bytes:
            return not all(map(_is_text, self.elements))
        if self.datatype_name in _WITHOUT_JSON:
            return True
        return nonfinite is NonFiniteOutput.ERROR and not bool(np.isfinite(self.plain).all())

    def is_same(self, found: np.ndarray[Any, Any], nonfinite: NonFiniteOutput) -> bool:
        """Tell whether an array that came back is what was sent, bit for bit as far as its form can say."""
        if found.shape != self.shape or found.dtype != self.dtype:
            return False
        if self.is_bytes:
            return bool(found.reshape(-1).tolist() == self.elements)
        if self.is_binary or self.dtype.kind != "f":
            return found.tobytes() == self.octets
        # JSON says only that a number is none.
        plain = self.plain
        lost = ~np.isfinite(plain) if nonfinite is NonFiniteOutput.NULL else np.isnan(plain)
        kept = ~lost
        return bool(np.isnan(found[lost]).all()) and found[kept].tobytes() == plain[kept].tobytes()

    def _values(self) -> np.ndarray[Any, Any] | Rows | Elements:
        array = self._laid_out()
        if self.form is Form.ARRAY:
            return array
        if self.is_bytes:
            return Elements(array) if self.form is Form.DECLARED else self._packed()
        step = 1 if self.form is Form.DECLARED else 2
        windows = [array[row : row + step] for row in range(0, len(array), step)] if self.shape else [array]
        return Rows(self.datatype_name, self.shape, windows)

    def _packed(self) -> Elements:
        offsets = [0, *accumulate(map(len, self.elements))]
        return Elements.from_compact(offsets, b"".join(self.elements), self.shape)

    def _laid_out(self) -> np.ndarray[Any, Any]:
        plain = self.plain
        match self.layout:
            case Layout.COLUMNS:
                return np.asfortranarray(plain) if self.shape else plain
            case Layout.REVERSED if self.shape:
                return plain[::-1].copy()[::-1]
            case Layout.SPACED if self.shape:
                return np.repeat(plain, 2, axis=-1)[..., ::2]
            case Layout.SWAPPED if plain.dtype.kind in "iuf" and self.datatype_name != "BF16":
                return plain.byteswap().view(plain.dtype.newbyteorder(">"))
            case Layout.READ_ONLY:
                return plain
            case _:
                return plain.copy()


def _is_text(element: bytes) -> bool:
    try:
        element.decode()
    except UnicodeDecodeError:
        return False
    return True


def are_named(recipes: tuple[Recipe, ...]) -> Iterator[bool]:
    """Tell of each whether it has a name that can be written, and no other has."""
    names = [recipe.name for recipe in recipes]
    return (bool(name) and name != NAMES[-1] and names.count(name) == 1 for name in names)
