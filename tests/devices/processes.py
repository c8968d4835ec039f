"""Processes: a server under a limit of memory or of processor time, and the requests that measure it."""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec import Tensor, encode_request
from tests.processes import announced
from tests.server.wire import GET_LIVE, TIMEOUT, Answer, Wire, head
from tests.waiting import until

ROOT: Final = Path(__file__).parents[2]

LARGE: Final = 20 << 20
"""Bytes of a large request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that prints its address first."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "sink"
    tensor: str = "x"

    def request(self, count: int, *, is_binary: bool = True) -> bytes:
        """Return a request with so many floats; the answer is binary."""
        array = np.linspace(0, 1, count, dtype=np.float32).reshape(1, -1)
        tensor = Tensor(name=self.tensor, array=array, is_binary=is_binary)
        message = encode_request([tensor], parameters={"binary_data_output": True})
        fields = [f"{name}: {value}" for name, value in message.headers]
        return b"".join((head(f"/v2/models/{self.model}/infer", *fields), *message.buffers))


_SERVE: Final = ("-m", "streamcodec", "serve", "--port", "0", "--no-access-log")
_EXTRAS_ARE_MISSING: Final = """
import sys
sys.modules.update(dict.fromkeys(["ml_dtypes", "uvloop", "msgspec"]))
from streamcodec.cli import main
main(sys.argv[1:])
"""
_WITHOUT_EXTRAS: Final = ("-c", _EXTRAS_ARE_MISSING, *_SERVE[2:])
_THREADED: Final = ("docs/examples/threaded_server.py", "0")
_SPARING: Final = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}

PROGRAMS: Final = {
    "serve": Program(arguments=_SERVE),
    "serve, one BLAS thread, one arena": Program(arguments=_SERVE, environment=_SPARING),
    "the same without extras": Program(arguments=_WITHOUT_EXTRAS, environment=_SPARING),
    "the same with -OO": Program(arguments=("-OO", *_WITHOUT_EXTRAS), environment=_SPARING),
    "threaded_server.py": Program(arguments=_THREADED, environment=_SPARING, model="softmax", tensor="scores"),
    "threaded_server.py with -OO": Program(
        arguments=("-OO", *_THREADED), environment=_SPARING, model="softmax", tensor="scores"
    ),
}

Limit = Callable[[], None]
"""Called in the process before the program starts."""


def _no_limit() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Served:
    """A server process."""

    program: Program
    pid: int
    address: tuple[str, int]

    def ask(self, request: bytes) -> Answer:
        """Send a request on a new connection."""
        with Wire(self.address) as wire:
            wire.sock.settimeout(3 * TIMEOUT)
            return wire.send(request).response()

    def memory(self, name: str) -> int:
        """Return a figure of /proc/PID/status in KiB, as `VmRSS`."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise KeyError(name)


@contextmanager
def served(program: Program, *, limit: Limit = _no_limit) -> Iterator[Served]:
    """Run a server.

    Raises:
        OSError: it does not start.
    """
    with subprocess.Popen(
        [sys.executable, *program.arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=limit,  # noqa: PLW1509 - this process has no threads that hold locks
        env={**os.environ, **program.environment},
    ) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], 30)
            url = announced(process.stdout) if ready else ""
            if not url.startswith("http"):
                msg = "the server does not start"
                raise OSError(msg)
            yield Served(program, process.pid, ("127.0.0.1", int(url.rpartition(":")[2])))
        finally:
            process.kill()


def address_space(nbytes: int) -> Limit:
    """Limit the address space."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))


@contextmanager
def group(controller: str, **settings: int) -> Iterator[Limit]:
    """Make a control group of version 1 with a limit; for the superuser, where it is mounted.

    Raises:
        OSError: there is no such controller, or it may not be used.
    """
    folder = Path("/sys/fs/cgroup", controller, f"streamcodec_{os.getpid()}_{os.urandom(3).hex()}")
    folder.mkdir()
    try:
        for name, value in settings.items():
            (folder / f"{controller}.{name}").write_text(str(value))
        yield lambda: _enter(folder)
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text())  # workers end after who has started them
        folder.rmdir()


def _enter(folder: Path) -> None:
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def idle_connections(server: Served, count: int, request: bytes) -> list[socket.socket]:
    """Open connections; each has sent a request and received its answer."""
    sockets = [socket.create_connection(server.address, TIMEOUT) for _ in range(count)]
    for sock in sockets:
        if request:
            sock.sendall(request)
            sock.recv(1 << 16)
    return sockets


def works(server: Served, *, is_large: bool) -> bool:
    """Whether a server answers a health check and a request."""
    request = server.program.request(LARGE // 4 if is_large else 16)
    try:
        live, answer = server.ask(GET_LIVE), server.ask(request)
    except OSError:
        return False
    return live.status == answer.status == 200
