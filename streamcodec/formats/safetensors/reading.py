"""Reading: the format as a generator, and what is checked of its JSON text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError, shown
from streamcodec.engine.format import format_decoder
from streamcodec.engine.json.text import cut_path, parse_json
from streamcodec.engine.limits import Limits, check_shape
from streamcodec.engine.placement import scratch_bytes
from streamcodec.engine.reader import Fill, Reader, Reading
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.safetensors.dtypes import NUMPY_NAMES, find_datatype

LENGTH_BYTES: Final = 8
_MOST_HEADER_BYTES: Final = 100_000_000
"""The format's own limit."""
METADATA: Final = "__metadata__"
_DELIMITERS: Final = (1 << 16, 64)
"""Of the text, altogether and for each tensor: more than any file has. They bound the memory of its values."""
_ENTRIES_PER_TURN: Final = 256


@record()
class Header:
    """What the JSON text of a file says."""

    tensors: tuple[TensorSpec, ...]
    """In the order of their bytes."""
    metadata: Mapping[str, str]
    """`__metadata__`; empty where there is none."""


def read(reader: Reader) -> Reading[Header]:
    """Read the header of a file: the format, for `format_decoder`.

    Raises:
        RemoteProtocolError: the header breaks a rule of the format, or does not fit the length of the file.
        LimitExceededError: over a limit of the reader's.
    """
    length = int.from_bytes((yield from reader.read(LENGTH_BYTES)), "little")
    if length > _MOST_HEADER_BYTES:
        msg = f"the header has {length} bytes, the format allows {_MOST_HEADER_BYTES}"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER_LENGTH, offset=0)
    text = bytes((yield from reader.read(length)))
    yield from reader.turn()
    root = _parse(text, reader.limits)
    metadata = _read_metadata(root.pop(METADATA, None))
    entries = []
    for index, (name, entry) in enumerate(root.items()):
        if index % _ENTRIES_PER_TURN == 0:
            yield from reader.turn()
        entries.append(_read_entry(name, entry, reader.limits))
    tensors = _in_order(entries, reader.position)
    end = reader.position + sum(spec.nbytes for spec in tensors)
    if reader.length not in {None, end}:
        msg = f"the file has {reader.length} bytes, its header and tensors need {end}"
        raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(reader.length or 0, end))
    return Header(tensors=tensors, metadata=MappingProxyType(metadata))


def read_end(reader: Reader) -> Fill:
    """Insist that the input ends with the last tensor; without this, the next file may follow at once."""
    if reader.length is None and (yield from reader.look_ahead(scratch_bytes(1))):
        raise reader.trailing_bytes()


decoder: Final = partial(format_decoder, read, read_end=read_end)
"""Make a decoder for a file; the arguments are those of `format_decoder`."""


def _parse(text: bytes, limits: Limits) -> dict[str, Any]:
    """Parse the JSON text into an object."""
    if not text.startswith(b"{"):
        msg = "the header does not begin with a brace"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, offset=LENGTH_BYTES)
    most = _DELIMITERS[0] + _DELIMITERS[1] * limits.max_tensors
    if sum(map(text.count, (b",", b":", b"[", b"{"))) > most:
        msg = f"the header has more than {most} values and delimiters, too many for {limits.max_tensors} tensors"
        raise LimitExceededError(msg, limit="max_tensors")
    try:
        root, constants = parse_json(text, limits)
    except RemoteProtocolError as error:
        if error.offset is not None:
            error.offset += LENGTH_BYTES
        raise
    if constants:
        msg = "the header holds NaN or Infinity"
        raise RemoteProtocolError(msg, code=ErrorCode.NON_FINITE_NUMBER)
    return root  # type: ignore[no-any-return]  # an object, by its first byte


def _read_metadata(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if type(value) is not dict or not all(type(text) is str for text in value.values()):
        msg = "the metadata are not an object of strings"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"$.{METADATA}")
    return value


def _read_entry(name: str, entry: object, limits: Limits) -> tuple[int, int, str, Datatype, tuple[int, ...]]:
    """Check what stands alone in an entry; return begin, end, name, datatype and shape."""
    path = _path(name)
    if type(entry) is not dict or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        msg = "a tensor is not an object with dtype, shape and data_offsets"
        raise RemoteProtocolError(msg, code=ErrorCode.MISSING_MEMBER, path=path)
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_sizes(shape):
        msg = "a shape is not an array of integers >= 0"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_SHAPE, path=f"{path}.shape")
    check_shape(shape, limits, f"{path}.shape")
    if not _are_sizes(offsets) or len(offsets) != 2:  # noqa: PLR2004 - begin and end
        msg = "data_offsets are not two integers >= 0"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{path}.data_offsets")
    return offsets[0], offsets[1], name, _datatype(entry["dtype"], f"{path}.dtype"), tuple(shape)


def _are_sizes(values: object) -> bool:
    return type(values) is list and all(type(value) is int and 0 <= value < 1 << 64 for value in values)


def _in_order(entries: list[tuple[int, int, str, Datatype, tuple[int, ...]]], start: int) -> tuple[TensorSpec, ...]:
    """Check that the tensors fill the file from this place on; return them in the order of their bytes."""
    tensors = []
    position = 0
    for begin, end, name, datatype, shape in sorted(entries, key=lambda entry: entry[:2]):
        spec = TensorSpec(name=name, datatype=datatype, shape=shape, nbytes=end - begin, offset=start + begin)
        if begin != position:
            msg = f"the tensor begins at byte {begin} of the data, the one before it ends at byte {position}"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{_path(name)}.data_offsets")
        if spec.nbytes != spec.count * datatype.itemsize:
            msg = f"data_offsets have {end - begin} bytes, dtype and shape need {spec.count * datatype.itemsize}"
            raise RemoteProtocolError(msg, code=ErrorCode.BINARY_SIZE_MISMATCH, path=f"{_path(name)}.data_offsets")
        tensors.append(spec)
        position = end
    return tuple(tensors)


def _path(name: str) -> str:
    return cut_path(f"$[{shown(name)}]")


def _datatype(name: object, path: str) -> Datatype:
    datatype = find_datatype(name) if type(name) is str and name in NUMPY_NAMES else None
    if datatype is None:
        text = shown(name) if type(name) is str else "this"
        msg = f"dtype {text} has no elements of whole bytes that numpy or ml_dtypes, if it is installed, knows"
        raise RemoteProtocolError(msg, code=ErrorCode.UNKNOWN_DATATYPE, path=path)
    return datatype
