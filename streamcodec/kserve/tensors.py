"""Tensors: KServe's `InferInput` and `InferOutput` around an array, and the array of any of them.

KServe makes a list of Python objects of every tensor that it receives, and an array of that list again for the model.
Here both have the array that the network has filled. They make the list only if somebody asks for it. Everything else
is KServe's own class, so models and clients see no difference.

KServe gives received BYTES to models as `str`, and fails if they are not UTF-8. Here they are `str` too if all elements
of a tensor are UTF-8. If not, they are `bytes`. `arrays_of` returns `bytes` in both cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from kserve import InferInput, InferOutput, InferRequest, InferResponse
from kserve.errors import InferenceError, InvalidInput

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import RemoteProtocolError, shown
from streamcodec.engine.spec import TensorSpec

Received = np.ndarray[Any, Any] | Elements
"""What the decoder makes of a tensor."""

_SIZE: Final = "binary_data_size"
"""The parameter that KServe takes away from tensors that it has received."""


class _Lazy:
    """The part of both classes that makes KServe's list when it is first asked for."""

    received: Received | None = None
    """The tensor as it has arrived; None after somebody has set other data."""
    _list: Any = None
    _array: np.ndarray[Any, Any] | None = None

    @classmethod
    def of(cls, spec: TensorSpec, values: Received) -> Any:  # noqa: ANN401 - KServe's class
        """Wrap what has been received."""
        tensor = cls(spec.name, [*spec.shape], spec.datatype.name, parameters=_parameters(spec))  # type: ignore[call-arg]  # of KServe's class
        tensor.received = values
        return tensor

    @property
    def _data(self) -> Any:  # noqa: ANN401 - KServe's own attribute: a list, an array, or None
        if self._list is None and self.received is not None:
            self._list = self.as_numpy().reshape(-1).tolist()
        return self._list

    @_data.setter
    def _data(self, data: Any) -> None:  # noqa: ANN401 - as above
        self.received = self._array = None
        self._list = data

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Return the array: the same one each time, without a copy."""
        if self.received is None:
            array: np.ndarray[Any, Any] = super().as_numpy()  # type: ignore[misc]  # of KServe's class
            return array
        if self._array is None:
            self._array = text_of(array_of(self.received))
        return self._array


class _ArrayInput(_Lazy, InferInput):  # type: ignore[misc]  # KServe has no types
    """An input that was received as an array."""


class _ArrayOutput(_Lazy, InferOutput):  # type: ignore[misc]  # KServe has no types
    """An output that was received as an array."""


def input_of(spec: TensorSpec, values: Received) -> InferInput:
    """Return an input that holds what has been received."""
    return _ArrayInput.of(spec, values)


def output_of(spec: TensorSpec, values: Received) -> InferOutput:
    """Return an output that holds what has been received."""
    return _ArrayOutput.of(spec, values)


def array_of(values: Received) -> np.ndarray[Any, Any]:
    """Return values as an array; BYTES have one object for each element."""
    return values.array if isinstance(values, Elements) else values


def values_of(tensor: InferInput | InferOutput) -> Received:
    """Return what a tensor of KServe's holds: its own memory if it has an array or bytes, else an array of its list.

    Raises:
        InvalidInput: it has neither.
        InferenceError: its bytes are no tensor of its datatype and shape.
    """
    if isinstance(tensor, _Lazy) and tensor.received is not None:
        return tensor.received
    data, raw = tensor.data, tensor._raw_data  # noqa: SLF001 - there is no public access without a copy
    if isinstance(data, np.ndarray):
        return data
    if data is None and raw is None:
        msg = f"tensor {tensor.name!r} has no data"
        raise InvalidInput(msg)
    datatype = DATATYPES.get(tensor.datatype)
    if raw is None or datatype is None:
        return np.asarray(tensor.as_numpy())
    shape = tuple(tensor.shape)
    try:
        if datatype.is_bytes:
            return Elements.from_wire(raw, shape)
        return np.frombuffer(raw, datatype.dtype).reshape(shape)
    except (RemoteProtocolError, ValueError) as error:
        msg = f"the bytes of tensor {shown(tensor.name)} are not {tensor.datatype} of shape {list(shape)}: {error}"
        raise InferenceError(msg) from None


def has_array(tensor: InferInput | InferOutput) -> bool:
    """Tell whether a tensor holds an array, and not a list or bytes."""
    if isinstance(tensor, _Lazy) and tensor.received is not None:
        return True
    return isinstance(tensor.data, np.ndarray)


def arrays_of(message: InferRequest | InferResponse) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the tensors of a message of KServe's as arrays, by name.

    Args:
        message: received by this package, by KServe over gRPC, or made by a program.

    Returns:
        Inputs of an `InferRequest`, outputs of an `InferResponse`. Nothing is copied that is an array or bytes already;
        such an array must not be changed if the message is used again. BYTES are arrays of `bytes` if they came in
        binary form.

    Raises:
        InferenceError: the bytes of a tensor do not fit its datatype and shape.
    """
    tensors = message.inputs if isinstance(message, InferRequest) else message.outputs
    return {tensor.name: array_of(values_of(tensor)) for tensor in tensors}


def _parameters(spec: TensorSpec) -> dict[str, Any] | None:
    """Return the parameters as KServe shows them: without the size, and None if there never were any."""
    if not spec.parameters:
        return None
    return {name: value for name, value in spec.parameters.items() if name != _SIZE}


def text_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return BYTES as text if all of them are; return everything else unchanged."""
    if not array.dtype.hasobject:
        return array
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in array.reshape(-1).tolist()]
    except UnicodeDecodeError:
        return array
    result = np.empty(len(texts), object)
    result[:] = texts
    return result.reshape(array.shape)
