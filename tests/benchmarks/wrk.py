"""wrk: a program that sends requests over and over, on several connections at once.

The requests are a file. The Lua script beside this module sends them at random, with new numbers in place of `MARK`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.peers import Running

MARK: Final = "7" * 16
"""Stands for a number of so many digits that is new with each request; `0.7777777777777777` has it as well."""

_SCRIPT: Final = Path(__file__).with_name("wrk") / "requests.lua"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of wrk has found; times in seconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int
    """Of connections."""
    refused: int
    """Requests that were answered with a status of 400 or more."""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def write(work: Path, requests: Sequence[bytes], *, name: str = "requests") -> Path:
    """Write whole requests to a file for `run`, below a directory."""
    path = work / name
    path.write_bytes(b"".join(b"%d\n%b" % (len(request), request) for request in requests))
    return path


def run(
    program: str, server: Running, requests: Path, *, connections: int, seconds: int, is_refused: bool = False
) -> Run:
    """Send requests over and over, with one thread.

    Args:
        program: path of wrk.
        server: which gets the requests.
        requests: a file from `write`.
        connections: how many at once.
        seconds: how long.
        is_refused: whether each request must be refused; else, none may be.

    Raises:
        RuntimeError: a connection failed, or the status of an answer was not as it must be.
    """
    command = [program, "--threads=1", f"--connections={connections}", f"--duration={seconds}s", "--timeout=10s"]
    command += ["--script", str(_SCRIPT), server.url, "--", str(requests)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result = Run(**json.loads(output.splitlines()[-1]))
    if result.errors or not result.requests or result.refused != result.requests * is_refused:
        msg = f"{server.name}: {result.errors} errors, {result.refused} of {result.requests} refused:\n{output}"
        raise RuntimeError(msg)
    return result
