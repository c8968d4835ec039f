"""Writing: arrays and archives, byte for byte as numpy writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

import numpy as np

from streamcodec.engine.datatypes import DATATYPES, Datatype
from streamcodec.engine.errors import LocalProtocolError, kind_of
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Message, Part, binary_form, message_of
from streamcodec.formats.npy.reading import MAGIC
from streamcodec.formats.npy.zipping import Entry, directory, local_header

_ALIGNMENT: Final = 64
_GROWTH_DIGITS: Final = 21
"""Digits that numpy reserves for a longer first (or last) dimension."""

_ARRAYS: Final[tuple[type, ...]] = (np.ndarray, Rows)


def encode(array: np.ndarray[Any, Any] | Rows) -> Message:
    """Write one array, in Fortran order if it is F-contiguous. C- and F-contiguous arrays are not copied.

    Big-endian arrays are written as little-endian ones. Types of `ml_dtypes` are written as numpy writes them: as bytes
    without a type.

    Raises:
        LocalProtocolError: the value is not an array, or has objects or structures.
    """
    if not isinstance(array, _ARRAYS):
        msg = f"values are a numpy array or Rows, not {kind_of(array)}"
        raise LocalProtocolError(msg)
    is_fortran = isinstance(array, np.ndarray) and array.flags.f_contiguous and not array.flags.c_contiguous
    dtype = DATATYPES[array.datatype].dtype if isinstance(array, Rows) else array.dtype.newbyteorder("<")
    datatype = Datatype(dtype.str, dtype)
    shape = array.shape
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': {is_fortran}, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(repr(shape[-1 if is_fortran else 0])))
    start = len(MAGIC) + 4
    length = len(text) + 1 + _ALIGNMENT - (start + len(text) + 1) % _ALIGNMENT
    header = MAGIC + b"\1\0" + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"
    values = array.T if isinstance(array, np.ndarray) and is_fortran else array
    return message_of(header, [binary_form(values, datatype)])


def encode_archive(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Message:
    """Write an uncompressed npz archive. A checksum precedes each array, so all arrays are read here.

    Args:
        arrays: arrays by name, without `.npy`. `Rows` are not possible: their checksum is not known beforehand.

    Raises:
        LocalProtocolError: a name that a zip file cannot have, or an array that `encode` refuses.
    """
    parts: list[Part] = []
    entries: list[Entry] = []
    position = 0
    for name, array in arrays.items():
        message, checksum = encode(array), 0
        if Rows in map(type, message.parts):
            msg = "Rows cannot be archived: their checksum comes before them"
            raise LocalProtocolError(msg)
        for buffer in message.buffers:
            checksum = crc32(buffer, checksum)
        entry = Entry(name=_member_name(name), crc=checksum, nbytes=message.nbytes, offset=position)
        header = local_header(entry)
        parts += [header, *message.parts]
        position += len(header) + message.nbytes
        entries.append(entry)
    end = directory(entries, position)
    return Message(parts=(*parts, end), nbytes=position + len(end))


def _member_name(name: str) -> str:
    try:
        length = len(f"{name}.npy".encode())
    except UnicodeEncodeError:
        length = 0
    if type(name) is not str or "\0" in name or not 0 < length < 1 << 16:
        msg = "the name of a member is a text of less than 65,536 bytes, without zeros"
        raise LocalProtocolError(msg)
    return f"{name}.npy"
