"""A device on a serial line, here a pty: it sends frames, the line damages one, and the reader goes on behind it."""

from __future__ import annotations

import os
import subprocess
import sys
import tty

import numpy as np

from streamcodec import EndOfMessage, TensorReceived, encode_request
from streamcodec.formats.frame import FrameReader, Kind, Skipped, encode_frame, request_frame_decoder
from streamcodec.transports.files import next_event


def send() -> None:
    for number in range(3):
        message = encode_request({"reading": np.full(1000, number, np.float32)})
        frame = bytearray(b"".join(encode_frame(message, Kind.REQUEST).buffers))
        frame[500] ^= number == 1  # noise on the line
        sys.stdout.buffer.write(frame)


def receive() -> None:
    ours, theirs = os.openpty()
    tty.setraw(theirs)  # else a terminal changes bytes
    with subprocess.Popen([sys.executable, __file__, "send"], stdout=theirs), os.fdopen(ours, "rb", 0) as line:  # noqa: S603
        frames, readings, left = FrameReader(request_frame_decoder), [np.empty(0)], 3
        while left:
            event = next_event(line, frames)
            if isinstance(event, TensorReceived):
                readings = [event.array]  # to be used when the checksum was right
            elif isinstance(event, EndOfMessage | Skipped):
                left -= 1
                print(event.error if isinstance(event, Skipped) else readings[0].mean())


if __name__ == "__main__":
    send() if sys.argv[1:] else receive()
