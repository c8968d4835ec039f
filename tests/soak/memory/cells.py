"""Cells: one server after the other in so much memory, each replaced when it is killed; what was found is one line."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.devices.processes import Limit, address_space, group
from tests.processes import resident
from tests.soak.memory.load import Load
from tests.soak.memory.requests import Request

_MIB: Final = 1 << 20
_END_SECONDS: Final = 45.0
"""More than a server has for requests in progress."""

_LOOK_SECONDS: Final = 0.002
_MODELS: Final = Path(__file__).with_name("models.py")
ROOT: Final = Path(__file__).parents[3]

KINDS: Final = ("group", "address", "watch")
"""How memory is limited: by a control group of version 1, by RLIMIT_AS, or by who looks and kills like a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is measured at once."""

    mebibytes: int
    seconds: float
    kind: str = "group"
    options: tuple[str, ...] = ()
    """Of `streamcodec serve`."""
    connections: int = 12
    seed: int = 0
    checkout: Path = ROOT
    """Whose server is measured."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    said: str = ""
    """What the last server said at its start, and later."""

    def row(self, cell: Cell) -> str:
        """Return a row of a table."""
        counts = self.counts
        figures = [counts[name] for name in ("requests", "right", "503", "413", "refused", "wrong")]
        words = [cell.kind, cell.mebibytes, " ".join(cell.options) or "defaults", *figures, self.broken.total()]
        return f"| {' | '.join(map(str, [*words, self.kills]))} |"


HEAD: Final = (
    "| limit | MiB | options | requests | right | 503 | 413 | other refusals | wrong | broken off | kills |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def measure(cell: Cell, requests: dict[str, list[Request]], tiny: Sequence[Request]) -> Found:
    """Serve and ask for the time of a cell.

    Raises:
        OSError: there is no such limit here, or the server does not start with it.
    """
    found = Found()
    end = time.monotonic() + cell.seconds
    while (left := end - time.monotonic()) > 0:
        load = Load(requests, tiny, f"{cell.seed}/{found.kills}")
        with _limit(cell) as limit, _served(cell, limit) as (server, port):
            asyncio.run(load.run(("127.0.0.1", port), cell.connections, left))
            if server.poll() is None:
                server.terminate()
            said = _end(server, found)
        found.counts += load.counts
        is_killed = server.returncode == -signal.SIGKILL and not found.broken["does not end"]
        found.kills += is_killed
        found.said = said.decode(errors="replace")
        if server.returncode:  # what was under way has broken off with it
            found.broken[f"ended with {server.returncode}"] += 1
        else:
            found.broken += load.broken
    return found


def _end(server: subprocess.Popen[bytes], found: Found) -> bytes:
    """Wait for the end of a server; return what it has said."""
    try:
        return server.communicate(timeout=_END_SECONDS)[1]
    except subprocess.TimeoutExpired:
        found.broken["does not end"] += 1
        server.kill()
        return server.communicate()[1]


@contextmanager
def _limit(cell: Cell) -> Iterator[Limit]:
    nbytes = cell.mebibytes * _MIB
    if cell.kind == "group":
        with group("memory", limit_in_bytes=nbytes) as limit:
            yield limit
    else:
        yield address_space(nbytes) if cell.kind == "address" else _no_core


def _no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def _served(cell: Cell, limit: Limit) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    budget = () if cell.kind != "watch" else ("--max-memory", str(cell.mebibytes * _MIB // 4))
    arguments = ["-m", "streamcodec", "serve", str(_MODELS), "--port", "0", "--no-access-log", *budget, *cell.options]
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cell.checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=limit,  # noqa: PLW1509 - threads of this process hold no locks that the child needs
        env={**os.environ, "PYTHONPATH": str(cell.checkout)},
    ) as process:
        watcher = threading.Thread(target=_watch, args=(process, cell.mebibytes * _MIB), daemon=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if not line.startswith("listening on"):
                msg = "the server does not start"
                raise OSError(msg)
            if cell.kind == "watch":
                watcher.start()
            yield process, int(line.rpartition(":")[2])
        finally:
            process.kill()


def _watch(process: subprocess.Popen[bytes], most: int) -> None:
    """Kill a process that has more resident memory, as its group would."""
    while process.poll() is None:
        try:
            if resident(process.pid) > most:
                process.kill()
        except OSError:
            return
        time.sleep(_LOOK_SECONDS)
