"""Frames between the tests and the KServe script: 4 bytes of length, little-endian, then that much JSON."""

from __future__ import annotations

import json
from typing import IO, Any

_PREFIX_BYTES = 4


def write_frame(stream: IO[bytes], value: object) -> None:
    """Write one frame and flush."""
    data = json.dumps(value).encode()
    stream.write(len(data).to_bytes(_PREFIX_BYTES, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:  # noqa: ANN401 - any JSON value
    """Read one frame; None at the end of the stream."""
    prefix = stream.read(_PREFIX_BYTES)
    if len(prefix) < _PREFIX_BYTES:
        return None
    return json.loads(stream.read(int.from_bytes(prefix, "little")))
