"""Programs: servers for the tests, as processes of their own and in this process."""

from __future__ import annotations

import select
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio.from_thread import start_blocking_portal

from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.service import ModelRegistry, Observer, Service
from tests.processes import announced

ROOT = Path(__file__).parents[2]
MODELS = "tests.server.models:MODELS"
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Program:
    """A server process."""

    process: subprocess.Popen[str]
    url: str
    """Where it listens, as it printed when it was ready."""

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    def kill(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for the end; return the exit status."""
        return self.process.wait(_SECONDS)

    def complaints(self) -> str:
        """What it wrote to standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def serving(*arguments: str, cwd: Path = ROOT) -> Iterator[Program]:
    """Run `python -m streamcodec serve`, with warnings as errors, until the block ends."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "streamcodec",
        "serve",
        "--port",
        "0",
        "--no-access-log",
        *arguments,
    ]
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
            yield Program(process, announced(process.stdout) if ready else "")
        finally:
            process.kill()


@contextmanager
def server_here(
    served: ModelRegistry | Service,
    options: ServerOptions | None = None,
    *,
    backend: str = "asyncio",
    listener: socket.socket | None = None,
    observer: Observer | Iterable[Observer] = (),
    ssl_context: ssl.SSLContext | None = None,
) -> Iterator[tuple[Server, tuple[str, int]]]:
    """Run a server in a thread of this process; stop it, and wait for it, when the block ends.

    The backend is anyio's, or "uvloop".
    """
    service = served if isinstance(served, Service) else Service(served)
    listener = listener or open_listener("127.0.0.1", 0)
    address = listener.getsockname()
    settings = {"use_uvloop": True} if backend == "uvloop" else None
    with start_blocking_portal("asyncio" if settings else backend, settings) as portal:
        server = portal.call(partial(Server, service, options, observer=observer, ssl_context=ssl_context))
        serving_task = portal.start_task_soon(server.serve, listener)
        try:
            yield server, address
        finally:
            portal.call(server.stop)
            serving_task.result(_SECONDS)
