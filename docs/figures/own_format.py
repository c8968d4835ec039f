"""A file of our own format with 64 MiB of samples, read at once and by a format: `python own_format.py`."""

import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from measured import MIB, compare

from streamcodec import (
    DATATYPES,
    Decoder,
    EndOfMessage,
    ErrorCode,
    Reader,
    Reading,
    RemoteProtocolError,
    TensorSpec,
    WindowReceived,
    Windows,
    format_decoder,
)
from streamcodec.transports.files import next_event

FILE = Path(tempfile.gettempdir(), "own_format.samples")
FP32 = DATATYPES["FP32"]


def before() -> float:
    data = FILE.read_bytes()
    if data[:4] != b"WAVE":
        raise ValueError(data[:4])
    count = int.from_bytes(data[4:12], "little")
    return float(np.frombuffer(data[12:], np.float32, count).sum())


def read_samples(reader: Reader) -> Reading[SimpleNamespace]:
    head = yield from reader.read(12)
    if bytes(head[:4]) != b"WAVE":
        raise RemoteProtocolError("the file does not begin with WAVE", code=ErrorCode.INVALID_HEADER, offset=0)
    count = int.from_bytes(head[4:], "little")
    spec = TensorSpec(name="samples", datatype=FP32, shape=(count,), nbytes=4 * count, offset=12)
    return SimpleNamespace(tensors=(spec,))


def samples_decoder() -> Decoder[SimpleNamespace]:
    return format_decoder(read_samples, place=lambda _: Windows(max_window_bytes=MIB))


def after() -> float:
    decoder, total = samples_decoder(), 0.0
    with FILE.open("rb", buffering=0) as file:
        while not isinstance(event := next_event(file, decoder), EndOfMessage):
            if isinstance(event, WindowReceived):
                total += float(event.array.sum())
    return total


if __name__ == "__main__":
    samples = np.ones(16 * MIB, np.float32)
    with FILE.open("wb") as file:
        file.writelines([b"WAVE", len(samples).to_bytes(8, "little"), samples.data])
    try:
        compare({"read() and frombuffer": before, "a format, in windows": after})
    finally:
        FILE.unlink()
