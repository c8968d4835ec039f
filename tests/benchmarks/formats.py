"""64 MiB of each small format from a socket: `python -m tests.benchmarks.formats`.

Next to a bare `recv_into` of the same bytes into new memory, and next to the format's own loader, which needs all bytes
at once. npz has a second yardstick: a bare receive that also computes the CRC-32, as a reader of archives must.

Time and CPU are those of the receiver. Each measurement has a process of its own. The process is forked, so the first
use of an object copies its page: 1.6 to 4 ms for the code of a format, and almost nothing for a bare loop. A user's
process does not have this cost. So all sides first receive a small message. Memory is what the process needs in
addition to what it had before. Both sides of a pair take turns; the table has medians.
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
from zlib import crc32

import numpy as np
from safetensors.numpy import load

from streamcodec import EndOfMessage
from streamcodec.formats import npy, safetensors
from streamcodec.transports import sync

_NBYTES: Final = 64 << 20
_FIRST_NBYTES: Final = 64 << 10
"""Of the array of the small message that is received first. The socket can hold it."""
_ROUNDS: Final = 16
_SLICE_BYTES: Final = 1 << 20
Receive = Callable[[socket.socket, int], object]


def _bare(sock: socket.socket, nbytes: int) -> object:
    return _received(sock, nbytes, lambda _: None)


def _checked(sock: socket.socket, nbytes: int) -> object:
    return _received(sock, nbytes, crc32)


def _received(sock: socket.socket, nbytes: int, check: Callable[[memoryview], object]) -> object:
    size = _NBYTES if nbytes > _NBYTES else _FIRST_NBYTES
    sock.recv(nbytes - size, socket.MSG_WAITALL)  # so that the array begins where it does, off the borders of pages
    target = np.empty(size, np.uint8).data
    position = checked = 0
    while position < size:
        position += sock.recv_into(target[position:])
        while checked + _SLICE_BYTES <= position:
            check(target[checked : checked + _SLICE_BYTES])
            checked += _SLICE_BYTES
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
    first, data = (b"".join(encode(np.ones(size // 4, np.float32)).buffers) for size in (_FIRST_NBYTES, _NBYTES))
    ours, theirs = socket.socketpair()
    ways: dict[str, Receive] = {
        "ours": receive,
        "bare": _bare,
        "checked": _checked,
        "loader": lambda sock, _: loader(sock.makefile("rb").read()),
    }
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def run() -> None:
        theirs.close()
        _receive_first(ways[way], first)
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


def _receive_first(receive: Receive, message: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(message)
        receive(ours, len(message))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    """Print the table."""
    print("| format | time: bare / ours | CPU: ours / bare | time: loader / ours | memory: ours, loader |")
    print("| --- | --- | --- | --- | --- |")
    for name in sys.argv[1:] or FORMATS:
        yardsticks = ("bare", "checked") if name == "npz" else ("bare",)
        ways = (*yardsticks, "ours", "loader")
        orders = (ways, ways[::-1])  # what runs next to the loader has a busier machine
        rounds = [{way: _measured(name, way) for way in orders[index % 2]} for index in range(_ROUNDS)]
        gain = median(each["loader"][0] / each["ours"][0] for each in rounds)
        memory = [median(each[way][2] for each in rounds) / (1 << 20) for way in ("ours", "loader")]
        for yardstick in yardsticks:
            speed = median(each[yardstick][0] / each["ours"][0] for each in rounds)
            work = median(each["ours"][1] / each[yardstick][1] for each in rounds)
            row = name if yardstick == "bare" else f"{name}, bare with CRC-32"
            print(f"| {row} | {speed:.2f} | {work:.2f} | {gain:.1f} | {memory[0]:.0f} MiB, {memory[1]:.0f} MiB |")
        if "checked" in ways:
            cost = median(each["checked"][1] - each["bare"][1] for each in rounds)
            print(f"\nCRC-32 of {_NBYTES >> 20} MiB: {cost * 1e3:.0f} ms of CPU, {_NBYTES / cost / 1e9:.1f} GB/s.")


if __name__ == "__main__":
    main()
