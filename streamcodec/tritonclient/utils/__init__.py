"""Utils: what clients and programs share: the exception, the names of datatypes, and the bytes of BYTES and BF16."""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

import numpy as np

from streamcodec.engine.datatypes import DATATYPES, datatype_of
from streamcodec.engine.elements.payloads import encode_payloads
from streamcodec.engine.errors import LocalProtocolError

Array = np.ndarray[Any, Any]

__all__ = [
    "TRITON_RESERVED_REQUEST_PARAMS",
    "TRITON_RESERVED_REQUEST_PARAMS_PREFIX",
    "InferenceServerException",
    "deserialize_bf16_tensor",
    "deserialize_bytes_tensor",
    "np_to_triton_dtype",
    "raise_error",
    "serialize_bf16_tensor",
    "serialize_byte_tensor",
    "serialized_byte_size",
    "triton_to_np_dtype",
]

TRITON_RESERVED_REQUEST_PARAMS: Final = [
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
    "headers",
    "binary_data_output",
]
"""Parameters of a request that have arguments of their own."""

TRITON_RESERVED_REQUEST_PARAMS_PREFIX: Final = "triton_"
"""How the names of other reserved parameters begin."""

_LENGTH: Final = struct.Struct("<I")
_HALF_BITS: Final = 16


class InferenceServerException(Exception):  # noqa: N818 - its name is tritonclient's
    """The server refused a request, or a request or an answer is wrong."""

    def __init__(self, msg: str | None, status: str | None = None, debug_details: Any = None) -> None:  # noqa: ANN401
        """Keep what happened; `status` is the HTTP status as text, None if no server has answered."""
        super().__init__(msg, status, debug_details)  # so that it can be copied and pickled
        self._msg = msg
        self._status = status
        self._debug_details = debug_details

    def __str__(self) -> str:
        """Return the status in brackets, if there is one, and the message."""
        message = "" if self._msg is None else self._msg
        return message if self._status is None else f"[{self._status}] {message}"

    def message(self) -> str | None:
        """Return the message without the status."""
        return self._msg

    def status(self) -> str | None:
        """Return the HTTP status as text; None if no server has answered."""
        return self._status

    def debug_details(self) -> Any:  # noqa: ANN401 - as given
        """Return further details, such as an answer that could not be read."""
        return self._debug_details


def raise_error(msg: str) -> NoReturn:
    """Raise an `InferenceServerException` with a message.

    Raises:
        InferenceServerException: always.
    """
    raise InferenceServerException(msg=msg) from None


def np_to_triton_dtype(np_dtype: Any) -> str | None:  # noqa: ANN401 - what numpy.dtype takes
    """Return the name that a numpy dtype has in the protocol; None if it has none.

    Objects and `S` are BYTES, `ml_dtypes.bfloat16` is BF16. Strings of numpy (`U`) and other byte orders have no name,
    as in tritonclient.
    """
    dtype = np.dtype(np_dtype)
    if dtype.kind == "U" or not dtype.isnative:
        return None
    try:
        return datatype_of(dtype).name
    except LocalProtocolError:
        return None


def triton_to_np_dtype(dtype: str) -> Any:  # noqa: ANN401 - types, as tritonclient returns them
    """Return numpy's type for the name of a datatype; None if there is no such datatype.

    BF16 is `ml_dtypes.bfloat16` if that package is installed, else a dtype of two bytes.
    """
    datatype = DATATYPES.get(dtype)
    if datatype is None:
        return None
    if dtype == "BOOL":
        return bool
    found = datatype.dtype
    return found if found.metadata else found.type


def serialize_byte_tensor(input_tensor: Array) -> Array:
    """Return the wire form of a BYTES tensor, each element behind its length.

    Args:
        input_tensor: objects or `S`. Objects that are not bytes are sent as the UTF-8 of their `str()`.

    Returns:
        An array of dtype object and shape `()` that holds the `bytes`; an empty array if there is no element.

    Raises:
        InferenceServerException: the dtype is another one.
    """
    if input_tensor.size == 0:
        return np.empty([0], dtype=np.object_)
    wire = np.empty((), dtype=np.object_)
    wire[()] = bytes(bytes_on_wire(input_tensor))
    return wire


def bytes_on_wire(tensor: Array) -> bytes | memoryview:
    """Return the wire form of a BYTES tensor; arguments and errors are those of `serialize_byte_tensor`."""
    if tensor.dtype.kind not in "OS":
        raise_error("cannot serialize bytes tensor: invalid datatype")
    if tensor.dtype.kind == "O" and not all(type(element) is bytes for element in tensor.flat):
        payloads = np.empty(tensor.size, dtype=np.object_)
        payloads[:] = [_payload(element) for element in tensor.flat]
        tensor = payloads
    return encode_payloads(tensor)


def _payload(element: object) -> bytes:
    return bytes(element) if isinstance(element, bytes | bytearray | memoryview) else str(element).encode()


def deserialize_bytes_tensor(encoded_tensor: bytes | bytearray | memoryview) -> Array:
    """Return the elements of a BYTES tensor from its wire form, as objects, in one dimension.

    If the lengths do not fill the bytes, this is a `struct.error`.
    """
    elements: list[bytes] = []
    offset, end = 0, len(encoded_tensor)
    while offset < end:
        (length,) = _LENGTH.unpack_from(encoded_tensor, offset)
        offset += _LENGTH.size + length
        if offset > end:
            raise struct.error(f"an element ends at byte {offset}, and the tensor at byte {end}")
        elements.append(bytes(encoded_tensor[offset - length : offset]))
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def serialize_bf16_tensor(input_tensor: Array) -> Array:
    """Return the BF16 form of FP32: the upper two bytes of each value, as tritonclient had it before release 26.06.

    Returns:
        An array of dtype object and shape `()` that holds the `bytes`; an empty array if there is no element.

    Raises:
        InferenceServerException: the dtype is not float32.
    """
    if input_tensor.size == 0:
        return np.empty([0], dtype=np.object_)
    if input_tensor.dtype != np.float32:
        raise_error("cannot serialize bf16 tensor: invalid datatype")
    bits = np.ascontiguousarray(input_tensor, dtype="<f4").view("<u4") >> _HALF_BITS
    wire = np.empty((), dtype=np.object_)
    wire[()] = bits.astype("<u2").tobytes()
    return wire


def deserialize_bf16_tensor(encoded_tensor: bytes | bytearray | memoryview) -> Array:
    """Return BF16 values from their wire form as float32, in one dimension."""
    bits = np.frombuffer(encoded_tensor, dtype="<u2").astype("<u4") << _HALF_BITS
    return bits.view("<f4")


def serialized_byte_size(tensor_value: Array) -> int:
    """Return the bytes of all objects of an array together, without lengths.

    Raises:
        InferenceServerException: the dtype is not object.
    """
    if tensor_value.dtype != np.object_:
        raise_error("The tensor_value dtype must be np.object_")
    return sum(len(element) for element in tensor_value.flat)
