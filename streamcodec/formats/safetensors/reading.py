"""Reading: the format as a generator, and the checks of its JSON text.

A paced decoder checks the tensors in pieces, but parses the text in one piece, because the parser cannot be paused. The
text of 16,384 tensors (1.2 MB) takes 0.07 s. The longest text that the default limits allow (64 MiB, most of it one
string or white space) takes 0.4 s. A server that must not wait that long lowers `max_header_bytes`: 6 ms for each MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError
from streamcodec.engine.format import format_decoder
from streamcodec.engine.json.text import parse_json
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import scratch_bytes
from streamcodec.engine.reader import Fill, Reader, Reading
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.safetensors.entries import ENTRIES_PER_TURN, in_order, read_entry

LENGTH_BYTES: Final = 8
_MOST_HEADER_BYTES: Final = 100_000_000
"""The format's own limit."""
METADATA: Final = "__metadata__"
_DELIMITERS: Final = (1 << 16, 64)
"""Values and delimiters of the text, in all and for each tensor: more than any file has. They bound its memory."""


@record()
class SafetensorsHeader:
    """The content of the JSON text of a file."""

    tensors: tuple[TensorSpec, ...]
    """The tensors, in the order of their bytes."""
    metadata: Mapping[str, str]
    """The member `__metadata__`; empty if there is none."""


def read(reader: Reader) -> Reading[SafetensorsHeader]:
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
    yield from reader.turn()
    metadata = _read_metadata(root.pop(METADATA, None))
    entries = []
    for index, (name, entry) in enumerate(root.items()):
        if index % ENTRIES_PER_TURN == 0:
            yield from reader.turn()
        entries.append(read_entry(name, entry, reader.limits))
    tensors = yield from reader.in_turns(in_order(entries, reader.position))
    end = reader.position + sum(spec.nbytes for spec in tensors)
    if reader.length not in {None, end}:
        msg = f"the file has {reader.length} bytes, its header and tensors need {end}"
        raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(reader.length or 0, end))
    return SafetensorsHeader(tensors=tensors, metadata=MappingProxyType(metadata))


def read_end(reader: Reader) -> Fill:
    """Check that the input ends with the last tensor. Without this check, the next file may follow at once."""
    if (yield from reader.look_ahead(scratch_bytes(1))):
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
