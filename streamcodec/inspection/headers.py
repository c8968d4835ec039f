"""Headers: where the text of a header stands in a message, what it declares, and how it is shown.

The length of a JSON header is declared outside of a body. Without it, the end of the JSON object is searched for. But
writers put blanks behind the object, so that tensors are aligned, and a blank could as well be the first byte of a
tensor. If the length of the body is known, it decides, as far as that is plausible; else an alignment of 64 does.
"""

from __future__ import annotations

import json
import re
from typing import Final

from streamcodec.engine.errors import MessageError
from streamcodec.engine.json.depth import too_deep_at
from streamcodec.engine.json.objectend import WHITE_SPACE, ObjectEnd
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.header.parsing import parse_request_header, parse_response_header
from streamcodec.formats.v2.model import RequestHeader, ResponseHeader
from streamcodec.inspection.forms import Form
from streamcodec.inspection.report import HeaderText
from streamcodec.inspection.tape import Tape

_MOST_CHARACTERS: Final = 64 << 10
_READ_BYTES: Final = 1 << 20
FRAME_HEAD_BYTES: Final = 24
_ALIGNMENT: Final = 64
_LEAST_ALIGNMENT: Final = 8
LIMITS: Final = Limits(max_tensor_bytes=1 << 62, max_message_bytes=1 << 62)
"""A report may well be about a message that is too large for a server."""
_NUMBERS: Final = re.compile(r'\[\n([^\[\]{}"]*+)\]')
"""A list of plain values, which the indented form spreads over many lines."""


def header_extent(form: Form, tape: Tape, header_length: int | None) -> tuple[int, int] | None:
    """Return begin and end of the text of the header; None if its end is not known.

    Args:
        form: of the message.
        tape: its bytes.
        header_length: as declared, for a V2 message.
    """
    if form is Form.SAFETENSORS:
        return 8, 8 + int.from_bytes(tape.between(0, 8), "little")
    if form is Form.NPY:
        size = 2 if tape.between(6, 7) == b"\1" else 4
        return 8 + size, 8 + size + int.from_bytes(tape.between(8, 8 + size), "little")
    if form is Form.NPZ or header_length == 0:
        return None
    if form is Form.FRAME:
        length = int.from_bytes(tape.between(12, 16), "little")
        return FRAME_HEAD_BYTES, FRAME_HEAD_BYTES + length
    end = _object_end(tape.between(0, _READ_BYTES)) if header_length is None else header_length
    return None if end is None else (0, end)


def declared_header(text: bytes, *, is_response: bool) -> RequestHeader | ResponseHeader | None:
    """Return what a V2 header declares; None if it is not valid by itself."""
    try:
        return (parse_response_header if is_response else parse_request_header)(text, LIMITS)
    except MessageError:
        return None


def found_header_length(beginning: bytes, body_length: int | None, *, is_response: bool) -> int | None:
    """Return the length of a header that is followed by blanks; None if it ends with its JSON object, or is not valid.

    Args:
        beginning: the first bytes of the body.
        body_length: of the whole body; None if it is not known.
        is_response: whether it is the header of a response.
    """
    end = _object_end(beginning)
    header = None if end is None else declared_header(beginning[:end], is_response=is_response)
    if end is None or header is None:
        return None
    blanks = len(beginning[end:]) - len(beginning[end:].lstrip(WHITE_SPACE))
    if body_length is not None:
        length = body_length - sum(spec.nbytes for spec in header.tensors)
        if end < length <= end + blanks and (length == end + blanks or length % _LEAST_ALIGNMENT == 0):
            return length
    padding = -end % _ALIGNMENT
    return end + padding if 0 < padding <= blanks else None


def header_bytes(tape: Tape, extent: tuple[int, int] | None) -> bytes:
    """Return the bytes of a header, as far as they are kept; of a header without known end, all bytes."""
    begin, end = (0, _READ_BYTES) if extent is None else extent
    return tape.between(begin, min(end, begin + _READ_BYTES, max(tape.count, begin)))


def header_text(form: Form, tape: Tape, extent: tuple[int, int] | None) -> HeaderText | None:
    """Return the header as it is shown; None if there is none."""
    if extent is None:
        return None
    data, nbytes = header_bytes(tape, extent), extent[1] - extent[0]
    text = data.decode("latin-1" if form is Form.NPY else "utf-8", "replace")
    if form is not Form.NPY and len(data) == nbytes:
        text = _indented(text)
    is_cut = len(data) < nbytes or len(text) > _MOST_CHARACTERS
    return HeaderText(text=text[:_MOST_CHARACTERS], nbytes=nbytes, is_cut=is_cut) if nbytes else None


def _indented(text: str) -> str:
    """Indent JSON, unless it is so long or so deep that it would become very large."""
    if len(text) > _MOST_CHARACTERS or too_deep_at(text.encode(), LIMITS.max_json_depth) is not None:
        return text
    try:
        lines = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", lines)


def _object_end(text: bytes) -> int | None:
    try:
        return ObjectEnd().find(memoryview(text))
    except MessageError:
        return None
