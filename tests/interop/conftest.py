"""The server under test: `python -m streamcodec serve` in a process of its own, one for all foreign clients."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_START_SECONDS = 30
_STOP_SECONDS = 10
_ANNOUNCEMENT = "listening on http://"


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


@pytest.fixture(scope="session")
def server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    errors = tmp_path_factory.mktemp("server") / "stderr.txt"
    # Warnings are on, so that a socket the server forgets is a complaint.
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "streamcodec",
        "serve",
        "tests.interop.models:models",
        "--port",
        "0",
    ]
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            yield ServerProcess(process, _address(process, errors), errors)
            process.terminate()
            assert process.wait(_STOP_SECONDS) == 0, "the server did not stop well"
            assert not (complaints := errors.read_text()), f"the server complained:\n{complaints}"
        finally:
            process.kill()


@pytest.fixture
def server(server_process: ServerProcess) -> Iterator[str]:
    """HOST:PORT of the server; fails the test that finds it dead and the one after which it is."""
    server_process.check()
    yield server_process.address
    server_process.check()


def _address(process: subprocess.Popen[str], errors: Path) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
    line = process.stdout.readline().strip() if ready else ""
    if not line.startswith(_ANNOUNCEMENT):
        pytest.fail(f"the server did not start, it said {line!r} and:\n{errors.read_text()}", pytrace=False)
    return line.removeprefix(_ANNOUNCEMENT)
