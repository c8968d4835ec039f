"""An upload over a link that breaks ten times, to a receiver that is killed once: `python resumed_upload.py 500` (MB).

Each connection begins with the header. The receiver answers with the offset at which the message goes on. That is the
offset of its decoder; after a restart of the receiver, it is the end of what its file holds for certain. Both sides
have one window or piece of the tensor in memory at a time. The last line compares the receiver's peak of memory with
that of a Python that has imported nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamcodec import (
    DEFAULT_LIMITS,
    Decoder,
    EncodedMessage,
    MemoryMap,
    RequestHeader,
    Rows,
    encode_request,
    parse_request_header,
    request_decoder,
)

ROW = 1 << 20
PEAK = "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])"


def encoded(rows: int) -> EncodedMessage:
    """The message is made again for each connection, window by window."""
    windows = (np.full((1, ROW), number % 251, np.uint8) for number in range(rows))
    return encode_request({"x": Rows("UINT8", (rows, ROW), windows)})


def receive(listener: socket.socket, target: MemoryMap) -> None:
    """Receive one message, over as many connections as it takes."""
    decoder: Decoder[RequestHeader] | None = None
    known = b""
    while decoder is None or not decoder.is_complete:
        sock, _ = listener.accept()
        with sock, sock.makefile("rb") as file:
            header = file.read(int(file.readline()))
            if decoder is None or header != known:  # this process has just started, or the message is another one
                decoder, known = begun(header, target), header
            sock.sendall(b"%d\n" % decoder.offset)
            while decoder.needs_data and (nbytes := sock.recv_into(decoder.get_buffer())):
                decoder.buffer_updated(nbytes)
    target.forget()


def begun(header: bytes, target: MemoryMap) -> Decoder[RequestHeader]:
    """Make a decoder that continues where the file's record ends."""
    (spec,) = parse_request_header(header, DEFAULT_LIMITS).tensors
    decoder = request_decoder(header_length=len(header), body_length=None, place=lambda _: target)
    decoder.feed(header)
    decoder.resume_at(len(header) + target.kept_bytes(spec))
    return decoder


def send(port: int, message: EncodedMessage, most: int) -> int:
    """Send at most so many bytes of the rest, as if the link broke then; return the receiver's offset at the start."""
    with socket.create_connection(("127.0.0.1", port)) as sock, sock.makefile("rb") as file:
        length = message.header_length or 0
        sock.sendall(b"%d\n" % length)
        sock.sendall(next(iter(message.buffers)))  # the header
        offset = int(file.readline())
        for buffer in limited(message.buffers_from(offset), most):
            sock.sendall(buffer)
        return offset


def limited(buffers: Iterator[bytes | memoryview], most: int) -> Iterator[bytes | memoryview]:
    for buffer in buffers:
        yield buffer[:most]
        most -= len(buffer)
        if most <= 0:
            return


def start(listener: socket.socket, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "receive", str(listener.fileno()), str(path)]
    return subprocess.Popen(command, pass_fds=[listener.fileno()], stdout=subprocess.PIPE, text=True)  # noqa: S603


def main(rows: int) -> None:
    """Send a tensor of so many MiB, and look at what has come."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        path, port = Path(folder, "x.npy"), listener.getsockname()[1]
        receiver = start(listener, path)
        nbytes = encoded(rows).body_length
        offsets: list[int] = []
        for number in range(11):
            if number == 5:  # noqa: PLR2004 - in the middle
                receiver.kill()
                receiver.communicate()
                receiver = start(listener, path)
            offsets.append(send(port, encoded(rows), nbytes if number == 10 else nbytes // 11))  # noqa: PLR2004
        peak = int(receiver.communicate()[0])
        bare = int(subprocess.check_output([sys.executable, "-c", PEAK]))  # noqa: S603
        values = np.load(path, mmap_mode="r")
        is_right = all((row == number % 251).all() for number, row in enumerate(values))
        print(f"{values.nbytes} bytes, {len(offsets) - 1} breaks, right: {is_right}, went on at {offsets}")
        print(f"peak {peak >> 10} MiB, bare {bare >> 10} MiB, {os.listdir(folder)}")  # noqa: PTH208


if sys.argv[1:2] == ["receive"]:
    with socket.socket(fileno=int(sys.argv[2])) as inherited:
        receive(inherited, MemoryMap(sys.argv[3], resume=True))
    exec(PEAK)  # noqa: S102 - as a bare Python says it
elif __name__ == "__main__":
    main(int(sys.argv[1]))
