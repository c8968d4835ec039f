"""Peers: the servers that are measured, found and started; or named as missing, with the command that brings them.

Each is a process of its own on the loopback interface, with the models `identity` and `sink` (see `models.py`) and, of
its own settings, the defaults. Servers that are only compared for speed are started once for all scenarios; one whose
memory is weighed is a fresh process each time.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import pytest

from tests.interop.servers.processes import running
from tests.processes import announced, cpu_clock

_ROOT: Final = Path(__file__).parents[2]
_MODELS: Final = "tests.benchmarks.models:models"

ACCESS_LOG: Final = "--access-log"
"""Option of our server."""
TRITON: Final = "Triton"
KSERVE: Final = "KServe"

_PROGRAMS: Final = {TRITON: "tests.benchmarks.triton.program", KSERVE: "tests.benchmarks.kserve_program"}
_VARIABLES: Final = {TRITON: "STREAMCODEC_TRITON_PYTHON", KSERVE: "STREAMCODEC_KSERVE_PYTHON"}
_INSTALL: Final = {
    TRITON: "/usr/bin/python3 -m venv /tmp/triton && /tmp/triton/bin/pip install -q nvidia-pytriton; "
    "export STREAMCODEC_TRITON_PYTHON=/tmp/triton/bin/python",
    KSERVE: "python3 -m venv /tmp/kserve && /tmp/kserve/bin/pip install -q kserve; "
    "export STREAMCODEC_KSERVE_PYTHON=/tmp/kserve/bin/python",
}


class Missing(Exception):  # noqa: N818 - it is no error to have no peers
    """Something that a scenario needs is not here; the message says what, and which command brings it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that runs."""

    name: str
    version: str
    url: str
    pid: int
    cpu: Callable[[], float]
    """Clock of its CPU time, in seconds."""
    tells_length: bool = True
    """Whether its answers have a length; else they end with the connection."""
    context: ssl.SSLContext | None = None
    """Of its clients, if it has TLS."""

    @property
    def host(self) -> str:
        """Its address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Its port."""
        return urlsplit(self.url).port or 0


class Peers:
    """All servers of a run."""

    def __init__(self, work: Path) -> None:
        """Prepare to start servers; their files go below `work`."""
        self._work = work
        self._stack = ExitStack()
        self._shared: dict[str, Running] = {}
        self._numbers = count()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all servers that are still there."""
        self._stack.close()

    def ours(self) -> Running:
        """Return our server, started at the first call."""
        if "" not in self._shared:
            self._shared[""] = self._stack.enter_context(self.fresh_ours())
        return self._shared[""]

    def found(self, names: Iterable[str], missing: list[str]) -> list[Running]:
        """Return those peers that can be had, each started at the first call, and note the others."""
        servers = []
        for name in names:
            try:
                if name not in self._shared:
                    self._shared[name] = self._stack.enter_context(self.fresh(name))
                servers.append(self._shared[name])
            except Missing as reason:
                missing.append(str(reason))
        return servers

    def fresh_ours(self, *options: str) -> AbstractContextManager[Running]:
        """Start our server, with options of its command line; without its access log, if they do not ask for it."""
        return _ours(options)

    @contextmanager
    def fresh(self, name: str) -> Iterator[Running]:
        """Start a peer.

        Raises:
            Missing: it is not here, or does not start.
        """
        python = os.environ.get(_VARIABLES[name])
        if python is None:
            msg = f"{name}: {_VARIABLES[name]} is not set. To have it: `{_INSTALL[name]}`"
            raise Missing(msg)
        work = self._work / f"{name}-{next(self._numbers)}"
        work.mkdir()
        with ExitStack() as stack:
            try:
                peer = stack.enter_context(running(python, _PROGRAMS[name], work))
                version = peer.name_and_version().partition(" ")[2]
            except pytest.fail.Exception as failure:
                msg = f"{name}: {failure}"
                raise Missing(msg) from None
            yield Running(
                name=name,
                version=version,
                url=peer.url,
                pid=peer.process.pid,
                cpu=cpu_clock(peer.process.pid),
                tells_length=name != KSERVE,
            )


@contextmanager
def _ours(options: Collection[str]) -> Iterator[Running]:
    command = [sys.executable, "-m", "streamcodec", "serve", _MODELS, "--port", "0", "--no-access-log", *options]
    errors = subprocess.DEVNULL if ACCESS_LOG in options else None  # that is where the log goes
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            url = announced(process.stdout or ())
            if not url:
                msg = "our own server does not start"
                raise RuntimeError(msg)
            yield Running(name="streamcodec", version="", url=url, pid=process.pid, cpu=cpu_clock(process.pid))
        finally:
            process.terminate()


def tool(command: str, package: str) -> str:
    """Return the path of a program of the distribution.

    Raises:
        Missing: it is not here.
    """
    path = shutil.which(command)
    if path is None:
        msg = f"{command} is not here. To have it: `apt-get install {package}`"
        raise Missing(msg)
    return path
