"""Datatypes: the 14 names of the specification, with their numpy dtypes and their forms on the wire.

There is one table, and the rest of the library looks datatypes up in it. Its wire forms are little-endian. The numpy
dtypes say so explicitly (`<f4`), so a view has the same values on a big-endian host. The types of `ml_dtypes` have the
host's byte order unless it is chosen, so it is chosen for them, too. Their `array.tolist()` and `array.item()` ignore
it; on such a host, convert with `array.astype("f4")` before.

Three rows are special. BYTES has no fixed item size: each element has its own length, and arrays of BYTES are object
arrays. BOOL is one byte that must be 0 or 1. BF16 is the `bfloat16` of the optional package `ml_dtypes`. Without that
package, BF16 is a `uint16` of the same bits, and `dtype.metadata` marks it as BF16. Views and copies keep the mark, and
`datatype_of` reads it.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final, NoReturn

import numpy as np

from streamcodec.engine.errors import LocalProtocolError, kind_of

_NOTE = "streamcodec.datatype"


def is_big_endian(dtype: np.dtype[Any], *, host: str = sys.byteorder) -> bool:
    """Tell whether values of a dtype have to be swapped for the wire.

    The types of `ml_dtypes` of one byte have the byte order of the host, as if they had one.

    Args:
        dtype: any of numpy.
        host: what `=` means, as `sys.byteorder`.
    """
    return dtype.itemsize > 1 and (dtype.byteorder == ">" or (dtype.byteorder == "=" and host == "big"))


def little_endian(dtype: np.dtype[Any], *, host: str = sys.byteorder) -> np.dtype[Any]:
    """Return the dtype of the same values on the wire: itself where it is so already."""
    return dtype.newbyteorder("<") if is_big_endian(dtype, host=host) else dtype


class Datatype:
    """The type of a tensor's elements, in a message and in numpy.

    The table of the V2 protocol is `DATATYPES`. Another format can make its own datatypes, from any numpy dtype of
    fixed size, including those of `ml_dtypes`.

    Attributes:
        name: name in the messages of the format.
        itemsize: bytes of one element on the wire; for BYTES the 4 of the length prefix, the least an element can have.
        kind: numpy's kind: `b` boolean, `i` and `u` integers, `f` floats, `O` for BYTES, `V` for most of `ml_dtypes`.
        has_json: whether the V2 protocol has a JSON form for it; FP16 and BF16 have none.
        is_bytes: whether elements have lengths of their own.

    Example:
        >>> import numpy as np
        >>> Datatype("C64", np.dtype("<c8")).itemsize
        8
    """

    __slots__ = ("_dtype", "has_json", "is_bytes", "itemsize", "kind", "name")

    _dtype: np.dtype[Any] | None
    has_json: bool
    is_bytes: bool
    itemsize: int
    kind: str
    name: str

    def __init__(self, name: str, dtype: np.dtype[Any], *, has_json: bool = False) -> None:
        """Describe a datatype.

        Args:
            name: in the messages of the format.
            dtype: of its arrays. Objects and structures are not possible. Values are read in its byte order, and
                `binary_form` writes them little-endian.
            has_json: whether the V2 protocol has a JSON form for it.

        Raises:
            LocalProtocolError: no message can be read into arrays of this dtype.
        """
        try:
            dtype = np.dtype(dtype)
        except TypeError as error:
            msg = f"a Datatype has a numpy dtype, as np.dtype('<f4'): {error}"
            raise LocalProtocolError(msg) from None
        if dtype.hasobject or not dtype.itemsize or dtype.names is not None or dtype.subdtype is not None:
            msg = f"elements of a datatype are plain values of a fixed size, unlike those of numpy's {dtype}"
            raise LocalProtocolError(msg)
        self._set(name, dtype, dtype.itemsize, dtype.kind, has_json=has_json)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of an array of this datatype, in the byte order of the message."""
        return self._dtype or _bfloat16()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a datatype stays as it is."""
        msg = f"a Datatype is immutable; {name} cannot be set"
        raise AttributeError(msg)

    def __repr__(self) -> str:
        """Return its name and dtype."""
        return f"Datatype({self.name!r}, {self.dtype!r})"

    def __eq__(self, other: object) -> bool:
        """Compare name and dtype."""
        if type(other) is not Datatype:
            return NotImplemented
        return self is other or (self.name == other.name and self.dtype == other.dtype)

    def __hash__(self) -> int:
        """Return the hash of the name."""
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name where it is of the table."""
        if DATATYPES.get(self.name) is self:
            return _of_name, (self.name,)
        return _of_dtype, (self.name, self.dtype, self.has_json)

    def _set(self, name: str, dtype: np.dtype[Any] | None, itemsize: int, kind: str, *, has_json: bool) -> None:
        values = {"name": name, "_dtype": dtype, "itemsize": itemsize, "kind": kind}
        for key, value in {**values, "has_json": has_json, "is_bytes": kind == "O"}.items():
            object.__setattr__(self, key, value)


def _of_name(name: str) -> Datatype:
    return DATATYPES[name]


def _of_dtype(name: str, dtype: np.dtype[Any], has_json: bool) -> Datatype:  # noqa: FBT001 - what pickle has kept
    return Datatype(name, dtype, has_json=has_json)


def _of_table(name: str, dtype: np.dtype[Any] | None, itemsize: int, kind: str, *, has_json: bool = True) -> Datatype:
    """Make a datatype that no constructor makes: BYTES, and BF16, whose dtype is found when it is needed."""
    datatype = Datatype.__new__(Datatype)
    datatype._set(name, dtype, itemsize, kind, has_json=has_json)  # noqa: SLF001 - as the constructor
    return datatype


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
}

DATATYPES: Final[dict[str, Datatype]] = {
    **{name: Datatype(name, dtype, has_json=name != "FP16") for name, dtype in _DTYPES.items()},
    "BYTES": _of_table("BYTES", np.dtype("O"), 4, "O"),
    "BF16": _of_table("BF16", None, 2, "f", has_json=False),
}
"""Every datatype of the V2 protocol by its name on the wire."""


def find_bfloat16() -> None:
    """Import `ml_dtypes` now, if it is installed, so that the first BF16 tensor does not wait for it: it takes 8 ms."""
    _bfloat16()


@cache
def _bfloat16() -> np.dtype[Any]:
    """Find BF16's dtype at its first use: importing `ml_dtypes` costs more than the rest of this package."""
    try:
        from ml_dtypes import bfloat16  # noqa: PLC0415 - see above
    except ImportError:
        return np.dtype("<u2", metadata={_NOTE: "BF16"})
    return little_endian(np.dtype(bfloat16))


_BY_DTYPE: Final[dict[np.dtype[Any], Datatype]] = {
    variant: DATATYPES[name]
    for name, dtype in {**_DTYPES, "BYTES": np.dtype("O")}.items()
    for variant in (dtype, dtype.newbyteorder(">"))
}


def datatype_of(dtype: np.dtype[Any]) -> Datatype:
    """Return the datatype that arrays of a numpy dtype have on the wire.

    Args:
        dtype: any byte order; strings (`S`, `U`) and objects are BYTES.

    Raises:
        LocalProtocolError: the protocol has no such datatype (complex numbers, dates, structures), or it is no dtype.
    """
    try:
        metadata = dtype.metadata
    except AttributeError:
        msg = f"datatype_of takes a numpy dtype, not {kind_of(dtype)}: array.dtype or np.dtype(...)"
        raise LocalProtocolError(msg) from None
    if metadata is not None and _NOTE in metadata:
        return DATATYPES[metadata[_NOTE]]
    found = _BY_DTYPE.get(dtype)
    if found is not None:
        return found
    if dtype.kind in "SU":
        return DATATYPES["BYTES"]
    if dtype.name == "bfloat16":
        return DATATYPES["BF16"]
    msg = f"numpy dtype {dtype} has no datatype in the V2 protocol; convert the array first"
    raise LocalProtocolError(msg)


def to_wire(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array C-contiguous and little-endian: itself where it is so already, else a copy."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    if array.dtype.byteorder in _FOREIGN and is_big_endian(array.dtype):
        return array.astype(array.dtype.newbyteorder("<"))
    return array


_FOREIGN: Final = frozenset(">") if sys.byteorder == "little" else frozenset(">=")
"""Byte orders of dtypes that may have to be swapped; `=` is the host's."""
