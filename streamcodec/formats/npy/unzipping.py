"""Reading the records of a zip file, in the forms that `archive` accepts."""

from __future__ import annotations

from struct import Struct

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError, shown
from streamcodec.engine.reader import Reader, Reading
from streamcodec.formats.npy.zipping import (
    CENTRAL,
    CENTRAL_FIELDS,
    END,
    END_FIELDS,
    LOCAL_FIELDS,
    LOCATOR,
    LOCATOR_FIELDS,
    LONG,
    LONG_COUNT,
    LONG_END,
    LONG_END_FIELDS,
    UTF8,
    Entry,
)

_ALL_LONG = (0, 0, LONG_COUNT, LONG_COUNT, LONG, LONG, 0)


def read_local_header(reader: Reader, offset: int) -> Reading[tuple[Entry, int]]:
    """Read the local header of a member, after its signature.

    Args:
        reader: reads the archive.
        offset: of the signature, from the start of the archive.

    Returns:
        The member, and the smallest number of bytes for its entry in the directory.

    Raises:
        RemoteProtocolError: the member is compressed or encrypted, or its size is not declared.
    """
    fields = yield from _read_fields(reader, LOCAL_FIELDS)
    _, flags, method, _, _, crc, packed, size, name_length, extra_length = fields
    name = _decoded(bytes((yield from reader.read(name_length))), flags)
    extra = bytes((yield from reader.read(extra_length)))
    if method or flags & ~UTF8:
        raise refused(name, "is compressed, encrypted, or of unknown size", ErrorCode.UNSUPPORTED_ENCODING)
    numbers = _with_long_values((size, packed), extra)
    if numbers is None or numbers[0] != numbers[1]:
        raise refused(name, "has no one size", ErrorCode.INVALID_MEMBER)
    entry = Entry(name=name, crc=crc, nbytes=numbers[0], offset=offset)
    return entry, len(CENTRAL) + CENTRAL_FIELDS.size + name_length


def read_central_header(reader: Reader) -> Reading[Entry | None]:
    """Read a member's entry in the directory; None if it has a form that is not accepted."""
    fields = yield from _read_fields(reader, CENTRAL_FIELDS)
    _, _, flags, method, _, _, crc, packed, size, name_length, extra_length, comment_length, disk, _, _, offset = fields
    name = _decoded(bytes((yield from reader.read(name_length))), flags)
    extra = bytes((yield from reader.read(extra_length)))
    numbers = _with_long_values((size, packed, offset), extra)
    if numbers is None or numbers[0] != numbers[1] or method or flags & ~UTF8 or comment_length or disk:
        return None
    return Entry(name=name, crc=crc, nbytes=numbers[0], offset=numbers[2])


def read_end_records(reader: Reader, signature: bytes, count: int, size: int, offset: int) -> Reading[bool]:
    """Read the records after the directory; return whether they describe this directory, without a comment."""
    ends: list[tuple[int, ...]] = [(0, 0, count, count, size, offset, 0)]
    if signature == LONG_END:
        long_end = yield from _read_fields(reader, LONG_END_FIELDS)
        signature = bytes((yield from reader.read(len(LOCATOR))))
        locator = yield from _read_fields(reader, LOCATOR_FIELDS)
        if (long_end[0], long_end[3:]) != (LONG_END_FIELDS.size - 8, (0, 0, count, count, size, offset)):
            return False
        if signature != LOCATOR or locator != (0, offset + size, 1):
            return False
        signature = bytes((yield from reader.read(len(END))))
        short = min(count, LONG_COUNT)
        ends = [(0, 0, short, short, min(size, LONG), min(offset, LONG), 0), _ALL_LONG]
    return signature == END and (yield from _read_fields(reader, END_FIELDS)) in ends


def _decoded(name: bytes, flags: int) -> str:
    """Decode the name of a member, as `zipfile` does."""
    try:
        return name.decode("utf-8" if flags & UTF8 else "cp437")
    except UnicodeDecodeError:
        msg = "the name of a member of the archive is not UTF-8"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_UTF8) from None


def _with_long_values(values: tuple[int, ...], extra: bytes) -> tuple[int, ...] | None:
    """Return the numbers of a record. Numbers that are marked as long are taken from the extra field.

    Returns None if the extra field has not exactly these numbers. `zipfile` of Python 3.11.3 and older writes both
    sizes in the extra field and in their own fields; then they have to be equal.
    """
    long, count = _long_values(extra), values.count(LONG)
    if long and not count:
        return values if long == values[:2] else None
    if long is None or len(long) != count:
        return None
    numbers = iter(long)
    return tuple(next(numbers) if value == LONG else value for value in values)


def _long_values(extra: bytes) -> tuple[int, ...] | None:
    """Return the numbers of the extra field's long values, () if there is none; None if it is damaged, or repeated."""
    long: tuple[int, ...] = ()
    while len(extra) >= 4:  # noqa: PLR2004 - kind and length
        kind, size = Struct("<2H").unpack(extra[:4])
        if kind == 1:
            if long or len(extra) - 4 < size or size % 8:
                return None
            long = Struct(f"<{size // 8}Q").unpack(extra[4 : 4 + size])
        extra = extra[4 + size :]
    return long


def refused(name: str, words: str, code: ErrorCode) -> RemoteProtocolError:
    """Return the error for a member that is not accepted."""
    return RemoteProtocolError(f"member {shown(name)} of the archive {words}", code=code)


def _read_fields(reader: Reader, fields: Struct) -> Reading[tuple[int, ...]]:
    return fields.unpack((yield from reader.read(fields.size)))
