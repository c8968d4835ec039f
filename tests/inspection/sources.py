"""Sources of bytes in memory: as a file, and as a pipe that gives a few bytes at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcodec import encode_request, encode_response
from streamcodec.inspection import Report, examine


class Bytes:
    """Bytes as a file; as a pipe, if `piece` is given."""

    def __init__(self, data: bytes, name: str = "x.bin", *, piece: int | None = None) -> None:
        self.name = name
        self.nbytes = len(data) if piece is None else None
        self._data = data
        self._piece = piece or len(data) or 1
        self._position = 0

    def read(self, size: int) -> bytes:
        part = self._data[self._position : self._position + min(size, self._piece)]
        self._position += len(part)
        return part

    def read_at(self, start: int, size: int) -> bytes:
        return b"" if self.nbytes is None else self._data[start : start + size]


def inspected(data: bytes, **options: Any) -> Report:  # noqa: ANN401 - those of `examine`
    """Examine bytes as a file and as a pipe; both give the same report but for the length of the file."""
    return examine(Bytes(data), **options)


def request(**arrays: np.ndarray[Any, Any]) -> tuple[bytes, int]:
    """The body of a request, and the length of its header."""
    message = encode_request(arrays)
    return b"".join(message.buffers), message.header_length or 0


def response(**arrays: np.ndarray[Any, Any]) -> tuple[bytes, int]:
    """The body of a response, and the length of its header."""
    message = encode_response(arrays, model_name="m")
    return b"".join(message.buffers), message.header_length or 0


def http_request(body: bytes, *fields: str) -> bytes:
    """A whole request."""
    lines = ["POST /v2/models/m/infer HTTP/1.1", "Host: x", *fields]
    return "\r\n".join([*lines, "", ""]).encode() + body
