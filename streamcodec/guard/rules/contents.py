"""Contents: checks the bytes of binary tensors while they pass, and keeps none of them.

The JSON header says which tensor each byte belongs to. A byte of a BOOL tensor must be 0 or 1. The length prefixes of a
BYTES tensor must lead from one to the next, and exactly to the end of the tensor. All other datatypes permit any bytes.

A piece may end anywhere, also within a prefix. What is remembered from piece to piece has a fixed size. The work on a
piece grows with its length only: 64 KiB of empty elements take about 2 ms. So pieces of BYTES are shorter. Sans-IO.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.limits import Limits, check_element_bytes
from streamcodec.engine.spec import TensorSpec
from streamcodec.guard.pieces import PIECE_BYTES

_PREFIX_BYTES: Final = 4
_ELEMENTS_BYTES: Final = 128 << 10
_unpack: Final = struct.Struct("<I").unpack_from


class _ContentCheck(Protocol):
    """Checks one tensor."""

    def take(self, part: memoryview, left: int) -> None:
        """Take the next bytes, after which `left` bytes of the tensor are to come."""
        ...


def has_checks(tensors: Sequence[TensorSpec]) -> bool:
    """Return whether `Contents` checks a byte of these tensors."""
    return any(spec.is_binary and (spec.datatype.is_bytes or spec.datatype.kind == "b") for spec in tensors)


class Contents:
    """Checks the tensors of one message.

    Attributes:
        nbytes: of all tensors.
        piece_bytes: length of the pieces whose check does not delay others.
    """

    def __init__(self, tensors: Sequence[TensorSpec], header_length: int, limits: Limits) -> None:
        """Begin at the end of the JSON header.

        Args:
            tensors: of the header, in order.
            header_length: bytes before the first tensor, for the offsets of errors.
            limits: `max_element_bytes` applies.
        """
        self._tensors: deque[tuple[int, _ContentCheck | None]] = deque()
        self._left = 0
        offset = header_length
        for spec in tensors:
            check = _check_of(spec, offset, limits)
            if spec.nbytes:
                self._tensors.append((spec.nbytes, check))
            offset += spec.nbytes
        self.nbytes: int = offset - header_length
        has_elements = any(isinstance(check, _ElementsCheck) for _, check in self._tensors)
        self.piece_bytes: int = _ELEMENTS_BYTES if has_elements else PIECE_BYTES

    def check(self, piece: memoryview) -> None:
        """Check the next bytes.

        Args:
            piece: of the tensors, and not more than they have.

        Raises:
            RemoteProtocolError: `invalid-bool` or `invalid-elements`, with the offset in the body.
            LimitExceededError: an element is longer than `max_element_bytes`.
        """
        while piece:
            nbytes, check = self._tensors[0]
            left = self._left or nbytes
            part, piece = piece[:left], piece[left:]
            self._left = left - len(part)
            if check is not None:
                check.take(part, self._left)
            if not self._left:
                self._tensors.popleft()


def _check_of(spec: TensorSpec, offset: int, limits: Limits) -> _ContentCheck | None:
    """Return the check of a tensor; None if there is nothing to check, as for JSON tensors."""
    if not spec.is_binary:
        return None
    if spec.datatype.is_bytes:
        return _ElementsCheck(spec.count, offset, limits)
    return _BooleansCheck(offset) if spec.datatype.kind == "b" else None


class _BooleansCheck:
    """BOOL: "true is a single byte with value 1 and false is a single byte with value 0"."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def take(self, part: memoryview, left: int) -> None:  # noqa: ARG002 - every byte is an element
        values = np.frombuffer(part, np.uint8)
        if values.max() > 1:
            msg = "a byte of a BOOL tensor is neither 0 nor 1"
            offset = self._offset + int(np.argmax(values > 1))
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_BOOL, offset=offset)
        self._offset += len(part)


class _ElementsCheck:
    """BYTES: "a 4-byte unsigned integer giving the length followed by the actual bytes", for each element."""

    def __init__(self, count: int, offset: int, limits: Limits) -> None:
        self._count = count
        self._offset = offset
        self._limits = limits
        self._index = 0
        self._begun = b""
        self._ahead = 0

    def take(self, part: memoryview, left: int) -> None:
        """Go from prefix to prefix, as far as they have come."""
        position = self._ahead
        if self._begun:
            position = _PREFIX_BYTES - len(self._begun)
            self._begun += part[:position]
            if len(self._begun) < _PREFIX_BYTES and left:
                self._offset += len(part)
                return
            if len(self._begun) == _PREFIX_BYTES:
                position = self._element(self._begun, 0, position - _PREFIX_BYTES, len(part) + left)
                self._begun = b""
        position = self._walk(part, position, len(part) + left)
        self._ahead = max(0, position - len(part))
        if not self._begun and position < len(part):
            self._begun = bytes(part[position:])
        self._offset += len(part)
        if not left and (self._index < self._count or self._begun):
            self._refuse_end()

    def _walk(self, part: memoryview, position: int, whole: int) -> int:
        """Go from a prefix to the last one that is whole in this part; return where the next one starts."""
        end, index, most = len(part) - _PREFIX_BYTES, self._index, self._limits.max_element_bytes
        while position <= end and index < self._count:
            length = _unpack(part, position)[0]
            following = position + _PREFIX_BYTES + length
            if length > most or following > whole:
                break
            position = following
            index += 1
        self._index = index
        # The loop is all that most elements need: 0.1 us for each. If a prefix is left, it is wrong.
        return position if position > end else self._element(part, position, position, whole)

    def _element(self, data: bytes | memoryview, place: int, start: int, whole: int) -> int:
        """Read a prefix; return where the next one starts.

        Args:
            data: holds the prefix.
            place: of the prefix in `data`.
            start: of the prefix in the current part; negative if it began in an earlier one.
            whole: bytes of the tensor from the start of the current part on.
        """
        if self._index == self._count:
            msg = f"{whole - start} bytes are left over after {self._count} elements"
            raise self._invalid(msg, start)
        length = int(_unpack(data, place)[0])
        end = start + _PREFIX_BYTES + length
        if end > whole:
            rest = whole - start - _PREFIX_BYTES
            msg = f"element {self._index} of {self._count} declares {length} bytes, {rest} are left"
            raise self._invalid(msg, start)
        check_element_bytes(length, self._limits, offset=self._offset + start)
        self._index += 1
        return end

    def _refuse_end(self) -> None:
        start = -len(self._begun)
        if self._index == self._count:
            msg = f"{len(self._begun)} bytes are left over after {self._count} elements"
        else:
            msg = f"element {self._index} of {self._count} starts {len(self._begun)} bytes before the tensor's end"
        raise self._invalid(msg, start)

    def _invalid(self, message: str, start: int) -> RemoteProtocolError:
        return RemoteProtocolError(message, code=ErrorCode.INVALID_ELEMENTS, offset=self._offset + start)
