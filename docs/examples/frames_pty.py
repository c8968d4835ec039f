"""A device on a serial line, here a pty: it sends frames, the line damages some, and the reader goes on behind them."""

from __future__ import annotations

import os
import subprocess
import sys
import tty

import numpy as np

from streamcodec import EndOfMessage, TensorReceived, encode_request
from streamcodec.formats.frame import FrameReader, Kind, Skipped, encode_frame, request_frame_decoder
from streamcodec.transports.files import next_event

LAST = 6


def on_the_line(number: int, frame: bytes) -> bytes:
    match number:
        case 1:  # a bit has changed
            return frame[:500] + bytes([frame[500] ^ 1]) + frame[501:]
        case 3:  # bytes are lost: the beginning of the next frame is read as the end of this one, and is lost, too
            return frame[:500] + frame[505:]
        case 5:  # noise before the frame
            return b"noise" + frame
        case _:
            return frame


def send() -> None:
    for number in range(LAST + 1):
        message = encode_request({"reading": np.full(1000, number, np.float32)})
        frame = b"".join(encode_frame(message, Kind.REQUEST).buffers)
        sys.stdout.buffer.write(on_the_line(number, frame))


def receive() -> None:
    ours, theirs = os.openpty()
    tty.setraw(theirs)  # else a terminal changes bytes
    with subprocess.Popen([sys.executable, __file__, "send"], stdout=theirs), os.fdopen(ours, "rb", 0) as line:  # noqa: S603
        frames = FrameReader(request_frame_decoder)
        reading = found = -1.0
        while reading < LAST:
            event = next_event(line, frames)
            if isinstance(event, TensorReceived):
                found = event.array.mean()  # to be used when the checksum was right
            elif isinstance(event, EndOfMessage):
                reading = found
                print(reading)
            elif isinstance(event, Skipped):
                print(event.nbytes, "bytes skipped:", event.error)


if __name__ == "__main__":
    send() if sys.argv[1:] else receive()
