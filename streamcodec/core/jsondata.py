"""JSON data: the `data` member of a tensor to an array.

The form is a list, flat or nested exactly like the shape. Values must be of the datatype: nothing is rounded to an
integer, wrapped, or read out of a string. All checks run over whole lists at C speed; when one fails, a second look
finds the place.

Numbers go through the standard library's `array`, which is quicker than numpy here and stricter: it takes no strings
and no fractions for integers. The one thing it takes too readily is a boolean, which becomes a 0 or a 1; so where those
come out, the values they came from are looked at.
"""

from __future__ import annotations

import math
from array import array as number_array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from streamcodec.core.datatypes import Datatype
from streamcodec.core.errors import ErrorCode, RemoteProtocolError
from streamcodec.core.jsontext import NonFinite

_Refuse = Callable[[str, Callable[[Any], bool]], RemoteProtocolError]
"""Makes the error for the first value that does not fit, given what was wanted and the test."""


def _no_check() -> None:
    """Let any number of values pass."""


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
        data: what the JSON parser made of it.
        datatype: of the tensor.
        shape: of the tensor.
        path: of the member, for errors.
        null_is_nan: whether a `null` of FP32 or FP64 is NaN: some servers write all that is not finite like that.
        check_size: called when the values are found to be as many as the shape says, before any is converted; raises to
            refuse them.

    Returns:
        A new array of that shape and the datatype's dtype; BYTES are `bytes` objects (the strings as UTF-8).

    Raises:
        RemoteProtocolError: `json-not-supported` for FP16 and BF16; `invalid-data` where count, nesting or a value does
            not fit, with the path of the first wrong value.
    """
    if not datatype.has_json:
        msg = f"{datatype.name} has no JSON form; send it as binary data with binary_data_size"
        raise RemoteProtocolError(msg, code=ErrorCode.JSON_NOT_SUPPORTED, path=path)
    values = _flatten(data, shape, path)
    check_size()

    def refuse(wanted: str, fits: Callable[[Any], bool]) -> RemoteProtocolError:
        index = next(index for index, value in enumerate(values) if not fits(value))
        msg = f"a value is not {wanted}"
        place = f"{path}[{index}]" if values is data else _place(path, shape, index)
        return RemoteProtocolError(msg, code=ErrorCode.INVALID_DATA, path=place)

    match datatype.kind:
        case "b":
            array = _booleans(values, refuse)
        case "f":
            array = _floats(values, datatype, refuse, null_is_nan=null_is_nan)
        case "O":
            array = _texts(values, refuse)
        case _:
            array = _integers(values, datatype, refuse)
    return array.reshape(shape)


def _booleans(values: list[Any], refuse: _Refuse) -> np.ndarray[Any, Any]:
    if not set(map(type, values)) <= {bool}:
        raise refuse("true or false", lambda value: type(value) is bool)
    return np.array(values, dtype=np.bool_)


def _integers(values: list[Any], datatype: Datatype, refuse: _Refuse) -> np.ndarray[Any, Any]:
    bounds = np.iinfo(datatype.dtype)
    low, high = int(bounds.min), int(bounds.max)
    try:
        wide = np.asarray(number_array("q" if low else "Q", values))
    except (TypeError, OverflowError):
        wide = None
    is_in_range = wide is not None and low <= wide.min(initial=high) and wide.max(initial=0) <= high
    if wide is not None and is_in_range and not _holds_booleans(values, wide):
        return wide.astype(datatype.dtype)
    if not set(map(type, values)) <= {int}:
        raise refuse("an integer", lambda value: type(value) is int)
    raise refuse(f"within {datatype.name}", lambda value: low <= value <= high)


def _floats(values: list[Any], datatype: Datatype, refuse: _Refuse, *, null_is_nan: bool) -> np.ndarray[Any, Any]:
    kinds = {float, int, NonFinite} | ({type(None)} if null_is_nan else set())

    def fits(value: Any) -> bool:  # noqa: ANN401 - any JSON value
        if type(value) is NonFinite or value is None:
            return True
        try:
            with np.errstate(all="ignore"):
                return math.isfinite(datatype.dtype.type(float(value)))
        except OverflowError:
            return False

    try:
        wide = np.asarray(_doubles(values, null_is_nan=null_is_nan))
    except (TypeError, OverflowError):  # also an integer beyond the largest double
        wide = None
    if wide is not None and not _holds_booleans(values, wide):
        with np.errstate(all="ignore"):
            array = wide.astype(datatype.dtype)
        # What is not finite either said so itself, or has become so here.
        places = np.flatnonzero(~np.isfinite(array)).tolist()
        if all(type(values[place]) is NonFinite or values[place] is None for place in places):
            return array
    if not set(map(type, values)) <= kinds:
        raise refuse("a number", lambda value: type(value) in kinds)
    raise refuse(f"within {datatype.name}", fits)


def _doubles(values: list[Any], *, null_is_nan: bool) -> number_array[float]:
    try:
        return number_array("d", values)
    except TypeError:
        if not null_is_nan:
            raise
    return number_array("d", [math.nan if value is None else value for value in values])


def _holds_booleans(values: list[Any], numbers: np.ndarray[Any, Any]) -> bool:
    """Tell whether a value is a boolean, given the numbers that the values have become."""
    places = np.flatnonzero((numbers == 0) | (numbers == 1))
    if len(places) > len(values) // 4:  # as of a mask: then it is quicker to look at all
        return bool in set(map(type, values))
    return any(type(values[place]) is bool for place in places.tolist())


def _texts(values: list[Any], refuse: _Refuse) -> np.ndarray[Any, Any]:
    if not set(map(type, values)) <= {str}:
        raise refuse("a string", lambda value: type(value) is str)
    array = np.empty(len(values), dtype=object)
    array[:] = [value.encode() for value in values]
    return array


def _flatten(data: Any, shape: tuple[int, ...], path: str) -> list[Any]:  # noqa: ANN401 - any JSON value
    """Return the values in row-major order; `data` itself if it is flat already."""
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
        if not all(type(item) is list and len(item) == size for item in level):
            index = next(i for i, item in enumerate(level) if type(item) is not list or len(item) != size)
            msg = f"data is not nested like the shape: here an array of {size} belongs"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_DATA, path=_place(path, shape[:axis], index))
        level = list(chain.from_iterable(level))
    return level


def _place(path: str, shape: Sequence[int], index: int) -> str:
    return path + "".join(f"[{int(i)}]" for i in np.unravel_index(index, shape)) if shape else path
