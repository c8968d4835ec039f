"""The tensors of a JSON header: reading their entries, and checking their sizes before memory is taken.

An entry becomes a `TensorSpec`. This module checks its datatype, its shape, its size and the limits, and says where in
the body its bytes start. Binary tensors lie one after the other, from the end of the header. It allocates nothing for
them. The values of a JSON tensor are decoded by `jsondata.py` and `jsonslices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.elements.prefixes import PREFIX_BYTES
from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError
from streamcodec.engine.limits import (
    Limits,
    check_addressable,
    check_element_bytes,
    check_element_count,
    check_extent,
    check_rank,
    check_shape,
    check_tensor_bytes,
)
from streamcodec.engine.record import replaced
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.header.members import (
    missing,
    optional,
    read_datatype,
    read_entries,
    read_parameters,
    read_unique_name,
    refuse_constants,
)
from streamcodec.formats.v2.header.plain import read_plain_tensor
from streamcodec.formats.v2.header.stream import ENTRIES_PER_TURN, Turns
from streamcodec.formats.v2.json.data import check_has_json, decode_data
from streamcodec.formats.v2.json.slices import SlicedData


class TensorReader:
    """Reads one array of tensors. Computes where their bytes start: one after the other, from the end of the header."""

    __slots__ = (
        "_is_tolerant",
        "_limits",
        "_names",
        "_null_is_nan",
        "_offset",
        "_start",
        "held_bytes",
        "key",
        "tensors",
    )

    has_data = True

    def __init__(
        self,
        key: str,
        *,
        start: int | None,
        limits: Limits,
        is_tolerant: bool = False,
        null_is_nan: bool = False,
    ) -> None:
        self.key: str = key
        self._start = start
        self._offset = start or 0
        self._limits = limits
        self._is_tolerant = is_tolerant
        self._null_is_nan = is_tolerant or null_is_nan
        self._names: set[str] = set()
        self.tensors: list[TensorSpec] = []
        self.held_bytes: int = 0

    def read_all(self, root: dict[str, Any]) -> tuple[TensorSpec, ...]:
        """Return all tensors of a header that has been parsed whole."""
        entries = read_entries(root, self.key, self._limits)
        if entries is None:
            missing(self.key, "$")
        for entry in entries:
            self._read_tensor(entry)
        return tuple(self.tensors)

    def begin(self, members: dict[str, Any]) -> SlicedData | None:
        """Prepare for the values of the next tensor; None if its datatype or its shape is not known yet."""
        if members.get("datatype") is None or members.get("shape") is None:
            return None
        path = self._path
        datatype = read_datatype(members, path)
        shape = self._shape(members, datatype, path)
        if optional(read_parameters(members, path), "binary_data_size", int, f"{path}.parameters") is not None:
            raise _ambiguous(path)
        path = f"{path}.data"
        check_has_json(datatype, path)
        check_json_size(datatype, shape, self._limits, path)
        return SlicedData(
            datatype,
            shape,
            path,
            null_is_nan=self._null_is_nan,
            limits=self._limits,
            check_texts=partial(self._check_texts, path),
        )

    def read(self, entries: list[Any], constants: int, data: SlicedData | None = None) -> Turns:
        """Read the next tensors. If there is only one, its values may have been read before: `data`."""
        for number, entry in enumerate(entries, 1):
            self._read_tensor(entry, data)
            if constants:
                refuse_constants(entry | {"data": None}, f"$.{self.key}[{len(self.tensors) - 1}]")
            if number % ENTRIES_PER_TURN == 0:
                yield

    def finish(self, root: dict[str, Any], nbytes: int) -> Generator[None, None, tuple[TensorSpec, ...]]:
        """Return all tensors, including those that are left in the root of a header of `nbytes` bytes."""
        if not self.tensors:
            self._start = self._offset = nbytes
            self.read_all(root)
        if self._start is None:  # the length of the header was not known before: it is added to the offsets
            for index, spec in enumerate(self.tensors):
                if spec.offset is not None:
                    self.tensors[index] = replaced(spec, offset=spec.offset + nbytes)
                    self._check_end(spec.offset + nbytes + spec.nbytes, f"$.{self.key}[{index}]")
                if index % ENTRIES_PER_TURN == 0:
                    yield
        return tuple(self.tensors)

    @property
    def _path(self) -> str:
        return f"$.{self.key}[{len(self.tensors)}]"

    def _read_tensor(self, entry: Any, sliced: SlicedData | None = None) -> None:  # noqa: ANN401 - any JSON value
        spec = read_plain_tensor(entry, self._offset, self._limits)
        if spec is None or spec.name in self._names:
            spec = self._read_strictly(entry, sliced)
        else:  # in a third of the time
            self._names.add(spec.name)
        self._offset += spec.nbytes
        if self._offset > self._limits.max_message_bytes:
            self._check_end(self._offset, self._path)
        self.tensors.append(spec)

    def _read_strictly(self, entry: Any, sliced: SlicedData | None) -> TensorSpec:  # noqa: ANN401 - any JSON value
        path = self._path
        name = read_unique_name(entry, path, self._names)
        datatype = read_datatype(entry, path)
        shape = self._shape(entry, datatype, path)
        parameters = read_parameters(entry, path)
        size = optional(parameters, "binary_data_size", int, f"{path}.parameters")
        data = entry.get("data")
        if size is None and data is None:
            if not self._is_tolerant or 0 not in shape:
                msg = "the tensor has neither data nor parameters.binary_data_size"
                if "shared_memory_region" in parameters:
                    msg += "; memory that is shared with a client is not read"
                raise RemoteProtocolError(msg, code=ErrorCode.MISSING_MEMBER, path=path)
            size = 0
        if size is None:
            array = self._decode(data, datatype, shape, f"{path}.data") if sliced is None else sliced.array
            self.held_bytes += array.nbytes
            return TensorSpec(name=name, datatype=datatype, shape=shape, nbytes=0, data=array, parameters=parameters)
        if data is not None:
            raise _ambiguous(path)
        check_binary_size(size, datatype, shape, self._limits, f"{path}.parameters.binary_data_size")
        offset = self._offset
        return TensorSpec(name=name, datatype=datatype, shape=shape, nbytes=size, offset=offset, parameters=parameters)

    def _decode(self, data: Any, datatype: Datatype, shape: tuple[int, ...], path: str) -> np.ndarray[Any, Any]:  # noqa: ANN401
        """Convert values that have been parsed."""
        array = decode_data(
            data,
            datatype=datatype,
            shape=shape,
            path=path,
            null_is_nan=self._null_is_nan,
            check_size=partial(check_json_size, datatype, shape, self._limits, path),
        )
        if datatype.is_bytes:
            self._check_texts(path, array.reshape(-1).tolist())
        return array

    def _check_texts(self, path: str, texts: list[bytes]) -> None:
        if self._limits.max_element_bytes < self._limits.max_header_bytes:  # no string is longer than the header
            check_element_bytes(max(map(len, texts), default=0), self._limits, path=path)

    def _check_end(self, end: int, path: str) -> None:
        if end > self._limits.max_message_bytes:
            msg = f"the message would be {end} bytes long, {self._limits.max_message_bytes} are allowed"
            raise LimitExceededError(msg, limit="max_message_bytes", path=path)

    def _shape(self, entry: dict[str, Any], datatype: Datatype, path: str) -> tuple[int, ...]:
        shape = entry.get("shape")
        if shape is None:
            missing("shape", path)
        if type(shape) is not list:
            msg = "shape is not an array"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_SHAPE, path=f"{path}.shape")
        check_rank(len(shape), self._limits, f"{path}.shape")
        for axis, size in enumerate(shape):
            if type(size) is not int or size < 0:
                msg = "a dimension is not an integer >= 0"
                raise RemoteProtocolError(msg, code=ErrorCode.INVALID_SHAPE, path=f"{path}.shape[{axis}]")
        check_shape(shape, self._limits, f"{path}.shape")
        check_extent(shape, datatype.itemsize, f"{path}.shape")
        return tuple(shape)


def check_binary_size(size: int, datatype: Datatype, shape: tuple[int, ...], limits: Limits, path: str | None) -> None:
    """Refuse a binary size that does not fit the shape and the datatype, or is over the limits.

    Raises:
        RemoteProtocolError: `binary-size-mismatch`.
        LimitExceededError: over `max_tensor_bytes` or `max_bytes_elements`.
    """
    count = math.prod(shape)
    least = count * datatype.itemsize
    if datatype.is_bytes:
        fits = size >= least if count else size == 0
        wanted = f"at least {least}: a {PREFIX_BYTES}-byte length for each of {count} elements"
        if not count:
            wanted = "0: without elements there are no lengths of elements either"
        check_element_count(count, limits, path)
    else:
        fits = size == least
        wanted = f"{least}: {count} elements of {datatype.itemsize} bytes"
    if not fits:
        msg = f"binary_data_size is {size}, datatype and shape need {wanted}"
        raise RemoteProtocolError(msg, code=ErrorCode.BINARY_SIZE_MISMATCH, path=path)
    check_tensor_bytes(size, limits, path)
    if datatype.is_bytes and count:
        check_element_bytes(
            -((least - size) // count), limits, path=path
        )  # at least one element has the average length


def check_json_size(datatype: Datatype, shape: tuple[int, ...], limits: Limits, path: str) -> None:
    """Refuse too many JSON values, or values that take too much memory, before any of them is converted.

    Raises:
        LimitExceededError: over `max_json_tensor_bytes` or `max_bytes_elements`.
    """
    count = math.prod(shape)
    if datatype.is_bytes:
        check_element_count(count, limits, path)
    size = count * datatype.dtype.itemsize
    if size > limits.max_json_tensor_bytes:
        msg = f"the values of the tensor take {size} bytes, {limits.max_json_tensor_bytes} are allowed as JSON"
        raise LimitExceededError(msg, limit="max_json_tensor_bytes", path=path)
    check_addressable(size, limit="max_json_tensor_bytes", path=path)


def _ambiguous(path: str) -> RemoteProtocolError:
    msg = "the tensor has both data and parameters.binary_data_size"
    return RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_SOURCE, path=path)
