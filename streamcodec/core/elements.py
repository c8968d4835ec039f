"""BYTES elements: a 4-byte little-endian length, then that many bytes, element after element.

Specification: "For BYTES type an element is represented by a 4-byte unsigned integer giving the length followed by the
actual bytes." The count comes from the shape, the total from `binary_data_size`, and both must come out exactly: every
prefix is checked against what is left, also the last one. Nothing is allocated on a prefix's word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcodec.core.errors import ErrorCode, LocalProtocolError, NotRepresentableError, RemoteProtocolError

PREFIX_BYTES = 4
_MAX_ELEMENT_BYTES = (1 << 32) - 1


def decode_elements(buffer: memoryview, *, count: int, offset: int) -> np.ndarray[Any, Any]:
    """Cut the wire form of a BYTES tensor into its elements.

    Args:
        buffer: the whole tensor, byte for byte.
        count: number of elements, the product of the shape.
        offset: of the tensor in the message body, for errors.

    Returns:
        An object array of shape [count] with `bytes` elements.

    Raises:
        RemoteProtocolError: `invalid-elements`, with the offset of the prefix that does not fit.
    """
    elements: list[bytes] = []
    position = 0
    for index in range(count):
        start = position + PREFIX_BYTES
        if start > len(buffer):
            msg = f"element {index} of {count} starts {len(buffer) - position} bytes before the tensor's end"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_ELEMENTS, offset=offset + position)
        length = int.from_bytes(buffer[position:start], "little")
        if length > len(buffer) - start:
            msg = f"element {index} of {count} declares {length} bytes, {len(buffer) - start} are left"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_ELEMENTS, offset=offset + position)
        position = start + length
        elements.append(bytes(buffer[start:position]))
    if position != len(buffer):
        msg = f"{len(buffer) - position} bytes are left over after {count} elements"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_ELEMENTS, offset=offset + position)
    array = np.empty(count, dtype=object)
    array[:] = elements
    return array


def encode_elements(array: np.ndarray[Any, Any]) -> bytes:
    """Return the wire form of a BYTES tensor.

    Args:
        array: any shape; elements are `bytes`-like, or `str`, which is written as UTF-8.

    Raises:
        LocalProtocolError: an element is something else, or longer than 4 GiB.
    """
    parts: list[bytes] = []
    for element in _elements(array):
        if len(element) > _MAX_ELEMENT_BYTES:
            msg = f"an element of a BYTES tensor has {len(element)} bytes; the length prefix ends at 4 GiB"
            raise LocalProtocolError(msg)
        parts += (len(element).to_bytes(PREFIX_BYTES, "little"), element)
    return b"".join(parts)


def elements_as_text(array: np.ndarray[Any, Any]) -> list[str]:
    """Return the elements as the strings of the JSON form.

    Raises:
        NotRepresentableError: an element is not UTF-8.
        LocalProtocolError: an element is neither bytes nor text.
    """
    try:
        return [str(element, "utf-8") for element in _elements(array)]
    except UnicodeDecodeError:
        msg = "a BYTES element is not UTF-8, which JSON needs; use the binary form"
        raise NotRepresentableError(msg) from None


def _elements(array: np.ndarray[Any, Any]) -> list[bytes]:
    return [_as_bytes(element) for element in array.reshape(-1).tolist()]


def _as_bytes(element: object) -> bytes:
    match element:
        case bytes():
            return element
        case str():
            try:
                return element.encode()
            except UnicodeEncodeError:
                msg = "an element of a BYTES tensor is a str with a lone surrogate, which has no UTF-8 form"
                raise LocalProtocolError(msg) from None
        case bytearray() | memoryview():
            return bytes(element)
        case _:
            msg = f"elements of a BYTES tensor are bytes or str, not {type(element).__name__}"
            raise LocalProtocolError(msg)
