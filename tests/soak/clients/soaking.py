"""Soaking: a chaotic server, a process of clients, and what the two have seen held against each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.soak.report import Report

_ROOT: Final = Path(__file__).parents[3]
_MIB: Final = 1 << 20
_MOST_GROWTH: Final = 64 * _MIB
"""What allocators may keep of the largest tensors that were on their way at once."""


def soaked(kind: str, seconds: float, seed: int) -> Report:
    """Let clients of a kind call a chaotic server, and report what came of it."""
    command = [sys.executable, "-m", "tests.soak.clients.server", "--seed", str(seed)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        command = [sys.executable, "-m", "tests.soak.clients.calling", kind, port, str(seconds)]
        try:
            done = subprocess.run(
                command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, timeout=seconds * 2 + 60, check=True
            )
        finally:
            server.terminate()
        executed = json.loads(server.stdout.read())
    return _judged(kind, json.loads(done.stdout), Counter(executed))


def _judged(kind: str, seen: dict[str, Any], executed: Counter[str]) -> Report:
    endings, left = Counter(seen["endings"]), seen["left"]
    report = Report(run={"of": kind}, counts=endings, broken=seen["broken"][:20])
    report.figures |= {"longest call, s": seen["longest"]}
    ended = sum(endings.values())
    report.promise("each call ends", f"{ended:,} of {seen['begun']:,}", is_kept=ended == seen["begun"])
    found = f"{len(seen['broken'])} do not"
    report.promise("with the right result, or an error that is documented", found, is_kept=not seen["broken"])
    lost = [name for name in seen["right"] if not executed[name]]
    report.promise("a right result was executed", f"{len(lost)} were not", is_kept=not lost)
    doubled = [name for name, number in executed.items() if number > 1]
    report.promise("no execution is doubled", f"{len(doubled)} are", is_kept=not doubled)
    for name, number in left.items():
        if name == "memory":
            text = f"no more than {_MOST_GROWTH // _MIB} MiB are left"
            report.promise(text, f"{number / _MIB:+.1f} MiB", is_kept=number <= _MOST_GROWTH)
        else:
            report.promise(f"no {name} are left", f"{number:+}", is_kept=number <= 0)
    return report
