"""Reading one array: the format as a generator, and the text of its header."""

from __future__ import annotations

import re
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.engine.format import format_decoder
from streamcodec.engine.limits import check_extent, check_shape
from streamcodec.engine.memory.placement import Place, new_array
from streamcodec.engine.reader import Reader, Reading
from streamcodec.engine.record import record
from streamcodec.engine.spec import NOTHING, TensorSpec
from streamcodec.formats.npy.order import in_its_order

MAGIC: Final = b"\x93NUMPY"
_LENGTH_BYTES: Final = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
"""Of the length of the text, by version."""
_MOST_TEXT_BYTES: Final = 10_000
"""As numpy has it."""

_FORTRAN: Final = MappingProxyType({"fortran_order": True})

_SPACE: Final = r"[ \t\r\n]*"
_DICT: Final = re.compile(rf"[ \t]*\{{([^{{}}]*)\}}{_SPACE}")
_MEMBER: Final = re.compile(
    rf"""{_SPACE}(['"])(descr|fortran_order|shape)\1{_SPACE}:{_SPACE}"""
    rf"""('[^'\\\r\n]*'|"[^"\\\r\n]*"|True|False|\([^()]*\)|\[)(?:(?<=\[)|{_SPACE}(?:,{_SPACE}|\Z))"""
)
_DESCR: Final = re.compile(r"[<>|][biufcmMSUV][0-9]{1,8}(\[[0-9]{0,4}[a-zA-Z]{1,2}\])?")
_SIZE: Final = rf"(?:0|[1-9][0-9]{{0,18}}){_SPACE}"
_SHAPE: Final = re.compile(rf"\({_SPACE}(?:{_SIZE},{_SPACE})*(?:{_SIZE})?\)")


@record()
class NpyHeader:
    """The description of one array, or of no array at the end of an archive."""

    tensors: tuple[TensorSpec, ...]
    """The array, with `fortran_order` in its parameters if it is in that order; empty at the end of an archive."""


def read(reader: Reader, name: str = "array") -> Reading[NpyHeader]:
    """Read the header of an array: the format, for `format_decoder`.

    Args:
        reader: reads the message.
        name: name for the array.

    Raises:
        RemoteProtocolError: the header breaks a rule of the format, or does not fit the length of the file.
        LimitExceededError: over a limit of the reader's.
    """
    start = bytes((yield from reader.read(len(MAGIC) + 2)))
    length_bytes = _LENGTH_BYTES.get((start[-2], start[-1]))
    if not start.startswith(MAGIC) or length_bytes is None:
        msg = "the message does not begin as an npy file of version 1.0, 2.0 or 3.0 does"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, offset=0)
    length = int.from_bytes((yield from reader.read(length_bytes)), "little")
    if length > _MOST_TEXT_BYTES:
        msg = f"the header has {length} bytes, {_MOST_TEXT_BYTES} are allowed, as by numpy"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER_LENGTH, offset=len(start))
    text = str((yield from reader.read(length)), "latin-1")  # in every version, text that is not ASCII is refused below
    members = _parse(text)
    shape = _read_shape(members["shape"])
    check_shape(shape, reader.limits, "shape")
    datatype = _read_datatype(members["descr"][1:-1])
    check_extent(shape, datatype.itemsize, "shape")
    spec = TensorSpec(
        name=name,
        datatype=datatype,
        shape=shape,
        nbytes=prod(shape) * datatype.itemsize,
        offset=reader.position,
        parameters=_FORTRAN if members["fortran_order"] == "True" else NOTHING,
    )
    end = reader.position + spec.nbytes
    if reader.length not in {None, end}:
        msg = f"the file has {reader.length} bytes, its header and array need {end}"
        raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(reader.length or 0, end))
    return NpyHeader(tensors=(spec,))


def decoder(*, place: Place = new_array, **options: Any) -> Decoder[NpyHeader]:  # noqa: ANN401 - those of `format_decoder`
    """Make a decoder for one array, which is called "array"; another may follow it if no `length` is given.

    Args:
        place: returns the placement of the array. For an array in Fortran order, the transpose is placed: use
            `Into(array.T)` for memory of your own.
        options: all other options of `format_decoder`.
    """
    return format_decoder(read, place=in_its_order(place), **options)


def _parse(text: str) -> dict[str, str]:
    """Return the text of each member of the dict."""
    whole = _DICT.fullmatch(text)
    content = whole[1] if whole else ""
    members: dict[str, str] = {}
    position = 0
    while position < len(content) or len(members) < len(_KINDS):
        member = _MEMBER.match(content, position)
        if member is None or member[3][0] not in _KINDS[member[2]]:
            msg = "the header is not the text of a dict of descr, fortran_order and shape"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, path=member and member[2])
        if member[2] in members:
            msg = f"the header has the member {member[2]} twice"
            raise RemoteProtocolError(msg, code=ErrorCode.DUPLICATE_KEY, path=member[2])
        if member[3] == "[":
            raise _no_datatype("of several fields")
        members[member[2]] = member[3]
        position = member.end()
    return members


_KINDS: Final = {"descr": "'\"[", "fortran_order": "TF", "shape": "("}
"""The beginning of a member's text. A list is a structure, which is refused as a datatype."""


def _read_shape(text: str) -> tuple[int, ...]:
    if _SHAPE.fullmatch(text) is None or ("," not in text and text.strip("( \t\r\n)")):
        msg = "shape is not a tuple of integers >= 0"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_SHAPE, path="shape")
    return tuple(int(size) for size in text.strip("()").split(",") if size.strip())


def _read_datatype(descr: str) -> Datatype:
    try:
        if _DESCR.fullmatch(descr):
            return Datatype(descr, np.dtype(descr))
    except (TypeError, ValueError, LocalProtocolError):
        pass  # not a dtype, or a dtype without bytes
    raise _no_datatype(shown(descr))


def _no_datatype(words: str) -> RemoteProtocolError:
    msg = f"descr {words} is no dtype of plain values; objects and structures are not read"
    return RemoteProtocolError(msg, code=ErrorCode.UNKNOWN_DATATYPE, path="descr")
