"""A tenth of a core: what takes how long on it. `python -m tests.devices.tenth`, as the superuser.

The server is in a control group (version 1) that may run for 1 ms of each 10, so it is a slow processor rather than a
fast one that stops. The client is outside of it.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

from tests.devices.processes import LARGE, PROGRAMS, Served, group, served
from tests.server.wire import GET_LIVE

_PERIOD: Final = 10_000
_QUOTA: Final = 1_000
"""Microseconds."""

_MANY: Final = 1_000_000

_CHECK_SECONDS: Final = 0.05
"""Between two health checks."""


def seconds(server: Served, request: bytes) -> float:
    """Return how long a request takes, which must be answered well."""
    began = time.monotonic()
    assert server.ask(request).status == 200
    return time.monotonic() - began


def checks_during(server: Served, request: bytes) -> tuple[float, list[float]]:
    """Return how long a request takes, and the health checks meanwhile."""
    took: list[float] = []
    thread = threading.Thread(target=lambda: took.append(seconds(server, request)))
    thread.start()
    checks = []
    while thread.is_alive():
        checks.append(seconds(server, GET_LIVE))
        time.sleep(_CHECK_SECONDS)
    thread.join()
    return took[0], checks


def main() -> None:
    """Print the table."""
    _say("| program | start | small request | 20 MB | a million JSON floats | health checks: median, p99, longest |")
    _say("| --- | --- | --- | --- | --- | --- |")
    for name in ("serve", "the same without extras", "threaded_server.py"):
        program = PROGRAMS[name]
        with group("cpu", cfs_period_us=_PERIOD, cfs_quota_us=_QUOTA) as limit:
            began = time.monotonic()
            with served(program, limit=limit) as server:
                start = time.monotonic() - began
                seconds(server, program.request(16))
                small = sorted(seconds(server, program.request(16)) for _ in range(20))
                large = seconds(server, program.request(LARGE // 4))
                many, checks = checks_during(server, program.request(_MANY, is_binary=False))
        checks.sort()
        marks = checks[len(checks) // 2], checks[len(checks) * 99 // 100], checks[-1]
        shown = ", ".join(f"{mark * 1e3:.0f}" for mark in marks)
        _say(f"| {name} | {start:.1f} s | {small[10] * 1e3:.0f} ms | {large:.2f} s | {many:.1f} s | {shown} ms |")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
