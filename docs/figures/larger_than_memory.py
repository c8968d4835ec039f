"""The mean of a tensor of 128 MiB in a file, as a whole and in windows: `python larger_than_memory.py`."""

import tempfile
from pathlib import Path

import numpy as np
from measured import MIB, compare

from streamcodec import EndOfMessage, WindowReceived, Windows
from streamcodec.formats import npy
from streamcodec.transports.files import next_event

FILE = Path(tempfile.gettempdir(), "larger_than_memory.npy")


def before() -> float:
    return float(np.load(FILE).sum())


def after() -> float:
    decoder = npy.decoder(place=lambda _: Windows(max_window_bytes=MIB))
    total = 0.0
    with FILE.open("rb", buffering=0) as file:
        while not isinstance(event := next_event(file, decoder), EndOfMessage):
            if isinstance(event, WindowReceived):
                total += float(event.array.sum())  # its memory is used again for the next window
    return total


if __name__ == "__main__":
    np.save(FILE, np.ones((32 << 10, 1024), np.float32))
    try:
        compare({"np.load": before, "windows of 1 MiB": after})
    finally:
        FILE.unlink()
