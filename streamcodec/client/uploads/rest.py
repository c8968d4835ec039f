"""UploadRest: a message from a byte on, as the body of `PATCH` (draft-ietf-httpbis-resumable-upload)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamcodec.client.fields import Field
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Part
from streamcodec.formats.v2.encoder import EncodedMessage


class UploadRest:
    """The bytes of a message that the server does not have."""

    def __init__(self, message: EncodedMessage, offset: int) -> None:
        """Begin at a byte; it is the server's, and checked in `parts`."""
        self._message = message
        self._offset = offset

    @property
    def fields(self) -> list[Field]:
        """The fields of a request that brings all of it."""
        return [
            ("Content-Type", "application/partial-upload"),
            ("Upload-Offset", str(self._offset)),
            ("Upload-Complete", "?1"),
            ("Content-Length", str(self._nbytes)),
        ]

    def parts(self) -> tuple[Part, ...]:
        """Return the bytes: views of the arrays; windows are made again while they are sent.

        Raises:
            LocalProtocolError: the message has no such byte.
        """
        buffers = self._message.buffers_from(self._offset)
        if Rows in map(type, self._message.parts) and self._nbytes:
            return (Rows("UINT8", (self._nbytes,), _Windows(buffers)),)
        return tuple(buffers)

    @property
    def _nbytes(self) -> int:
        return self._message.body_length - self._offset


class _Windows:
    """Buffers as windows of one tensor of bytes."""

    def __init__(self, buffers: Iterator[bytes | memoryview]) -> None:
        self._buffers = buffers

    def __iter__(self) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
        return (np.frombuffer(buffer, np.uint8) for buffer in self._buffers)
