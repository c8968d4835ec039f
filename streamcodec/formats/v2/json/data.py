"""JSON data: conversion of the `data` member of a tensor to an array.

The data are a list, flat or nested exactly like the shape. Values must be of the datatype: no value is rounded to an
integer, wrapped, or parsed from a string. All checks run over whole lists at C speed. If a check fails, a second pass
finds the place.

Nearly all data have the same type throughout, and fit. Then `struct` writes the values to the array's memory. It is
quicker than numpy, and stricter: it refuses strings, fractions as integers, and numbers that do not fit.

All other numbers go through the standard library's `array`, which refuses strings and fractions, too. But it accepts
booleans, as 0 or 1. So if the result contains 0 or 1, the types of these values are checked.
"""

from __future__ import annotations

import math
import struct
from array import array as number_array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.json.text import (
    NEGATIVE_ZERO,
    NegativeZero,
    NonFinite,
    are_unencodable,
    first_wrong,
    half_of_a_pair,
)
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import aligned_block, aligned_bytes

COMMA: Final = ord(",")


class WrongValue(Exception):  # noqa: N818 - not an error yet: where the value stands is for the caller to say
    """A value does not fit the datatype."""

    def __init__(self, wanted: str, index: int) -> None:
        """Describe the expected value."""
        super().__init__(wanted, index)
        self.wanted = wanted
        self.index = index

    def refusal(self, path: str) -> RemoteProtocolError:
        """Make the error, given the path of the value."""
        if not self.wanted:
            return half_of_a_pair(path)
        return RemoteProtocolError(f"a value is not {self.wanted}", code=ErrorCode.INVALID_DATA, path=path)


def _no_check() -> None:
    """Accept any number of values."""


def decode_data(
    data: Any,  # noqa: ANN401 - any JSON value
    *,
    datatype: Datatype,
    shape: tuple[int, ...],
    path: str,
    null_is_nan: bool = False,
    check_size: Callable[[], None] = _no_check,
) -> np.ndarray[Any, Any]:
    """Convert the `data` member of one tensor.

    Args:
        data: the parsed member.
        datatype: of the tensor.
        shape: of the tensor.
        path: of the member, for errors.
        null_is_nan: whether `null` is NaN for FP32 and FP64. Some servers write all non-finite values as `null`.
        check_size: called when the number of values fits the shape, before any value is converted; raises to refuse.

    Returns:
        A new array of that shape and the datatype's dtype; BYTES are `bytes` objects (the strings as UTF-8).

    Raises:
        RemoteProtocolError: `json-not-supported` for FP16 and BF16; `invalid-data` if the count, the nesting or a value
            does not fit, with the path of the first wrong value.
    """
    check_has_json(datatype, path)
    values = flatten(data, shape, path)
    check_size()
    packed = pack(values, datatype)
    if packed is not None:
        return packed.reshape(shape)
    try:
        array = convert(values, datatype, null_is_nan=null_is_nan)
    except WrongValue as wrong:
        is_flat = values is data
        raise wrong.refusal(place(path, (len(values),) if is_flat else shape, wrong.index)) from None
    return _aligned(array).reshape(shape)


_CODES: Final = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP32": "f",
    "FP64": "d",
}
"""How `struct` names the datatypes with a JSON form. `<` gives them the sizes of the wire."""

_KINDS: Final[dict[str, set[type]]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {float, int}, "O": {str}}
"""Types of the values of a usual tensor, by the kind of its datatype."""


def fits_as_json(datatype: Datatype, count: int, nbytes: int, limits: Limits) -> bool:
    """Tell whether a tensor may have its values in a header, of which so many bytes are there; no string is longer."""
    if not datatype.has_json or count * datatype.dtype.itemsize > limits.max_json_tensor_bytes:
        return False
    return not datatype.is_bytes or (count <= limits.max_bytes_elements and nbytes <= limits.max_element_bytes)


def pack(values: list[Any], datatype: Datatype) -> np.ndarray[Any, Any] | None:
    """Convert usual values to a flat array in aligned memory; None if `convert` has to look at them.

    Args:
        values: of a header without half of a surrogate pair. A `-0` among them is a `NegativeZero`, or floats are
            checked for it.
        datatype: one that has a JSON form.
    """
    array: np.ndarray[Any, Any]
    if not datatype.is_bytes:
        block, view, start = aligned_block(len(values) * datatype.itemsize)
        if len(values) > _FEW:
            array = np.ndarray((len(values),), datatype.dtype, block, start)
            return array if pack_into(array, values, datatype) else None
        is_packed = _pack_few(view, start, values, datatype)
        return np.ndarray((len(values),), datatype.dtype, block, start) if is_packed else None
    if not _KINDS["O"].issuperset(map(type, values)):
        return None
    array = np.empty(len(values), object)
    array[:] = list(map(str.encode, values))
    return array


def pack_into(array: np.ndarray[Any, Any], values: list[Any], datatype: Datatype) -> bool:
    """Write usual numbers to a flat array of the datatype, which has room for them; return whether that was possible.

    If not, the array may hold some of them.
    """
    if len(values) <= _FEW or datatype.kind == "b":
        return _pack_few(array.data, 0, values, datatype)
    try:
        struct.pack_into(f"<{len(values)}{_CODES[datatype.name]}", array.data, 0, *values)
    except (struct.error, OverflowError):
        return False
    return (datatype.kind != "f" or bool(np.isfinite(array).all())) and not _holds_booleans(values, array)


def _pack_few(view: memoryview, start: int, values: list[Any], datatype: Datatype) -> bool:
    """Write a few usual numbers to memory, whose types are looked at first; return whether that was possible."""
    if not _KINDS[datatype.kind].issuperset(map(type, values)):
        return False
    try:
        struct.pack_into(f"<{len(values)}{_CODES[datatype.name]}", view, start, *values)
        return datatype.kind != "f" or math.isfinite(sum(values))
    except (struct.error, OverflowError):
        return False


_FEW: Final = 256
"""Up to this number of values, it is quicker to look at their types than at the array. `struct` takes a boolean as a
number."""


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return numbers in aligned memory, as tensors need it, so that they are not copied again."""
    if array.dtype.hasobject:
        return array
    target: np.ndarray[Any, Any] = np.ndarray(array.shape, array.dtype, aligned_bytes(array.nbytes))
    target[:] = array
    return target


def check_has_json(datatype: Datatype, path: str) -> None:
    """Refuse a datatype without a JSON form.

    Raises:
        RemoteProtocolError: `json-not-supported`.
    """
    if not datatype.has_json:
        msg = f"{datatype.name} has no JSON form; send it as binary data with binary_data_size"
        raise RemoteProtocolError(msg, code=ErrorCode.JSON_NOT_SUPPORTED, path=path)


def convert(values: list[Any], datatype: Datatype, *, null_is_nan: bool) -> np.ndarray[Any, Any]:
    """Convert values to a flat array of the datatype.

    Raises:
        WrongValue: the first one that does not fit.
    """
    match datatype.kind:
        case "b":
            return _booleans(values)
        case "f":
            return _floats(values, datatype, null_is_nan=null_is_nan)
        case "O":
            return _texts(values)
        case _:
            return _integers(values, datatype)


def restore_signs(array: np.ndarray[Any, Any], text: bytes) -> None:
    """Set the sign of floats that are written `-0`: parsers read that as the integer 0, without a sign.

    Args:
        array: the values; of one dimension, and not strings.
        text: the text of the values, with commas between them.
    """
    places = [match.start() for match in NEGATIVE_ZERO.finditer(text)]
    if places:
        commas = np.flatnonzero(np.frombuffer(text, np.uint8) == COMMA)
        array[np.searchsorted(commas, places)] = -0.0


def _check_kinds(values: list[Any], kinds: set[type], wanted: str) -> None:
    if not set(map(type, values)) <= kinds:
        raise WrongValue(wanted, next(index for index, kind in enumerate(map(type, values)) if kind not in kinds))


def _booleans(values: list[Any]) -> np.ndarray[Any, Any]:
    _check_kinds(values, {bool}, "true or false")
    return np.array(values, dtype=np.bool_)


def _integers(values: list[Any], datatype: Datatype) -> np.ndarray[Any, Any]:
    bounds = np.iinfo(datatype.dtype)
    low, high = int(bounds.min), int(bounds.max)
    try:
        wide = np.asarray(number_array("q" if low else "Q", values))
    except (TypeError, OverflowError):
        wide = None
    is_in_range = wide is not None and low <= wide.min(initial=high) and wide.max(initial=0) <= high
    if wide is not None and is_in_range and not _holds_booleans(values, wide):
        return wide.astype(datatype.dtype)
    _check_kinds(values, {int, NegativeZero}, "an integer")
    index = next(index for index, value in enumerate(values) if not low <= value <= high)
    raise WrongValue(f"within {datatype.name}", index)


def _floats(values: list[Any], datatype: Datatype, *, null_is_nan: bool) -> np.ndarray[Any, Any]:
    array = _as_floats(values, datatype, null_is_nan=null_is_nan)
    if array is not None:
        return array
    _check_kinds(values, {float, int, NegativeZero, NonFinite} | ({type(None)} if null_is_nan else set()), "a number")

    def are_wrong(some: list[Any]) -> bool:
        return _as_floats(some, datatype, null_is_nan=null_is_nan) is None

    raise WrongValue(f"within {datatype.name}", first_wrong(values, are_wrong))


def _as_floats(values: list[Any], datatype: Datatype, *, null_is_nan: bool) -> np.ndarray[Any, Any] | None:
    """Convert values at once; None if one of them does not fit."""
    try:
        wide = np.asarray(_doubles(values, null_is_nan=null_is_nan))
    except (TypeError, OverflowError):  # also an integer beyond the largest double
        return None
    if _holds_booleans(values, wide):
        return None
    with np.errstate(all="ignore"):
        array = wide.astype(datatype.dtype)
    # A value that is not finite was not finite in the text, or has overflowed here.
    places = np.flatnonzero(~np.isfinite(array)).tolist()
    fits = all(type(values[place]) is NonFinite or values[place] is None for place in places)
    return array if fits else None


def _doubles(values: list[Any], *, null_is_nan: bool) -> number_array[float]:
    try:
        return number_array("d", values)
    except TypeError:
        if not null_is_nan:
            raise
    return number_array("d", [math.nan if value is None else value for value in values])


def _holds_booleans(values: list[Any], numbers: np.ndarray[Any, Any]) -> bool:
    """Tell whether a value is a boolean; `numbers` are the converted values."""
    places = np.flatnonzero((numbers == 0) | (numbers == 1))
    if len(places) > len(values) // 4:  # as in a mask: then it is quicker to check all values
        return bool in set(map(type, values))
    return any(type(values[place]) is bool for place in places.tolist())


def _texts(values: list[Any]) -> np.ndarray[Any, Any]:
    _check_kinds(values, {str}, "a string")
    array = np.empty(len(values), dtype=object)
    try:
        array[:] = [value.encode() for value in values]
    except UnicodeEncodeError:
        raise WrongValue("", first_wrong(values, are_unencodable)) from None
    return array


def flatten(data: Any, shape: tuple[int, ...], path: str) -> list[Any]:  # noqa: ANN401 - any JSON value
    """Return the values in row-major order; `data` itself if it is flat already.

    Raises:
        RemoteProtocolError: `invalid-data`: the data have another number of values, or another nesting.
    """
    if type(data) is not list:
        if shape == ():
            return [data]
        msg = "data is not an array"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_DATA, path=path)
    if len(shape) > 1 and data and type(data[0]) is list:
        return _flatten_nested(data, shape, path)
    if len(data) != (count := math.prod(shape)):
        msg = f"data has {len(data)} values, the shape needs {count}"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_DATA, path=path)
    return data


def _flatten_nested(data: list[Any], shape: tuple[int, ...], path: str) -> list[Any]:
    level: list[Any] = [data]
    for axis, size in enumerate(shape):
        if not are_lists(level, size):
            index = next(i for i, item in enumerate(level) if type(item) is not list or len(item) != size)
            raise not_nested(size, place(path, shape[:axis], index))
        level = list(chain.from_iterable(level))
    return level


def are_lists(items: list[Any], size: int) -> bool:
    """Tell whether all items are lists of `size` items."""
    return set(map(type, items)) <= {list} and set(map(len, items)) <= {size}


def not_nested(size: int, path: str) -> RemoteProtocolError:
    """Make the error for a value that is not an array of `size` items."""
    msg = f"data is not nested like the shape: here an array of {size} belongs"
    return RemoteProtocolError(msg, code=ErrorCode.INVALID_DATA, path=path)


def place(path: str, shape: Sequence[int], index: int) -> str:
    """Return the path of a value, given its number in row-major order."""
    return path + "".join(f"[{int(i)}]" for i in np.unravel_index(index, shape)) if shape else path
