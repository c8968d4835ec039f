"""Processes: the server and the clients of a soak, and what they say of themselves."""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.processes import peak_resident, resident
from tests.soak.wire import Address

_ROOT = Path(__file__).parents[2]
_SECONDS = 30
_SETTLING = 0.3

_ENVIRONMENT = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
"""glibc learns from blocks that are freed to keep ever larger ones, up to 32 MiB; for minutes a process then grows
without holding anything more. With its first threshold for good, what is freed goes back, and what is left shows."""


@dataclass(slots=True)
class ServerProcess:
    """The server under test."""

    process: subprocess.Popen[str]
    address: Address
    _control: socket.socket
    _log: IO[str]

    def held(self) -> dict[str, Any]:
        """Ask what it holds now; see `program`."""
        return self._ask(b"?")

    def stalls(self) -> dict[str, Any]:
        """Ask how long its event loop was held up since it was last asked; see `stalls`."""
        return self._ask(b"!")

    def _ask(self, question: bytes) -> dict[str, Any]:
        self._control.sendall(question)
        answer = b""
        while not answer.endswith(b"\n"):
            if not (chunk := self._control.recv(1 << 16)):
                raise AssertionError(f"the server has ended: {self.log()}")
            answer += chunk
        found: dict[str, Any] = json.loads(answer)
        return found

    def quiet(self, *, tasks: int, threads: float = math.inf, seconds: float = 40) -> dict[str, Any]:
        """Wait until it has no more than so many tasks and threads, or until it is clear that it will not.

        Threads that have had nothing to do for 10 s end. Returns what it holds.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            held = self.held()
            if held["tasks"] <= tasks and held["threads"] <= threads:
                break
            time.sleep(0.1)
        time.sleep(_SETTLING)  # connections are closed some turns after the end of their tasks
        return self.held()

    def resident(self) -> int:
        return resident(self.process.pid)

    def peak_resident(self) -> int:
        return peak_resident(self.process.pid)

    def limit(self, kind: int, value: int) -> None:
        """Set a limit of the system, RLIMIT_AS for example, from now on."""
        resource.prlimit(self.process.pid, kind, (value, resource.prlimit(self.process.pid, kind)[1]))

    def terminate(self) -> int:
        """Have it stop; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_SECONDS * 2)

    def log(self) -> str:
        """Return what it has written to standard error so far."""
        self._log.seek(0)
        return self._log.read()


@contextmanager
def server_process(
    folder: Path, *, loop: str = "asyncio", limits: dict[str, int] | None = None, **options: float
) -> Iterator[ServerProcess]:
    """Run the server until the block ends.

    Args:
        folder: for its log.
        loop: asyncio, uvloop or trio.
        limits: of `Limits`; without them, those of the soak and its pool.
        options: of `ServerOptions`.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.soak.program", "--loop", loop, "--options", json.dumps(options)]
    command += [] if limits is None else ["--limits", json.dumps(limits)]
    with ours, theirs, (folder / "server.log").open("w+") as log:
        command += ["--control", str(theirs.fileno())]
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=_ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()  # so that its end shows
        with process:
            try:
                yield ServerProcess(process, _announced(process), ours, log)
            finally:
                process.kill()


def _announced(process: subprocess.Popen[str]) -> Address:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
    assert ready, "the server does not start"
    host, port = json.loads(process.stdout.readline())
    return host, port


@dataclass(frozen=True, slots=True)
class Client:
    """A client process."""

    process: subprocess.Popen[str]

    def order(self, phase: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(phase) + "\n")
        self.process.stdin.flush()

    def report(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "a client has crashed"
        report: dict[str, Any] = json.loads(line)
        return report


@contextmanager
def client_process(address: Address, first: int, count: int, largest: int) -> Iterator[Client]:
    """Run a client with the connections `first`, `first + 1`, ... until the block ends."""
    command = [sys.executable, "-m", "tests.soak.client", "--address", json.dumps(address)]
    command += ["--first", str(first), "--count", str(count), "--largest", str(largest)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Client(process)
        finally:
            process.kill()
