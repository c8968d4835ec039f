"""Trial: one attack on a fresh server, what honest clients had to wait meanwhile, and what it took of memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.processes import cpu_clock, forget_peak, scheduled
from tests.soak.processes import ServerProcess, server_process
from tests.stalls import STALL_SECONDS, slowness
from tests.under_attack.attacker import attacker_process
from tests.under_attack.attacks import ATTACKS
from tests.under_attack.probing import Probes, probe

MAX_P99_MS: Final = 50.0
MAX_MS: Final = 150.0
MAX_EXTRA_MIB: Final = 64.0
"""Above idle, besides what the budget grants."""
BUDGET_MIB: Final = 128

_OPTIONS: Final[dict[str, float]] = {"max_memory_bytes": BUDGET_MIB << 20}
_WARM_UP_SECONDS: Final = 0.3
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an attack came to."""

    name: str
    p50: float
    p99: float
    max: float
    """Milliseconds that honest clients waited."""
    calm_p99: float
    calm_max: float
    """The same of the server that nobody attacked, at the same time."""
    failures: list[str]
    """What honest clients got instead of an answer."""
    probes: int
    extra_mib: float
    """Memory above idle at most."""
    cpu_share: float
    """Of one processor, that the server took."""
    stall_ms: float
    """CPU of the longest stretch on its event loop; of the longest turn, where there are only those."""
    stall: str
    """And what that was."""
    log: str
    """What the server has written."""
    slowness: float = 1.0
    """Of the machine, while it was attacked: how many times more CPU time anything took."""
    crowding: float = 1.0
    """And how many times longer the server took for its work, since others had the processors, attackers among them."""

    def complaints(self, *, max_stall_ms: float | None = STALL_SECONDS * 1e3) -> list[str]:
        """Say which bounds were broken, the machine's own share allowed for."""
        found = []
        if self.failures:
            found.append(f"{len(self.failures)} of {self.probes} got no answer: {self.failures[0]}")
        if self.p99 > MAX_P99_MS * self.crowding + self.calm_p99:
            found.append(f"p99 of {self.p99:.0f} ms, beside {self.calm_p99:.0f} ms")
        if self.max > MAX_MS * self.crowding + self.calm_max:
            found.append(f"up to {self.max:.0f} ms, beside {self.calm_max:.0f} ms")
        if self.extra_mib > MAX_EXTRA_MIB + BUDGET_MIB:
            found.append(f"{self.extra_mib:.0f} MiB above idle")
        if max_stall_ms is not None and self.stall_ms > max_stall_ms * self.slowness:
            found.append(f"{self.stall_ms:.0f} ms of CPU at once: {self.stall}")
        if self.log:
            found.append(f"{len(self.log)} bytes of log: {self.log.splitlines()[-1]}")
        return found

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)


@contextmanager
def calm_server(folder: Path, loop: str) -> Iterator[ServerProcess]:
    """Run a server that nobody attacks, for the measure of the machine."""
    folder.mkdir()
    with server_process(folder, loop=loop, limits={}) as server:
        yield server


def attack(name: str, calm: ServerProcess, folder: Path, *, loop: str, seconds: float) -> Finding:
    """Attack a fresh server for some seconds."""
    question = ATTACKS[name].probe
    folder.mkdir()
    with server_process(folder, loop=loop, limits={}, **_OPTIONS) as server:
        with attacker_process(server.address, name) as attacker:
            asyncio.run(_probe_both(server, calm, question, _WARM_UP_SECONDS))
            server.held()
            idle, clock = server.resident(), cpu_clock(server.process.pid)
            forget_peak(server.process.pid)
            server.stalls()
            began, cpu, before = time.monotonic(), clock(), scheduled(server.process.pid)
            attacker.begin()
            probes, others = asyncio.run(_probe_both(server, calm, question, seconds))
            cpu, wall = clock() - cpu, time.monotonic() - began
            peak = server.peak_resident()
            ran, waited = (after - was for after, was in zip(scheduled(server.process.pid), before, strict=True))
            stall, slow = _stall(server), slowness()
        server.process.kill()
        return Finding(
            name=name,
            p50=probes.ms(0.5),
            p99=probes.ms(0.99),
            max=probes.ms(1),
            calm_p99=others.ms(0.99),
            calm_max=others.ms(1),
            failures=probes.failures,
            probes=len(probes.seconds),
            extra_mib=(peak - idle) / _MIB,
            cpu_share=cpu / wall,
            stall_ms=stall["cpu"] * 1e3,
            stall=stall["name"],
            log=server.log(),
            slowness=slow,
            crowding=(ran + waited) / ran,
        )


def _stall(server: ServerProcess) -> dict[str, Any]:
    found = server.stalls()
    stall: dict[str, Any] = found["longest"] if found["longest"]["cpu"] else found["turn"]
    return stall


async def _probe_both(
    server: ServerProcess, calm: ServerProcess, question: bytes, seconds: float
) -> tuple[Probes, Probes]:
    tasks = [asyncio.create_task(probe(one.address, question, seconds)) for one in (server, calm)]
    first, second = await asyncio.gather(*tasks)
    return first, second
