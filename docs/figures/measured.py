"""What the scripts of this folder share: two ways to do one thing, measured and printed as a table of two lines.

Each way runs in processes of its own, forked from this one. The first call gives the peak of memory, above what the
process had before. The second gives the time, when all that is imported late has been imported. Linux tells the memory.
"""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

MIB = 1 << 20
_STATUS = Path("/proc/self/status")
_FORGET_PEAK = Path("/proc/self/clear_refs")


def compare(ways: dict[str, Callable[[], object]], *, rounds: int = 2) -> None:
    """Run each way so often, by turns, and print the least time and memory of each; all must return the same."""
    found: dict[str, list[tuple[object, float, int]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(_in_a_process(way))
    if len({repr(result) for runs in found.values() for result, _, _ in runs}) > 1:
        sys.exit(f"the results differ: {found}")
    rows = []
    for name, runs in found.items():
        seconds, peak = min(run[1] for run in runs), min(run[2] for run in runs)
        rows.append((name, f"{seconds * 1000:.1f} ms", f"{peak / MIB:.1f} MiB"))
    table(("", "time", "peak memory"), rows)


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a heading; the first column holds words, the others figures."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    for first, *others in (heading, *rows):
        cells = [cell.rjust(width + 3) for cell, width in zip(others, widths[1:], strict=True)]
        print((first.ljust(widths[0]) + "".join(cells)).rstrip())


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """Run `streamcodec serve` on a free port until the block ends; yield its URL."""
    command = [sys.executable, "-m", "streamcodec", "serve", "--port", "0", "--no-access-log", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"listening on (\S+)", process.stdout.readline())
            assert found is not None, "the server has ended"
            yield found[1]
        finally:
            process.terminate()


def _in_a_process(way: Callable[[], object]) -> tuple[object, float, int]:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(way, there))
    process.start()
    there.close()
    try:
        result: tuple[object, float, int] = here.recv()
    except EOFError:
        sys.exit("a way failed; its traceback is above")
    process.join()
    return result


def _measure(way: Callable[[], object], connection: Connection) -> None:
    _FORGET_PEAK.write_text("5")
    before = _kib("VmRSS")
    result = way()
    peak = (_kib("VmHWM") - before) << 10
    began = time.perf_counter()
    way()
    connection.send((result, time.perf_counter() - began, peak))


def _kib(field: str) -> int:
    return int(_STATUS.read_text(encoding="ascii").partition(f"{field}:")[2].split()[0])
