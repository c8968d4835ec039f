"""`streamcodec demo`: sends tensors over a real socket to a real server and back; checks them, and measures the costs.

Every figure is measured in this run. The server is a separate process, a new one for each measurement, so that its peak
memory belongs to that measurement only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from streamcodec.client import Client

_DESCRIPTION = """\
Start a server on loopback, stream a batch of images and a tensor of 256 MiB to it and back, check the answers bit for
bit, and print what it cost, next to the same as JSON. It takes half a minute and a gigabyte of memory.
"""

_MIB: Final = 1 << 20
_IMAGES: Final = (8, 224, 224, 3)
_LARGE: Final = (64, 1024, 1024)
_BINARY_RUNS: Final = 3
_JSON_ROWS: Final = 2
"""Rows of the large tensor that are sent as JSON; all of them would take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The costs of sending one tensor to the server and back."""

    nbytes: int
    """Bytes of the tensor."""
    seconds: float
    """From the call to the answer."""
    copied: int
    """Bytes of the answer that were copied in user space on receipt, in this process."""
    extra: int | None
    """Peak memory of the server above its idle state and above the tensor; None if the system does not report it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:  # noqa: ARG001 - the signature of every command
    """Measure and print."""
    values = np.random.default_rng(seed=0)
    images = values.random(_IMAGES, dtype=np.float32)
    large = values.random(_LARGE, dtype=np.float32)
    print(_row("tensor", "bytes", "time", "GB/s", "copies per byte", "peak above the tensor", "as JSON: time", "peak"))
    print(_row("---", *["--:"] * 7))
    for name, tensor, sample in (
        (f"FP32 {list(_IMAGES)}", images, images),
        (f"FP32 {list(_LARGE)}", large, large[:_JSON_ROWS]),
    ):
        binary = _measure(tensor, is_binary=True)
        text = _measure(sample, is_binary=False)
        print(_describe(name, binary, text), flush=True)
    print(
        "\nEach tensor went to the model `identity` and came back bit for bit. GB/s counts both ways; copies are those"
        "\nof the answer, in the client; peaks are the memory of the server, a fresh process each time, above its idle"
        f"\nstate. Times are medians of {_BINARY_RUNS} runs, as JSON of one; ~ was measured on {_JSON_ROWS} of"
        f" {_LARGE[0]} rows and scaled."
    )


def _measure(tensor: np.ndarray[Any, Any], *, is_binary: bool) -> Measurement:
    """Send a tensor to a fresh server and check that the same bits come back."""
    with _server() as (url, pid), Client(url) as client:
        client.infer("identity", {"x": tensor[:1, :1]}, is_binary=is_binary)
        idle, counted = _memory(pid, "VmRSS"), client.received_copied
        times = [_round_trip(client, tensor, is_binary=is_binary) for _ in range(_BINARY_RUNS if is_binary else 1)]
        peak = _memory(pid, "VmHWM")
        copied = (client.received_copied - counted) // len(times)
    # The idle memory may include memory that the first request has freed and the next one uses again.
    extra = None if idle is None or peak is None else max(0, peak - idle - tensor.nbytes)
    return Measurement(nbytes=tensor.nbytes, seconds=median(times), copied=copied, extra=extra)


def _round_trip(client: Client, tensor: np.ndarray[Any, Any], *, is_binary: bool) -> float:
    """Return how many seconds the round trip took; stop if the tensor comes back changed."""
    start = time.perf_counter()
    back = client.infer("identity", {"x": tensor}, is_binary=is_binary)["x"]
    seconds = time.perf_counter() - start
    if back.shape != tensor.shape or not np.array_equal(back.view(np.uint8), tensor.view(np.uint8)):
        raise SystemExit("the tensor came back changed")
    return seconds


@contextmanager
def _server() -> Iterator[tuple[str, int]]:
    """Run the demo server as a separate process; yield its URL and process id."""
    command = [sys.executable, "-m", "streamcodec", "serve", "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
        try:
            lines = process.stdout or ()
            url = next((line.split()[-1] for line in lines if line.startswith("listening on ")), None)
            if url is None:
                raise SystemExit("the demo server did not start")
            yield url, process.pid
        finally:
            process.terminate()


def _memory(pid: int, field: str) -> int | None:
    """Return a memory figure of a process in bytes; None if the system has no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(kibibytes) * 1024


def _describe(name: str, binary: Measurement, text: Measurement) -> str:
    scale = binary.nbytes / text.nbytes
    about = "" if scale == 1 else "~"
    text_peak = None if text.extra is None else (text.extra + text.nbytes) * scale - binary.nbytes
    return _row(
        name,
        f"{binary.nbytes:,}",
        _time(binary.seconds),
        f"{2 * binary.nbytes / binary.seconds / 1e9:.2f}",
        f"{binary.copied / binary.nbytes:.4f}",
        _mebibytes(binary.extra),
        about + _time(text.seconds * scale),
        about + _mebibytes(text_peak),
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _mebibytes(nbytes: float | None) -> str:
    return "n/a" if nbytes is None else f"{nbytes / _MIB:.1f} MiB"


def _row(first: str, *others: str) -> str:
    widths = (25, 11, 8, 5, 15, 21, 13, 12)
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"
