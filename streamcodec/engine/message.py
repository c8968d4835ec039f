"""The writing half of a format: a message as a list of buffers that are never joined.

A format makes the bytes of its header, and `binary_form` makes a part of each tensor: for C-contiguous little-endian
arrays the array's own memory, so writing costs the same for 64 bytes and for 64 gigabytes. The sender passes the
buffers to `sendmsg`. A tensor may also be `Rows`, an iterable of windows. Its shape is declared, so the length of the
message is known before the first byte is sent. Its bytes are made when it is the tensor's turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcodec.engine.arguments import whole
from streamcodec.engine.datatypes import DATATYPES, Datatype, datatype_of, to_wire
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.elements.payloads import encode_payloads
from streamcodec.engine.errors import LocalProtocolError, kind_of
from streamcodec.engine.memory.placement import byte_view, masked
from streamcodec.engine.memory.rows import Rows, row_buffers, synchronous
from streamcodec.engine.record import record

Part = bytes | memoryview | Rows
"""The parts of a body."""

Encodable = np.ndarray[Any, Any] | Rows | Elements
"""What a tensor can be written from."""


Values = npt.ArrayLike | Rows | Elements
"""What a user can give for a tensor; this includes everything that numpy converts to an array."""


@record()
class Message:
    """A message of any format, ready to be sent."""

    parts: tuple[bytes | memoryview | Rows, ...]
    """The message in order; never empty bytes. Views share the arrays' memory."""
    nbytes: int
    """Bytes of all parts together, also of those that do not exist yet."""

    @property
    def buffers(self) -> Iterable[bytes | memoryview]:
        """The message in order, as bytes that are never empty.

        Where a part is `Rows`, a view holds until the next one is asked for, so that windows may share their memory.

        Raises:
            LocalProtocolError: while iterating, if windows are not as declared: the bytes sent so far are not the
                beginning of a valid message. Before the first buffer, if windows are asynchronous.
        """
        return buffers_of(self.parts)

    def buffers_from(self, offset: int) -> Iterator[bytes | memoryview]:
        """Return the message from a byte on, for a receiver that has all bytes before it; nothing is copied.

        Windows of `Rows` are made again, and those before the offset are dropped. They have to be the same.

        Args:
            offset: where the receiver's next byte belongs: the `offset` of its decoder.

        Raises:
            LocalProtocolError: the message has no such place. While iterating, as for `buffers`.
        """
        return buffers_from(self.parts, self.nbytes, offset)


def message_of(header: bytes, parts: Sequence[tuple[Part, int]]) -> Message:
    """Put a message together.

    Args:
        header: all bytes before the first tensor.
        parts: of each tensor, as from `binary_form`.
    """
    filled = [part for part, nbytes in parts if nbytes]
    return Message(parts=(header, *filled), nbytes=len(header) + sum(nbytes for _, nbytes in parts))


def buffers_of(parts: tuple[Part, ...]) -> Iterable[bytes | memoryview]:
    """Return an iterable of the buffers of a message; each iteration starts anew."""
    return _StreamedBuffers(parts) if Rows in map(type, parts) else parts  # type: ignore[return-value] # no `Rows`


def buffers_from(parts: tuple[Part, ...], nbytes: int, offset: int) -> Iterator[bytes | memoryview]:
    """Return the buffers of a message from a byte on.

    Raises:
        LocalProtocolError: the offset is not one of the message's `nbytes`, nor its end.
    """
    start = whole(offset)
    if start is None or not 0 <= start <= nbytes:
        msg = f"a message of {nbytes} bytes has no byte {offset!r}"
        raise LocalProtocolError(msg)
    return _buffers_from(parts, start)


def _buffers_from(parts: tuple[Part, ...], offset: int) -> Iterator[bytes | memoryview]:
    first = 0
    while first < len(parts) and offset >= (size := _part_bytes(parts[first])):  # not even made
        offset -= size
        first += 1
    for buffer in buffers_of(parts[first:]):
        if offset < len(buffer):
            yield memoryview(buffer)[offset:] if offset else buffer
        offset = max(0, offset - len(buffer))


def _part_bytes(part: Part) -> int:
    return part.nbytes if isinstance(part, Rows) else len(part)


class _StreamedBuffers:
    """The buffers of a message, made anew by each iteration."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for part in self._parts:
            if isinstance(part, Rows):
                synchronous(part)  # or raises, before anything is sent
        return self._buffers()

    def _buffers(self) -> Iterator[bytes | memoryview]:
        for part in self._parts:
            if isinstance(part, Rows):
                yield from row_buffers(part)
            else:
                yield part


def binary_form(values: Encodable, datatype: Datatype | None = None) -> tuple[Part, int]:
    """Return the part of a message that holds a tensor, and its length in bytes.

    Args:
        values: the values to be written.
        datatype: the result of `datatype_of_values`, if it is known already.

    Raises:
        LocalProtocolError: the values have no such form.
    """
    if not isinstance(values, _DECLARED):
        is_bytes = (datatype or datatype_of_values(values)).is_bytes
        view = encode_payloads(values) if is_bytes else byte_view(to_wire(values))
        return view, len(view)
    return values if isinstance(values, Rows) else byte_view(values.data), values.nbytes


_ARRAYS = (np.ndarray, np.generic)
_DECLARED = (Rows, Elements)
"""Values that have a datatype attribute. A tuple: a union would be made anew by each call that uses it."""


def datatype_of_values(array: object) -> Datatype:
    """Return the datatype of what a tensor can be written from.

    Raises:
        LocalProtocolError: it is something else.
    """
    if isinstance(array, _ARRAYS):
        if type(array) is not np.ndarray and hasattr(array, "filled"):
            raise masked()
        return datatype_of(array.dtype)
    if isinstance(array, _DECLARED):
        return DATATYPES[array.datatype]
    msg = f"values are a numpy array, Rows or Elements, not {kind_of(array)}"
    raise LocalProtocolError(msg)
