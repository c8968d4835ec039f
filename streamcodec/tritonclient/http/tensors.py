"""Tensors: the inputs of a request, and the outputs that it asks for.

An input in binary form keeps the memory of its array: nothing is copied before it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from streamcodec.engine.datatypes import to_wire
from streamcodec.engine.memory.placement import byte_view
from streamcodec.tritonclient.utils import Array, bytes_on_wire, np_to_triton_dtype, raise_error

_REGION = "shared_memory_region"


def _region(region_name: str, byte_size: int, offset: int) -> dict[str, Any]:
    """Return the parameters of a tensor that is in shared memory."""
    place = {_REGION: region_name, "shared_memory_byte_size": byte_size}
    return {**place, "shared_memory_offset": offset} if offset != 0 else place


class InferInput:
    """An input of a request."""

    def __init__(self, name: str, shape: Sequence[int], datatype: str) -> None:
        """Describe an input, which has no values yet."""
        self._name = name
        self._shape = shape
        self._datatype = datatype
        self._parameters: dict[str, Any] = {}
        self._data: list[Any] | None = None
        self._wire: bytes | memoryview | None = None

    def name(self) -> str:
        """Return the name."""
        return self._name

    def datatype(self) -> str:
        """Return the datatype, by its name in the protocol."""
        return self._datatype

    def shape(self) -> Sequence[int]:
        """Return the shape, as it was given."""
        return self._shape

    def set_shape(self, shape: Sequence[int]) -> Self:
        """Change the shape; return this input."""
        self._shape = shape
        return self

    def set_data_from_numpy(self, input_tensor: Array, binary_data: bool = True) -> Self:
        """Take the values of an array, and return this input.

        Args:
            input_tensor: of the shape and datatype of this input. If it is C-contiguous, its memory is what will be
                sent, so it must not change until then. BYTES are copied.
            binary_data: whether the values are sent as bytes behind the JSON header, or within it.

        Raises:
            InferenceServerException: it is no array of that shape and datatype, or has no JSON form.
        """
        if not isinstance(input_tensor, np.ndarray):
            raise_error("input_tensor must be a numpy array")
        self._check(input_tensor)
        self._parameters = {}
        self._data = self._wire = None
        if not binary_data:
            if self._datatype == "BF16":
                raise_error("BF16 inputs must be sent as binary data over HTTP. Please set binary_data=True")
            values: list[Any] = input_tensor.reshape(-1).tolist()
            self._data = [_text(value) for value in values] if self._datatype == "BYTES" else values
        else:
            is_bytes = self._datatype == "BYTES"
            self._wire = bytes_on_wire(input_tensor) if is_bytes else byte_view(to_wire(input_tensor))
            self._parameters["binary_data_size"] = len(self._wire)
        return self

    def set_shared_memory(self, region_name: str, byte_size: int, offset: int = 0) -> Self:
        """Take the values from a registered region of shared memory, and return this input.

        Args:
            region_name: as it was registered.
            byte_size: of the values.
            offset: bytes of the region before them.
        """
        self._data = self._wire = None
        self._parameters = _region(region_name, byte_size, offset)
        return self

    @property
    def wire(self) -> bytes | memoryview | None:
        """The bytes that follow the JSON header; None if the values are elsewhere."""
        return self._wire

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of this input in the JSON header."""
        entry: dict[str, Any] = {"name": self._name, "shape": self._shape, "datatype": self._datatype}
        if self._parameters:
            entry["parameters"] = self._parameters
        if self._data is not None:
            entry["data"] = self._data
        return entry

    def _check(self, array: Array) -> None:
        datatype = np_to_triton_dtype(array.dtype)
        if datatype != self._datatype:
            message = f"got unexpected datatype {datatype} from numpy array, expected {self._datatype}."
            if self._datatype == "BF16":
                message += " An array of BF16 has the dtype ml_dtypes.bfloat16."
            raise_error(message)
        if tuple(self._shape) != array.shape:
            raise_error(
                f"got unexpected numpy array shape [{str(array.shape)[1:-1]}], expected [{str(self._shape)[1:-1]}]"
            )


def _text(value: object) -> str:
    try:
        return str(value, "utf-8") if isinstance(value, bytes | bytearray | memoryview) else str(value)
    except UnicodeDecodeError:
        raise_error(
            f'Failed to encode "{value!r}" using UTF-8. Please use binary_data=True, if you want to pass a byte array.'
        )


class InferRequestedOutput:
    """An output that a request asks for."""

    def __init__(self, name: str, binary_data: bool = True, class_count: int = 0) -> None:
        """Ask for an output.

        Args:
            name: of the output.
            binary_data: whether its values should come as bytes, or as JSON.
            class_count: how many classes to return instead of the values; 0 for the values.
        """
        self._name = name
        self._is_binary = binary_data
        self._parameters: dict[str, Any] = {"classification": class_count} if class_count != 0 else {}
        self._parameters["binary_data"] = binary_data
        self._place: dict[str, Any] = {}

    def name(self) -> str:
        """Return the name."""
        return self._name

    def set_shared_memory(self, region_name: str, byte_size: int, offset: int = 0) -> None:
        """Have the values written to a registered region of shared memory; arguments as for `InferInput`.

        Raises:
            InferenceServerException: classes were asked for.
        """
        if "classification" in self._parameters:
            raise_error("shared memory can't be set on classification output")
        self._parameters["binary_data"] = False
        self._place = _region(region_name, byte_size, offset)

    def unset_shared_memory(self) -> None:
        """Have the values in the answer again."""
        self._parameters["binary_data"] = self._is_binary
        self._place = {}

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of this output in the JSON header."""
        return {"name": self._name, "parameters": {**self._parameters, **self._place}}
