"""Processes: a foreign server from its start to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamcodec.client import Client
from tests.ports import free_port

_ROOT = Path(__file__).parents[3]
_START_SECONDS = 60
_STOP_SECONDS = 30
_LOG_CHARACTERS = 5000


@dataclass(frozen=True, slots=True)
class Peer:
    """A foreign server that runs."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    """What it wrote to standard output and standard error."""

    def check(self) -> None:
        """Fail the test if the server has died."""
        status = self.process.poll()
        if status is not None:
            pytest.fail(f"the server has ended with status {status}:\n{self._end_of_log()}", pytrace=False)

    def wait(self) -> None:
        """Wait until the server says that it is ready, models included."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            self.check()
            if time.monotonic() > deadline:
                pytest.fail(f"the server is not ready after {_START_SECONDS} s:\n{self._end_of_log()}", pytrace=False)
            time.sleep(0.1)

    def name_and_version(self) -> str:
        """Return what the server says of itself."""
        with Client(self.url) as client:
            metadata = client.server_metadata()
        return f"{metadata['name']} {metadata['version']}"

    def _is_ready(self) -> bool:
        with Client(self.url, timeout=_START_SECONDS) as client:
            try:
                return client.is_server_ready()
            except ConnectionError:
                return False

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_CHARACTERS:]


@contextmanager
def running(python: str, program: str, directory: Path) -> Iterator[Peer]:
    """Run a server's program with the Python of another environment, until the server is no longer needed.

    Args:
        python: the interpreter.
        program: full name of the module; its arguments are the directory and the port.
        directory: an empty one, for the server's own files.
    """
    port = free_port()
    log = directory / "log.txt"
    command = [python, "-m", program, str(directory), str(port)]
    with (
        log.open("wb") as output,
        # A session of its own, so that what the server has started ends with it even if the server cannot see to that.
        subprocess.Popen(command, cwd=_ROOT, stdout=output, stderr=output, start_new_session=True) as process,
    ):
        peer = Peer(f"http://127.0.0.1:{port}", process, log)
        try:
            peer.wait()
            yield peer
            process.terminate()
            process.wait(_STOP_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
