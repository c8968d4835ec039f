"""The plain form of a message: strings, numbers and lists, with every bit of every tensor.

Each codec under test is given messages in this form and asked for what it read in the same form, so two of them agree
if and only if the texts of `as_text` are equal. The form says nothing of bytes on the wire; that is the codecs' affair.

This file is also imported by the KServe script, in an environment that has numpy but neither streamcodec nor pytest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Members = dict[str, Any]
"""A JSON object."""

_DTYPES = {
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
}


def dtype_of(datatype: str) -> np.dtype[Any]:
    """Return what a client calls an array of that datatype; BF16 has no better name without `ml_dtypes`."""
    if datatype != "BF16":
        return np.dtype(_DTYPES[datatype])
    try:
        from ml_dtypes import bfloat16  # noqa: PLC0415 - KServe's environment need not have it
    except ImportError:
        return np.dtype("<u2")
    bf16: np.dtype[Any] = np.dtype(bfloat16)
    return bf16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTensor:
    """A tensor."""

    name: str
    datatype: str
    shape: list[int]
    elements: list[str]
    """In row-major order: the little-endian bytes of each in hexadecimal, for BYTES without the length."""
    is_binary: bool | None = None
    """None if a codec does not tell how the tensor travelled."""
    parameters: Members = field(default_factory=dict)
    """Without `binary_data_size`, which is the codecs' own."""

    @property
    def array(self) -> Array:
        """The values as a client would hold them."""
        dtype = dtype_of(self.datatype)
        values = [bytes.fromhex(element) for element in self.elements]
        if dtype.hasobject:
            array = np.empty(len(values), dtype=object)
            array[:] = values
        else:
            array = np.frombuffer(b"".join(values), dtype)
        return array.reshape(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMessage:
    """A request or a response. An empty object of parameters and none at all are the same."""

    tensors: list[PlainTensor]
    id: str | None = None
    parameters: Members = field(default_factory=dict)
    outputs: list[Members] | None = None
    """Of a request: what it asks for, with `name` and `parameters` each."""
    model_name: str | None = None
    """Of a response, as is the next."""
    model_version: str | None = None

    @classmethod
    def from_members(cls, members: Members) -> PlainMessage:
        """Undo `asdict`."""
        return cls(**members | {"tensors": [PlainTensor(**tensor) for tensor in members["tensors"]]})


def plain_tensor(
    array: Array, *, name: str, datatype: str, is_binary: bool | None, parameters: Mapping[str, Any] | None
) -> PlainTensor:
    """Return the plain form of what a codec read.

    Raises:
        TypeError: the array is not of the datatype that the codec says it is.
    """
    if array.dtype != dtype_of(datatype):
        msg = f"the array of a {datatype} tensor has dtype {array.dtype}"
        raise TypeError(msg)
    own = {key: value for key, value in (parameters or {}).items() if key != "binary_data_size"}
    return PlainTensor(
        name=name,
        datatype=datatype,
        shape=list(array.shape),
        elements=_elements(array),
        is_binary=is_binary,
        parameters=own,
    )


def vector(datatype: str, *elements: str, is_binary: bool = False) -> PlainTensor:
    """Return a tensor of rank 1, for messages that are written by hand."""
    return PlainTensor(name="x", datatype=datatype, shape=[len(elements)], elements=list(elements), is_binary=is_binary)


def _elements(array: Array) -> list[str]:
    """Text counts as its UTF-8: clients give `str` where BYTES travelled as JSON, else `bytes`."""
    if array.dtype.hasobject:
        return [(v.encode() if isinstance(v, str) else v).hex() for v in array.reshape(-1).tolist()]
    data, step = array.tobytes(), array.itemsize
    return [data[start : start + step].hex() for start in range(0, len(data), step)]


def as_text(message: PlainMessage) -> str:
    """Return a text that is equal for equal messages only: as JSON, 1, 1.0 and true are three things."""
    return json.dumps(asdict(message), indent=1, sort_keys=True)
