"""The server under test: `python -m streamcodec serve` with the models of `models.py`, in a process of its own."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import announced

_ROOT = Path(__file__).parents[2]
# Warnings are on, so that a socket the server forgets is a complaint.
_COMMAND = (
    sys.executable,
    "-W",
    "error",
    "-m",
    "streamcodec",
    "serve",
    "tests.interop.models:models",
    "--port",
    "0",
    "--no-access-log",
    "--statistics",
)
_START_SECONDS = 30
_STOP_SECONDS = 10


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server."""

    process: subprocess.Popen[str]
    address: str
    """HOST:PORT."""
    errors: Path
    """What it wrote to standard error."""

    def check(self) -> None:
        """Fail the test if the server has died or complained."""
        complaints = self.errors.read_text()
        status = self.process.poll()
        if status is not None:
            pytest.fail(f"the server has ended with status {status}:\n{complaints}", pytrace=False)
        if complaints:
            pytest.fail(f"the server complained:\n{complaints}", pytrace=False)


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[ServerProcess]:
    """Run a server until it is no longer needed, and see that it stops well.

    Args:
        directory: where to put what it writes to standard error.
        options: for `streamcodec serve`.
    """
    errors = directory / "stderr.txt"
    with (
        errors.open("w") as stderr,
        subprocess.Popen([*_COMMAND, *options], cwd=_ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            yield ServerProcess(process, _address(process, errors), errors)
            process.terminate()
            assert process.wait(_STOP_SECONDS) == 0, "the server did not stop well"
            assert not (complaints := errors.read_text()), f"the server complained:\n{complaints}"
        finally:
            process.kill()


def _address(process: subprocess.Popen[str], errors: Path) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
    url = announced(process.stdout) if ready else ""
    if not url:
        pytest.fail(f"the server did not start:\n{errors.read_text()}", pytrace=False)
    return url.removeprefix("http://")
