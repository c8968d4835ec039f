"""The entries of the JSON text: checks of each tensor, and of all together. Tensors have no gaps and no overlap."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError, shown
from streamcodec.engine.json.text import cut_path
from streamcodec.engine.limits import Limits, check_extent, check_shape
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.safetensors.dtypes import NUMPY_NAMES, find_datatype

ENTRIES_PER_TURN: Final = 256
"""Entries that are checked without a turn: some 1 to 2 ms of work."""

Extent = tuple[int, int, str, Datatype, tuple[int, ...]]
"""Begin and end of a tensor in the data, its name, its datatype and its shape."""


def read_entry(name: str, entry: object, limits: Limits) -> Extent:
    """Check one entry by itself; return its content."""
    path = _path(name)
    if type(entry) is not dict or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        msg = "a tensor is not an object with dtype, shape and data_offsets"
        raise RemoteProtocolError(msg, code=ErrorCode.MISSING_MEMBER, path=path)
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_sizes(shape):
        msg = "a shape is not an array of integers >= 0"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_SHAPE, path=f"{path}.shape")
    check_shape(shape, limits, f"{path}.shape")
    if not _are_sizes(offsets) or len(offsets) != 2:  # noqa: PLR2004 - begin and end
        msg = "data_offsets are not two integers >= 0"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{path}.data_offsets")
    datatype = _datatype(entry["dtype"], f"{path}.dtype")
    check_extent(shape, datatype.itemsize, f"{path}.shape")
    return offsets[0], offsets[1], name, datatype, tuple(shape)


def _are_sizes(values: object) -> bool:
    return type(values) is list and all(type(value) is int and 0 <= value < 1 << 64 for value in values)


def in_order(entries: list[Extent], start: int) -> Generator[None, None, tuple[TensorSpec, ...]]:
    """Check that the tensors fill the file from `start` on; return them in the order of their bytes.

    It yields where others may have their turn.
    """
    tensors = []
    position = 0
    for index, (begin, end, name, datatype, shape) in enumerate(sorted(entries, key=lambda entry: entry[:2])):
        if index % ENTRIES_PER_TURN == 0:
            yield
        spec = TensorSpec(name=name, datatype=datatype, shape=shape, nbytes=end - begin, offset=start + begin)
        if begin != position:
            msg = f"the tensor begins at byte {begin} of the data, the one before it ends at byte {position}"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{_path(name)}.data_offsets")
        if spec.nbytes != spec.count * datatype.itemsize:
            msg = f"data_offsets have {end - begin} bytes, dtype and shape need {spec.count * datatype.itemsize}"
            raise RemoteProtocolError(msg, code=ErrorCode.BINARY_SIZE_MISMATCH, path=f"{_path(name)}.data_offsets")
        tensors.append(spec)
        position = end
    return tuple(tensors)


def _path(name: str) -> str:
    return cut_path(f"$[{shown(name)}]")


def _datatype(name: object, path: str) -> Datatype:
    datatype = find_datatype(name) if type(name) is str and name in NUMPY_NAMES else None
    if datatype is None:
        text = shown(name) if type(name) is str else "this"
        msg = f"dtype {text} has no elements of whole bytes that numpy or ml_dtypes, if it is installed, knows"
        raise RemoteProtocolError(msg, code=ErrorCode.UNKNOWN_DATATYPE, path=path)
    return datatype
