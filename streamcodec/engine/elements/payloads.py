"""Payloads: the Python objects of BYTES elements are checked and joined in one buffer.

Nearly always all objects are `bytes`. So that is checked first, for all objects at once. Only if it is not so, each
object is checked. Then the objects are joined with their lengths between them. If all have the same length, that length
is the separator. Else the separator is four zeros, and numpy writes the lengths there. Objects of 32 bytes take 65 ns
each in the first case and 100 ns in the second. A loop in Python takes 200 ns each, but is the quickest for a few
objects.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.engine.elements.prefixes import PREFIX_BYTES, Octets, Offsets, write_prefixes
from streamcodec.engine.errors import LocalProtocolError, NotRepresentableError

MAX_PAYLOAD_BYTES: Final = (1 << 32) - 1

NO_TEXT: Final = "a BYTES element is not UTF-8, which JSON needs; use the binary form"

_FEW: Final = 64
"""Up to this number of elements, a loop is quicker than numpy."""

_JOINED_COUNT: Final = 4 << 10
"""Elements that are joined at once: few enough to be still in the processor's cache after they were checked."""


def encode_payloads(array: np.ndarray[Any, Any]) -> bytes | memoryview:
    """Return the form that a BYTES tensor has on the wire.

    Args:
        array: any shape; elements are `bytes`-like, or `str`, which becomes UTF-8.

    Raises:
        LocalProtocolError: an element is something else, or longer than 4 GiB.
    """
    flat = array.reshape(-1)
    if len(flat) > _FEW:
        return join_payloads(flat)[1].data
    payloads = payloads_of(flat.tolist())
    parts: list[bytes] = []
    for payload in payloads:
        parts += (_prefix(len(payload)), payload)
    return b"".join(parts)


def join_payloads(array: np.ndarray[Any, Any]) -> tuple[Offsets, Octets]:
    """Put payloads into one memory, each behind its length.

    Args:
        array: of one dimension; elements are `bytes`-like, or `str`, which becomes UTF-8.

    Returns:
        offsets: where the lengths stand, of shape [count + 1]; the last one is the end.
        data: as on the wire.

    Raises:
        LocalProtocolError: an element is something else, or longer than 4 GiB.
    """
    if len(array) <= _JOINED_COUNT:
        return _joined(payloads_of(array.tolist()))
    offsets = np.zeros(len(array) + 1, np.int64)
    data = bytearray()
    for start in range(0, len(array), _JOINED_COUNT):
        ends, joined = _joined(payloads_of(array[start : start + _JOINED_COUNT].tolist()))
        offsets[start + 1 : start + len(ends)] = ends[1:] + len(data)
        data += joined.data
    return offsets, np.frombuffer(data, np.uint8)


def payloads_of(elements: list[Any]) -> list[bytes]:
    """Return the payloads of elements: of text, its UTF-8.

    Raises:
        LocalProtocolError: an element is neither bytes nor text.
    """
    if list(map(type, elements)).count(bytes) == len(elements):
        return elements
    try:
        return list(map(_payload, elements))
    except UnicodeEncodeError:
        msg = "an element of a BYTES tensor is a str with a lone surrogate, which has no UTF-8 form"
        raise LocalProtocolError(msg) from None


def payloads_as_text(elements: list[Any]) -> list[str]:
    """Return elements as the strings of the JSON form.

    Raises:
        NotRepresentableError: an element is not UTF-8.
        LocalProtocolError: an element is neither bytes nor text.
    """
    try:
        return [str(payload, "utf-8") for payload in payloads_of(elements)]
    except UnicodeDecodeError:
        raise NotRepresentableError(NO_TEXT) from None


def check_length(nbytes: int) -> None:
    """Refuse a payload whose length does not fit into the prefix.

    Raises:
        LocalProtocolError: it is longer than 4 GiB.
    """
    if nbytes > MAX_PAYLOAD_BYTES:
        msg = f"an element of a BYTES tensor has {nbytes} bytes; the length prefix ends at 4 GiB"
        raise LocalProtocolError(msg)


def _prefix(nbytes: int) -> bytes:
    check_length(nbytes)
    return nbytes.to_bytes(PREFIX_BYTES, "little")


def _joined(payloads: list[bytes]) -> tuple[Offsets, Octets]:
    """Put some payloads into one memory, as `join_payloads` does; the list is used up."""
    count, length = len(payloads), len(payloads[0]) if payloads else 0
    # Where lengths vary, the last is rarely that of the first; then the others need not be counted.
    if not payloads or (len(payloads[-1]) == length and list(map(len, payloads)).count(length) == count):
        data = np.frombuffer(_with_prefixes(_prefix(length), payloads), np.uint8)
        return np.arange(0, len(data) + 1, length + PREFIX_BYTES, dtype=np.int64), data
    lengths = np.fromiter(map(len, payloads), np.int64, count)
    check_length(int(lengths.max()))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths + PREFIX_BYTES, out=offsets[1:])
    data = np.frombuffer(_with_prefixes(bytearray(PREFIX_BYTES), payloads), np.uint8)
    write_prefixes(data, offsets[:-1], lengths)
    return offsets, data


def _with_prefixes(prefix: bytes | bytearray, payloads: list[bytes]) -> bytes | bytearray:
    payloads.insert(0, b"")  # so that there is one before the first, too
    return prefix.join(payloads)


def _payload(element: object) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes | bytearray | memoryview):
        return bytes(element)
    msg = f"elements of a BYTES tensor are bytes or str, not {type(element).__name__}"
    raise LocalProtocolError(msg)
