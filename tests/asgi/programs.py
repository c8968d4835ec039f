"""Programs: ASGI servers for the tests, as processes of their own, each with the application that a test names."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_SECONDS: Final = 30

SERVERS: Final[dict[str, tuple[str, ...]]] = {
    "uvicorn h11": ("uvicorn", "--port", "{port}", "--log-level", "critical", "--http", "h11", "--loop", "asyncio"),
    "uvicorn httptools uvloop": (
        "uvicorn",
        "--port",
        "{port}",
        "--log-level",
        "critical",
        "--http",
        "httptools",
        "--loop",
        "uvloop",
    ),
    "hypercorn asyncio": ("hypercorn", "--bind", "127.0.0.1:{port}", "--log-level", "CRITICAL"),
    "hypercorn trio": ("hypercorn", "--bind", "127.0.0.1:{port}", "--log-level", "CRITICAL", "--worker-class", "trio"),
    "granian": ("granian", "--interface", "asgi", "--port", "{port}", "--no-log"),
}
"""Command lines, without the application."""


@contextmanager
def running(server: str, application: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run an application under a server; yield its process and its port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = int(free.getsockname()[1])
    name, *arguments = (argument.format(port=port) for argument in SERVERS[server])
    command = [str(Path(sys.executable).with_name(name)), *arguments, application]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            _wait_for(port, process)
            yield process, port
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS)
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    msg = f"{process.args!r} does not listen"
    raise RuntimeError(msg)
