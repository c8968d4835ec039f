"""64 MiB of each small format from a socket: `python -m tests.benchmarks.formats`.

Next to a bare `recv_into` of the same bytes into new memory, and next to the format's own loader, which needs all bytes
at once. Time and CPU are those of the receiver; memory is what a fresh process needs in addition to what it has
imported. Both sides of a pair take turns; the table has medians.
"""

from __future__ import annotations

import io
import multiprocessing
import resource
import socket
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import numpy as np
from safetensors.numpy import load

from streamcodec import EndOfMessage
from streamcodec.formats import npy, safetensors
from streamcodec.transports import sync

_NBYTES: Final = 64 << 20
_ROUNDS: Final = 5
Receive = Callable[[socket.socket, int], object]


def _bare(sock: socket.socket, nbytes: int) -> object:
    sock.recv(nbytes - _NBYTES, socket.MSG_WAITALL)  # so that the array begins where it does, off the borders of pages
    target = np.empty(_NBYTES, np.uint8).data
    position = 0
    while position < _NBYTES:
        position += sock.recv_into(target[position:])
    return target


def _drive(sock: socket.socket, decoder: Any) -> list[Any]:  # noqa: ANN401 - of any format
    events = []
    while not isinstance(event := sync.next_event(sock, decoder), EndOfMessage):
        events.append(event)
    return events


def _archive(sock: socket.socket, _: int) -> object:
    archive = npy.Archive()
    return [_drive(sock, archive.decoder()) for _ in iter(lambda: archive.is_complete, True)]


FORMATS: Final[dict[str, tuple[Callable[[Any], Any], Receive, Callable[[bytes], object]]]] = {
    "safetensors": (
        lambda array: safetensors.encode({"x": array}),
        lambda sock, nbytes: _drive(sock, safetensors.decoder(length=nbytes)),
        load,
    ),
    "npy": (
        npy.encode,
        lambda sock, nbytes: _drive(sock, npy.decoder(length=nbytes)),
        lambda data: np.load(io.BytesIO(data)),
    ),
    "npz": (lambda array: npy.encode_archive({"x": array}), _archive, lambda data: dict(np.load(io.BytesIO(data)))),
}
"""How each is written, received, and loaded by its own implementation."""


def _measured(name: str, way: str) -> tuple[float, float, int]:
    """Receive once in a process of its own; return time, CPU time and bytes."""
    encode, receive, loader = FORMATS[name]
    data = b"".join(encode(np.ones(_NBYTES // 4, np.float32)).buffers)
    ours, theirs = socket.socketpair()
    ways: dict[str, Receive] = {
        "ours": receive,
        "bare": _bare,
        "loader": lambda sock, _: loader(sock.makefile("rb").read()),
    }
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def run() -> None:
        theirs.close()
        before, peak = (time.perf_counter(), time.process_time()), _peak()
        result = ways[way](ours, len(data))
        results.put((time.perf_counter() - before[0], time.process_time() - before[1], _peak() - peak))
        del result

    process = context.Process(target=run)
    process.start()
    ours.close()
    theirs.sendall(data)
    theirs.close()
    measured: tuple[float, float, int] = results.get()
    process.join()
    return measured


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    """Print the table."""
    print("| format | time: bare / ours | CPU: ours / bare | time: loader / ours | memory: ours, loader |")
    print("| --- | --- | --- | --- | --- |")
    for name in sys.argv[1:] or FORMATS:
        rounds = [{way: _measured(name, way) for way in ("bare", "ours", "loader")} for _ in range(_ROUNDS)]
        speed = median(each["bare"][0] / each["ours"][0] for each in rounds)
        work = median(each["ours"][1] / each["bare"][1] for each in rounds)
        gain = median(each["loader"][0] / each["ours"][0] for each in rounds)
        memory = [median(each[way][2] for each in rounds) / (1 << 20) for way in ("ours", "loader")]
        print(f"| {name} | {speed:.2f} | {work:.2f} | {gain:.1f} | {memory[0]:.0f} MiB, {memory[1]:.0f} MiB |")


if __name__ == "__main__":
    main()
