"""Processes: what another process costs, as Linux tells it under /proc."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path


def announced(lines: Iterable[str]) -> str:
    """Read what `streamcodec serve` prints until it says where it listens; return that URL, or nothing if it ends."""
    start = "listening on "
    return next((line.strip().removeprefix(start) for line in lines if line.startswith(start)), "")


def cpu_clock(pid: int) -> Callable[[], float]:
    """Return the clock of a process's CPU time: all its threads, those that have ended included, in seconds."""
    number = (~pid << 3) | 2  # what clock_getcpuclockid() of the C library makes of a process id
    return lambda: time.clock_gettime(number)


def scheduled(pid: int) -> tuple[float, float]:
    """Return for how many seconds a process's first thread has run, and for how many it was ready and others ran."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


def resident(pid: int) -> int:
    """Return how many bytes of a process's memory are in RAM now."""
    return _status(pid, "VmRSS")


def peak_resident(pid: int) -> int:
    """Return how many there have been at most, since the start or since `forget_peak`."""
    return _status(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Let the peak begin anew from what is in RAM now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
