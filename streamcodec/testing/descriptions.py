"""Descriptions: headers, arrays and errors as tuples that are equal only if nothing differs.

Arrays inside of a larger value cannot be compared by `==`, and equal floats may have different bits. So everything
becomes a named or plain tuple of values that can be compared, with readable differences. `parameters` become text: 1,
true and 1.0 differ in JSON, but are equal in Python.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamcodec.engine.errors import LimitExceededError, MessageError
from streamcodec.engine.spec import Header, TensorSpec


class ArrayDescription(NamedTuple):
    """Dtype, shape and every bit of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    values: Any
    """The bytes; of an array of objects, a list of them."""


class SpecDescription(NamedTuple):
    """Everything a header says of a tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int | None
    is_single_element: bool
    data: ArrayDescription | None
    parameters: str
    """The tensor's `parameters` as text: 1, true and 1.0 are equal, but not the same."""


class HeaderDescription(NamedTuple):
    """Everything a header says."""

    tensors: tuple[SpecDescription, ...]
    members: tuple[tuple[str, str], ...]
    """Name and value, as text, of everything else; sorted by name."""


class ErrorDescription(NamedTuple):
    """Everything an error says."""

    kind: str
    code: str
    message: str
    offset: int | None
    path: str | None
    status_hint: int
    limit: str | None


def describe_array(array: np.ndarray[Any, Any]) -> ArrayDescription:
    r"""Describe dtype, shape and bits of an array.

    Example:
        >>> describe_array(np.array([1, 2], "<u2"))
        ArrayDescription(dtype=dtype('uint16'), shape=(2,), values=b'\x01\x00\x02\x00')
    """
    values = array.reshape(-1).tolist() if array.dtype.hasobject else array.tobytes()
    return ArrayDescription(array.dtype, array.shape, values)


def describe_spec(spec: TensorSpec) -> SpecDescription:
    """Describe what a header says of a tensor."""
    return SpecDescription(
        name=spec.name,
        datatype=spec.datatype.name,
        shape=spec.shape,
        nbytes=spec.nbytes,
        offset=spec.offset,
        is_single_element=spec.is_single_element,
        data=None if spec.data is None else describe_array(spec.data),
        parameters=repr(spec.parameters),
    )


def describe_header(header: Header) -> HeaderDescription:
    """Describe everything that a header says, of any format: its tensors, and the other attributes that it has."""
    slots = [name for kind in type(header).__mro__ for name in getattr(kind, "__slots__", ())]
    names = {*getattr(header, "__dict__", ()), *slots} - {"tensors"}
    members = tuple((name, repr(getattr(header, name))) for name in sorted(names))
    return HeaderDescription(tuple(map(describe_spec, header.tensors)), members)


def describe_error(error: MessageError) -> ErrorDescription:
    """Describe everything that an error says."""
    return ErrorDescription(
        kind=type(error).__name__,
        code=str(error.code),
        message=error.message,
        offset=error.offset,
        path=error.path,
        status_hint=error.status_hint,
        limit=error.limit if isinstance(error, LimitExceededError) else None,
    )
