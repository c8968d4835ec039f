"""Forms: what a file is, by its first bytes. If they fit nothing, its name decides; else it is a body."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from streamcodec.inspection.places import top_names


class Form(StrEnum):
    """What can be inspected."""

    HTTP_REQUEST = "HTTP request"
    HTTP_RESPONSE = "HTTP response"
    REQUEST = "request body"
    RESPONSE = "response body"
    FRAME = "frame"
    SAFETENSORS = "safetensors"
    NPY = "npy"
    NPZ = "npz"


FRAME_MAGIC: Final = b"\x89V2F"
_MAGICS: Final = {b"HTTP/1.": Form.HTTP_RESPONSE, FRAME_MAGIC: Form.FRAME, b"\x93NUMPY": Form.NPY, b"PK": Form.NPZ}
_SUFFIXES: Final = {".safetensors": Form.SAFETENSORS, ".npy": Form.NPY, ".npz": Form.NPZ}
_REQUEST_LINE: Final = re.compile(rb"(?:\r\n)?[A-Za-z!#$%&'*+.^_`|~-]{1,20} \S* ?HTTP/")
_LENGTH_BYTES: Final = 8
_MOST_HEADER_BYTES: Final = 100_000_000
_SAMPLE_BYTES: Final = 64 << 10


def recognise(start: bytes, name: str) -> Form:
    """Return what a file is.

    Args:
        start: its first bytes.
        name: of the file.
    """
    for magic, form in _MAGICS.items():
        if start.startswith(magic):
            return form
    if _REQUEST_LINE.match(start):
        return Form.HTTP_REQUEST
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length <= _MOST_HEADER_BYTES and start[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{":
        return Form.SAFETENSORS
    by_name = next((form for suffix, form in _SUFFIXES.items() if name.lower().endswith(suffix)), None)
    return by_name or body_form(start)


def body_form(start: bytes) -> Form:
    """Return whether a body is one of a request or of a response; a request has `inputs`."""
    names = top_names(start[:_SAMPLE_BYTES])
    return Form.RESPONSE if "outputs" in names and "inputs" not in names else Form.REQUEST


def is_inference(start: bytes) -> bool:
    """Tell whether a JSON document is an inference response, and not metadata or an error."""
    names = top_names(start[:_SAMPLE_BYTES])
    return "outputs" in names and not names & {"inputs", "platform", "versions"}
