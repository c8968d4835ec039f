"""The records of a zip file: their layout, for reading (see `unzipping`) and writing."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from streamcodec.engine.record import record

LOCAL: Final = b"PK\3\4"
CENTRAL: Final = b"PK\1\2"
LONG_END: Final = b"PK\6\6"
LOCATOR: Final = b"PK\6\7"
END: Final = b"PK\5\6"

LOCAL_FIELDS: Final = Struct("<5H3I2H")
"""After the signature: version, flags, method, time, date; CRC-32, compressed and whole size; bytes of name, extra."""
CENTRAL_FIELDS: Final = Struct("<6H3I5H2I")
"""The version that made it, what LOCAL has, bytes of comment, disk, internal and external attributes, offset."""
LONG_END_FIELDS: Final = Struct("<Q2H2I4Q")
"""Bytes that follow, versions, disks, entries here and in all, bytes and offset of the directory."""
LOCATOR_FIELDS: Final = Struct("<IQI")
"""Disk, offset of the long end, disks."""
END_FIELDS: Final = Struct("<4H2IH")
"""Disks, entries here and in all, bytes and offset of the directory, bytes of comment."""

UTF8: Final = 0x800
"""The only flag that is understood: the name is UTF-8."""
LONG: Final = 0xFFFFFFFF
"""The number stands in the extra field."""
LONG_COUNT: Final = 0xFFFF
LONG_FROM: Final = (1 << 31) - 1
"""From here on, Python's `zipfile` uses long fields."""

_VERSION: Final = 45
"""With long fields."""
_MADE_BY_UNIX: Final = 3 << 8
_FIRST_DATE: Final = 1 << 5 | 1
"""1980-01-01: files of equal arrays are equal."""
_MODE: Final = 0o600 << 16


@record(eq=True)
class Entry:
    """A member of the archive."""

    name: str
    crc: int
    nbytes: int
    offset: int
    """Of its local header."""


def name_bytes(entry: Entry) -> tuple[bytes, int]:
    """Return a member's name as it is written, and the flags that say how."""
    return entry.name.encode(), 0 if entry.name.isascii() else UTF8


def local_header(entry: Entry) -> bytes:
    """Write the local header of a member. Sizes are always in long fields."""
    name, flags = name_bytes(entry)
    fields = LOCAL_FIELDS.pack(_VERSION, flags, 0, 0, _FIRST_DATE, entry.crc, LONG, LONG, len(name), 20)
    return LOCAL + fields + name + _extra([entry.nbytes, entry.nbytes])


def directory(entries: Sequence[Entry], offset: int) -> bytes:
    """Write the directory and the other records at the end of the archive."""
    central = b"".join(map(_central_header, entries))
    count, size = len(entries), len(central)
    end = b""
    if count >= LONG_COUNT or offset > LONG_FROM or size > LONG_FROM:
        fields = LONG_END_FIELDS.pack(LONG_END_FIELDS.size - 8, _VERSION, _VERSION, 0, 0, count, count, size, offset)
        end = LONG_END + fields + LOCATOR + LOCATOR_FIELDS.pack(0, offset + size, 1)
        count, size, offset = min(count, LONG_COUNT), min(size, LONG), min(offset, LONG)
    return central + end + END + END_FIELDS.pack(0, 0, count, count, size, offset, 0)


def _central_header(entry: Entry) -> bytes:
    name, flags = name_bytes(entry)
    size, offset = entry.nbytes, entry.offset
    is_long, is_far = size > LONG_FROM, offset > LONG_FROM
    extra = _extra([size, size] * is_long + [offset] * is_far) if is_long or is_far else b""
    short = LONG if is_long else size
    fields = CENTRAL_FIELDS.pack(
        *(_VERSION | _MADE_BY_UNIX, _VERSION, flags, 0, 0, _FIRST_DATE, entry.crc, short, short, len(name), len(extra)),
        *(0, 0, 0, _MODE, LONG if is_far else offset),
    )
    return CENTRAL + fields + name + extra


def _extra(values: Sequence[int]) -> bytes:
    return Struct(f"<2H{len(values)}Q").pack(1, 8 * len(values), *values)
