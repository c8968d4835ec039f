"""Mutants made by hand: mistakes that nobody would have noticed once, and which tests are to notice them.

    python -m tests.mutation.by_hand          # all of them; each takes as long as its tests
    python -m tests.mutation.by_hand linger   # those whose names contain this

mutmut changes one operator or one constant. These are changes that somebody could have made. Each is tried in a copy;
the exit status is 1 if the tests pass with one of them. A text that is not in the code any more is a failing test of
this folder: then the mutant is to be made anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a file, and the tests that fail with it."""

    name: str
    file: str
    """Within the package."""
    old: str
    """Stands there once."""
    new: str
    tests: str
    """Within the tests."""

    def is_current(self) -> bool:
        """Tell whether the code still has what is to be changed."""
        return (ROOT / "streamcodec" / self.file).read_text().count(self.old) == 1


MUTANTS: Final = (
    Mutant(
        "chunks: one spare byte too many",
        "http/bodies/chunks.py",
        "if self._spare_bytes < 0:",
        "if self._spare_bytes < -1:",
        "http/bodies/test_chunks.py",
    ),
    Mutant(
        "chunks: spare bytes come twice",
        "http/bodies/chunks.py",
        "self._spare_bytes += nbytes",
        "self._spare_bytes += 2 * nbytes",
        "http/bodies/test_chunks.py",
    ),
    Mutant(
        "body: the last failure is told",
        "http/bodies/body.py",
        "self._failure = self._failure or failure",
        "self._failure = failure",
        "http/bodies/test_chunks.py",
    ),
    Mutant(
        "connection: the first line's end is looked for one byte too early",
        "http/connection.py",
        'has_line = b"\\n" in bytes(self._scratch[: limit + 1])',
        'has_line = b"\\n" in bytes(self._scratch[:limit])',
        "http/heads/test_heads.py",
    ),
    Mutant(
        "driver: never lingers",
        "server/connection/driver.py",
        "await waits.linger(channel)",
        "pass",
        "server/memory/test_limits.py",
    ),
    Mutant(
        "patience: each look at a head is another request's",
        "runtime/timeouts.py",
        "is_same = count == self._count + (self._phase is Phase.HEAD)",
        "is_same = count == self._count",
        "server/connection/test_patience_rules.py",
    ),
    Mutant(
        "exchange: what is held is not offered",
        "service/request/exchange.py",
        "self.reservation.ask(nbytes, held=held)",
        "self.reservation.ask(nbytes, held=0)",
        "server/connection/test_rules.py",
    ),
    Mutant(
        "outbox: writes to a transport that closes",
        "server/connection/channels.py",
        "if transport.is_closing():  # it may",
        "if transport is None:  # it may",
        "server/connection/test_channels.py::test_what_waits_for_who_has_gone_is_dropped",
    ),
    Mutant(
        "session: a request waits for its batch where the transport cannot read on",
        "server/connection/session.py",
        "self._tried and incoming.wants_data",
        "self._tried and not incoming.is_eof",
        "batches/test_crowds.py::test_pipelined_requests_that_fill_the_scratch_memory_are_answered_in_order",
    ),
    Mutant(
        "admission: no more than one place without a seat",
        "server/connection/admission.py",
        "RESERVED_PLACES: Final = 64",
        "RESERVED_PLACES: Final = 1",
        "server/connection/test_rules.py",
    ),
)


def survives(mutant: Mutant, folder: Path) -> bool:
    """Try one in a copy; tell whether its tests pass all the same."""
    for name in ("streamcodec", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    path = folder / "streamcodec" / mutant.file
    path.write_text(path.read_text().replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", f"tests/{mutant.tests}"]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in found.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(f"{mutant.name}: {failed[0] if failed else 'SURVIVES'}", flush=True)
    return not failed


def main() -> int:
    """Try them; 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names (default: all)")
    arguments = parser.parse_args()
    survivors = 0
    for mutant in MUTANTS:
        if any(part in mutant.name for part in arguments.names or [""]):
            with tempfile.TemporaryDirectory() as folder:
                survivors += survives(mutant, Path(folder))
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
