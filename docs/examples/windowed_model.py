"""A model for tensors of any size, and a call of it. Serve it here with `streamcodec serve windowed_model:MODEL`.

`python windowed_model.py [URL [ROWS]]` then sends it a tensor that is made row by row, and takes the answer row by row.
It prints a checksum of the answer, and the memory that this process has had at most. Neither process ever holds more of
a tensor than a few windows, so 8 GiB (2,097,152 rows) need no more than 64 MiB (16,384 rows). Needs Linux, which tells
how much memory a process has had.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamcodec import Rows, WindowReceived, Windows
from streamcodec.client import Client
from streamcodec.service import ANY_SIZE, InferenceRequest, Model, TensorMetadata

Window = np.ndarray[Any, np.dtype[np.float32]]

COLUMNS = 1024
ROWS_AT_ONCE = 256
WINDOWS = Windows(max_window_bytes=4 * COLUMNS * ROWS_AT_ONCE)


def double(request: InferenceRequest) -> Mapping[str, Rows]:
    """Declare an answer as large as the input; nothing of either is there yet."""
    x = request.rows["x"]
    return {"y": Rows("FP32", x.shape, map(doubled, x.windows))}


def doubled(window: Window) -> Window:
    """Double a window in its place: it is the model's until the next is asked for, and is sent before that."""
    window *= 2
    return window


MODEL = Model(
    name="double",
    predict=double,
    inputs=(TensorMetadata("x", "FP32", (ANY_SIZE, COLUMNS)),),
    outputs=(TensorMetadata("y", "FP32", (ANY_SIZE, COLUMNS)),),
    windows=WINDOWS,
)


class Sum:
    """A CRC-32 of bytes that come in pieces, however they are cut."""

    def __init__(self) -> None:
        """Begin without a byte."""
        self.value = 0

    def add(self, window: Window) -> None:
        """Go on with the bytes of some rows."""
        self.value = zlib.crc32(window.data, self.value)


def make_rows(count: int, expected: Sum) -> Iterator[Window]:
    """Yield so many rows, a window at a time and all in the same memory; add what they come back as to a sum."""
    window = np.empty((ROWS_AT_ONCE, COLUMNS), np.float32)
    for row in range(0, count, ROWS_AT_ONCE):
        part = window[: count - row]
        part[:] = np.arange(row, row + len(part), dtype=np.float32)[:, np.newaxis]
        expected.add(2 * part)
        yield part


def call(url: str, count: int) -> tuple[int, int]:
    """Have the server double a tensor; return the checksum of its answer, and the one that it should have."""
    received, expected = Sum(), Sum()
    x = Rows("FP32", (count, COLUMNS), make_rows(count, expected))
    with Client(url) as client, client.stream("double", {"x": x}, place=lambda _: WINDOWS) as events:
        for event in events:
            if isinstance(event, WindowReceived):
                received.add(event.array)
    return received.value, expected.value


def peak_bytes() -> int:
    """Return the memory that this process has had at most."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main() -> int:
    """Call the model; return the exit status."""
    parser = argparse.ArgumentParser(description="Call the model that this file describes.")
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000", help="default: %(default)s")
    parser.add_argument("rows", nargs="?", type=int, default=1 << 18, help="of 4 KiB each, default: %(default)s")
    options = parser.parse_args()
    before = peak_bytes()
    received, expected = call(options.url, options.rows)
    print(f"checksum {received:08x}, expected {expected:08x}")
    print(f"peak memory {peak_bytes() >> 20} MiB, {before >> 20} MiB before the call")
    return received != expected


if __name__ == "__main__":
    raise SystemExit(main())
