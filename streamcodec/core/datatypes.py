"""Datatypes: the specification's 14 names, what they are in numpy and on the wire.

One table; everything else in the library asks it. All wire forms are little-endian, and the numpy dtypes here say so
explicitly (`<f4`), so on a big-endian host the same view gives the same values and no byte is ever reinterpreted.

Three rows are special. BYTES has no item size: its elements carry a length each and live in object arrays. BOOL is one
byte that must be 0 or 1. BF16 is the `bfloat16` of the optional package `ml_dtypes`; without that package it is a
`uint16` of the same bits, whose dtype carries a note that says so (`dtype.metadata`), which views and copies keep and
`datatype_of` understands.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

import numpy as np

from streamcodec.core.errors import LocalProtocolError
from streamcodec.core.record import record

_NOTE = "streamcodec.datatype"


@record(eq=True)
class Datatype:
    """One datatype of the V2 protocol."""

    name: str
    """Name on the wire, upper case."""
    itemsize: int
    """Bytes of one element on the wire; for BYTES the 4 of the length prefix, the least an element can have."""
    kind: str
    """numpy's kind: `b` boolean, `i` and `u` integers, `f` floats, `O` for BYTES."""
    has_json: bool
    """Whether the protocol has a JSON form for it; FP16 and BF16 have none."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of an array of this datatype, little-endian."""
        return _dtype(self.name)

    @property
    def is_bytes(self) -> bool:
        """Whether elements have lengths of their own."""
        return self.kind == "O"


_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype("O"),
}

DATATYPES: Final[dict[str, Datatype]] = {
    name: Datatype(
        name=name,
        itemsize=4 if dtype.kind == "O" else dtype.itemsize,
        kind=dtype.kind,
        has_json=name != "FP16",
    )
    for name, dtype in _DTYPES.items()
} | {"BF16": Datatype(name="BF16", itemsize=2, kind="f", has_json=False)}
"""Every datatype by its name on the wire."""


def _dtype(name: str) -> np.dtype[Any]:
    return _DTYPES.get(name) or _bfloat16()


def find_bfloat16() -> None:
    """Import `ml_dtypes` now, where it is installed, and not when the first BF16 tensor comes: that takes 8 ms."""
    _bfloat16()


@cache
def _bfloat16() -> np.dtype[Any]:
    """Find BF16's dtype at its first use: importing `ml_dtypes` costs more than the rest of this package."""
    try:
        from ml_dtypes import bfloat16  # noqa: PLC0415 - see above
    except ImportError:
        return np.dtype("<u2", metadata={_NOTE: "BF16"})
    dtype: np.dtype[Any] = np.dtype(bfloat16)
    return dtype


_BY_DTYPE: Final[dict[np.dtype[Any], Datatype]] = {
    variant: DATATYPES[name] for name, dtype in _DTYPES.items() for variant in (dtype, dtype.newbyteorder(">"))
}


def datatype_of(dtype: np.dtype[Any]) -> Datatype:
    """Return the datatype that arrays of a numpy dtype have on the wire.

    Args:
        dtype: any byte order; strings (`S`, `U`) and objects are BYTES.

    Raises:
        LocalProtocolError: the protocol has no such datatype (complex numbers, dates, structures).
    """
    if dtype.metadata is not None and _NOTE in dtype.metadata:
        return DATATYPES[dtype.metadata[_NOTE]]
    found = _BY_DTYPE.get(dtype)
    if found is not None:
        return found
    if dtype.kind in "SU":
        return DATATYPES["BYTES"]
    if dtype.name == "bfloat16":
        return DATATYPES["BF16"]
    msg = f"numpy dtype {dtype} has no datatype in the V2 protocol; convert the array first"
    raise LocalProtocolError(msg)


_BIG_ENDIAN: Final = (">",) if sys.byteorder == "little" else (">", "=")
"""What numpy calls the byte orders that have to be swapped; `=` is the host's."""


def to_wire(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array C-contiguous and little-endian: itself where it is so already, else a copy.

    `bfloat16` has no byte order in numpy; it is the host's, so only a big-endian host has to swap it.
    """
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    if array.dtype.byteorder in _BIG_ENDIAN:
        return array.astype(array.dtype.newbyteorder("<"))
    return array
