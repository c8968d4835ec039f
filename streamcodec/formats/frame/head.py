"""The head of a frame: 24 bytes with the kind and the lengths of the message, and a check of the head itself.

The check is a CRC-32 of the bytes after it. It finds a damaged length before that length is used. It also lets a reader
that has lost its place recognize the beginning of a frame among other bytes. A CRC usually stands at the end, but not
here. The CRC of bytes that are followed by their own CRC is always the same. So a checksum over the whole frame would
not depend on the content of the head.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import Final
from zlib import crc32

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.record import record

MAGIC: Final = b"\x89V2F"
VERSION: Final = 1
CHECKSUM_BYTES: Final = 4

_START: Final = struct.Struct("<4sI")
_FIELDS: Final = struct.Struct("<4BIQ")
HEAD_BYTES: Final = _START.size + _FIELDS.size
"""Length of a head: 24."""


class Kind(IntEnum):
    """The kind of message in a frame."""

    REQUEST = 0
    RESPONSE = 1


class Checksum(IntEnum):
    """The checksum at the end of a frame."""

    NONE = 0
    CRC32 = 1
    """The CRC-32 of zlib, gzip and Ethernet, over head and body."""


@record(eq=True)
class FrameHead:
    """The head of a frame."""

    kind: Kind
    checksum: Checksum
    body_length: int
    """Bytes of the V2 message: its JSON header and its tensors."""
    header_length: int
    """Bytes of the JSON header; at least 1, at most `body_length`."""

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame."""
        return HEAD_BYTES + self.body_length + CHECKSUM_BYTES * (self.checksum is not Checksum.NONE)

    def write(self) -> bytes:
        """Return the bytes of the head."""
        fields = _FIELDS.pack(VERSION, self.kind, self.checksum, 0, self.header_length, self.body_length)
        return _START.pack(MAGIC, crc32(fields)) + fields


def is_checked(data: bytes) -> bool:
    """Tell whether bytes begin with the magic and have a correct check. Damaged or other bytes hardly ever do."""
    magic, check = _START.unpack_from(data)
    return bool(magic == MAGIC) and check == crc32(data[_START.size :])


def read_head(data: bytes) -> FrameHead:
    """Read the head of a frame.

    Args:
        data: exactly `HEAD_BYTES`.

    Raises:
        RemoteProtocolError: `invalid-frame`, with the offset of the first field that is wrong.
    """
    magic, check = _START.unpack_from(data)
    version, kind, checksum, reserved, header_length, body_length = _FIELDS.unpack_from(data, _START.size)
    if magic != MAGIC:
        raise _invalid("no frame begins here", 0)
    if check != crc32(data[_START.size :]):
        raise _invalid("the head of the frame is damaged: its check is wrong", 4)
    if version != VERSION:
        raise _invalid(f"the frame has version {version}; only {VERSION} is known", 8)
    if kind not in _KINDS:
        raise _invalid(f"the frame's kind is {kind}, which is neither a request (0) nor a response (1)", 9)
    if checksum not in _CHECKSUMS:
        raise _invalid(f"the frame's checksum is of kind {checksum}, which is neither none (0) nor CRC-32 (1)", 10)
    if reserved:
        raise _invalid("the reserved byte is not 0", 11)
    if not 0 < header_length <= body_length:
        raise _invalid(f"the JSON header has {header_length} of the body's {body_length} bytes; it has 1 to all", 12)
    return FrameHead(kind=Kind(kind), checksum=Checksum(checksum), body_length=body_length, header_length=header_length)


_KINDS: Final = frozenset(Kind)
_CHECKSUMS: Final = frozenset(Checksum)

CANDIDATE: Final = re.compile(
    re.escape(MAGIC) + rb"[\0-\xff]{4}" + b"\\x%02x[%b][%b]\\0" % (VERSION, bytes(Kind), bytes(Checksum))
)
"""What a head begins with: the magic, any check, and the four fields behind it with values that are known."""

CANDIDATE_BYTES: Final = 12
"""Length of what the pattern matches."""


def _invalid(message: str, offset: int) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.INVALID_FRAME, offset=offset)
