"""Frames of 64 MiB over a socket pair, with and without checksum, next to a bare `recv_into` of as many bytes.

The sender is another process that sends the same bytes in each round. The yardstick knows the lengths, receives in the
same pieces, and into the same memory. The second one computes `zlib.crc32` of what has come as well, in slices of 1
MiB: what a checksum costs by itself.

Run it alone with `python -m tests.benchmarks.frames`.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from streamcodec import EndOfMessage, Into, encode_request
from streamcodec.formats.frame import Checksum, Kind, encode_frame, request_frame_decoder
from streamcodec.transports import source, sync
from tests.benchmarks.measure import Sample, in_turn, print_table, ratios

MIB = 1 << 20
_FORK = multiprocessing.get_context("fork")  # so that nothing is copied for the sender
Bytes = npt.NDArray[np.uint8]
Receive = Callable[[socket.socket], None]
BARE, FRAME, BARE_CRC, FRAME_CRC = "recv_into", "frame", "recv_into and crc32", "frame with CRC-32"
YARDSTICKS = {FRAME: BARE, BARE_CRC: BARE, FRAME_CRC: BARE_CRC}


def _bare(sock: socket.socket, head: int, array: Bytes, tail: int, *, has_checksum: bool) -> None:
    checksum = summed = 0
    for view in (memoryview(bytearray(head)), array.data, memoryview(bytearray(tail))):
        position = 0
        while position < len(view):
            rest = view[position:]
            position += sock.recv_into(rest, min(len(rest), source.READ_BYTES))
            while has_checksum and summed + MIB <= position:
                checksum = zlib.crc32(view[summed : summed + MIB], checksum)
                summed += MIB


def _frame(sock: socket.socket, array: Bytes) -> None:
    decoder = request_frame_decoder(place=lambda _: Into(array))
    while not isinstance(sync.next_event(sock, decoder), EndOfMessage):
        pass


def _timed(parts: list[bytes | memoryview], receive: Receive) -> Sample:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = _FORK.Process(target=sync.send, args=(theirs, parts))
        sender.start()
        cpu, wall = time.thread_time(), time.perf_counter()
        receive(ours)
        sample = Sample(wall=time.perf_counter() - wall, cpu=time.thread_time() - cpu)
        sender.join()
    return sample


def measure(rounds: int, nbytes: int = 64 * MIB) -> dict[str, list[Sample]]:
    """Measure all ways in turn."""
    message = encode_request({"x": np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)})
    array = np.empty(nbytes, np.uint8)
    ways = {}
    for checksum, names in ((Checksum.NONE, (BARE, FRAME)), (Checksum.CRC32, (BARE_CRC, FRAME_CRC))):
        frame = encode_frame(message, Kind.REQUEST, checksum)
        tail = 4 * (checksum is Checksum.CRC32)
        head = frame.nbytes - nbytes - tail
        bare = partial(_bare, head=head, array=array, tail=tail, has_checksum=bool(tail))
        parts = [*frame.buffers]
        ways[names[0]] = partial(_timed, parts, bare)
        ways[names[1]] = partial(_timed, parts, partial(_frame, array=array))
    return in_turn(ways, rounds)


def main(rounds: int = 9) -> None:
    """Print the table."""
    samples = measure(rounds)
    rows = []
    for name, taken in samples.items():
        base = samples[YARDSTICKS.get(name, BARE)]
        values = [float(np.median([getattr(sample, kind) for sample in taken])) for kind in ("wall", "cpu")]
        shares = [
            float(np.median(ratios([getattr(s, kind) for s in taken], [getattr(s, kind) for s in base])))
            for kind in ("wall", "cpu")
        ]
        yardstick = YARDSTICKS.get(name, "")
        rows.append((name, *(f"{value * 1e3:.1f} ms" for value in values), yardstick, *(f"{x:.2f}" for x in shares)))
    print_table(("64 MiB", "time", "CPU", "next to", "time ratio", "CPU ratio"), rows)


if __name__ == "__main__":
    main()
