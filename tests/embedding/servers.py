"""Servers: other people's, each as a process of its own that serves an application of ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tests.ports import free_port

ROOT: Final = Path(__file__).parents[2]
_SECONDS: Final = 60

ASGI: Final = {
    "uvicorn h11": "-m uvicorn --port {port} --log-level critical --http h11 --loop asyncio {app}",
    "uvicorn httptools": "-m uvicorn --port {port} --log-level critical --http httptools --loop uvloop {app}",
    "hypercorn": "-m hypercorn --bind 127.0.0.1:{port} --log-level CRITICAL {app}",
    "hypercorn trio": "-m hypercorn --bind 127.0.0.1:{port} --log-level CRITICAL --worker-class trio {app}",
    "granian ASGI": "-m granian --interface asgi --host 127.0.0.1 --port {port} --no-ws --log-level warning"
    " --workers-kill-timeout 5 {app}",  # else it may wait for ever for threads of requests that it has dropped
}
"""How each server of ASGI is started."""

WSGI: Final = {
    "gunicorn sync": "-m gunicorn -k sync -w 1 --graceful-timeout 5 -b 127.0.0.1:{port} {app}",
    "gunicorn gthread": "-m gunicorn -k gthread -w 1 --threads 4 --graceful-timeout 5 -b 127.0.0.1:{port} {app}",
    "waitress": "-m waitress --host 127.0.0.1 --port {port} {app}",
    "werkzeug": "-m tests.embedding.run_werkzeug {port} {app}",
    "granian": "-m granian --interface wsgi --host 127.0.0.1 --port {port} --no-ws --log-level warning"
    " --blocking-threads 4 {app}",
}
"""How each server of WSGI is started."""

AIOHTTP: Final = {
    "aiohttp": "-m tests.embedding.run_aiohttp {port} {app}",
    "aiohttp plain": "-m tests.embedding.run_aiohttp {port} {app} plain",
}


SERVERS: Final = (
    {name: (command, "asgi") for name, command in ASGI.items()}
    | {name: (command, "wsgi") for name, command in WSGI.items()}
    | {name: (command, "aiohttp") for name, command in AIOHTTP.items()}
)
"""How each server is started, and the kind of application that it serves."""

HALF_CLOSED: Final = {"gunicorn sync", "gunicorn gthread", "waitress", "werkzeug"}
"""Servers that answer a client that has closed its half of the connection."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """A server process."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int]
    log: IO[bytes]

    @property
    def pids(self) -> list[int]:
        """The process and those that it has started; the last one serves."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    @property
    def said(self) -> str:
        """What it has written so far."""
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")


@contextmanager
def embedded(command: str, app: str, log: Path, environment: dict[str, str] | None = None) -> Iterator[Embedding]:
    """Run a server until the block ends.

    Args:
        command: how, of `WSGI` for example.
        app: module and name.
        log: where it writes to.
        environment: variables besides those of this process.
    """
    port = free_port()
    arguments = command.format(port=port, app=app).split()

    variables = {**os.environ, **(environment or {})}
    with (
        log.open("w+b") as output,
        subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=variables
        ) as process,
    ):
        try:
            _wait_for(process, port, log)
            yield Embedding(process, ("127.0.0.1", port), output)
        finally:
            process.terminate()
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait for an answer: some processes listen long before those that answer have begun."""
    end = time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), _SECONDS) as sock:
                sock.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                if sock.recv(1):
                    return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the server does not serve:\n{log.read_text()}")
