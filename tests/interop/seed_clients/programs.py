"""Programs: the clients that read jobs line by line and answer line by line; each is started once for all tests."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ANSWER_SECONDS = 120
"""For one job, on a busy machine."""
_STOP_SECONDS = 10
_BUILD_SECONDS = 300
_HOW = (
    "{what} is not here: there is no `{command}` on the PATH, which is in the package {package}; "
    "tests/interop/run installs what is missing and runs everything"
)


@dataclass(frozen=True, slots=True)
class Program:
    """A client that runs, and does one job after the other."""

    versions: str
    """Of the client, as `name x.y.z, name x.y.z`."""
    ask: Callable[[dict[str, Any]], dict[str, Any]]
    """Does a job, which `jobs.py` describes, and says what came of it."""


Starter = Callable[[Path], AbstractContextManager[Program]]
"""Runs a client until it is no longer needed, given an empty directory for its files."""


def require(what: str, command: str, package: str) -> str:
    """Return the path of a command; without it, leave the test out and say how to get it."""
    path = shutil.which(command)
    if path is None:
        pytest.skip(_HOW.format(what=what, command=command, package=package))
    return path


def python_requests(directory: Path) -> AbstractContextManager[Program]:
    """Run the client in Python; warnings are errors, as in the tests."""
    return _running([sys.executable, "-W", "error", "requests_client.py"], directory)


def node(directory: Path) -> AbstractContextManager[Program]:
    """Run the client in Node."""
    return _running([require("Node", "node", "nodejs"), "node_client.mjs"], directory)


def go(directory: Path) -> AbstractContextManager[Program]:
    """Build and run the client in Go; it needs nothing but Go's own library."""
    program = directory / "client"
    subprocess.run(
        [require("Go", "go", "golang-go"), "build", "-o", str(program), "client.go"],
        cwd=HERE,
        env=os.environ
        | {"GOCACHE": str(directory / "cache"), "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"},
        timeout=_BUILD_SECONDS,
        check=True,
    )
    return _running([str(program)], directory)


@contextmanager
def _running(command: list[str], directory: Path) -> Iterator[Program]:
    errors = directory / "stderr.txt"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command,
            cwd=HERE,
            env=os.environ | {"NO_PROXY": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        lines = _Lines(process, errors)
        try:
            yield Program(lines.read()["versions"], lines.ask)
            lines.end()
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class _Lines:
    """Standard input and output of a program: a line for a line."""

    process: subprocess.Popen[str]
    errors: Path

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._fail("has ended")
        return self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # Each line is answered by one line, so none waits in the buffer, where select would not see it.
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        if not ready:
            self._fail(f"did not answer for {ANSWER_SECONDS} s")
        line = self.process.stdout.readline()
        if not line:
            self._fail("has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        assert self.process.wait(_STOP_SECONDS) == 0, "the client did not end well"
        assert not (complaints := self.errors.read_text()), f"the client complained:\n{complaints}"

    def _fail(self, what: str) -> None:
        pytest.fail(f"the client {what}:\n{self.errors.read_text()}", pytrace=False)
