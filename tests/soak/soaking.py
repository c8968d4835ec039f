"""Soaking: a server under everything at once for a while, and whether it has kept what is promised.

First a short phase of the same load lets caches, pools and threads grow to what they need; what the server holds
afterwards, with nobody connected, is what it must come back to in the end.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from streamcodec.server import ServerOptions
from tests.soak.asking import ask
from tests.soak.good import Maker
from tests.soak.health import HealthChecks, quantile
from tests.soak.processes import Client, ServerProcess, client_process, server_process
from tests.soak.program import POOL_BYTES
from tests.soak.report import Report
from tests.soak.wire import Line
from tests.stalls import STALL_SECONDS, slowness

_MIB = 1 << 20
_CLIENTS = 2
_TICK = 0.2
_ADDRESS_SPACE = 6 << 30
"""Far above what the ceiling of resident memory allows, as threads reserve much that they never touch."""

SERVER_OPTIONS = {
    "budget_timeout": 0.5,
    "read_timeout": 3,
    "write_timeout": 10,
    "linger_timeout": 1,
    "shutdown_timeout": 10,
}
"""Less than the defaults, so that every end of a wait comes within the run."""

_SHOWN = ("seconds", "connections", "seed", "loop", "pause", "memory_mib")

_OTHER_THREADS = 2
"""For compressed bodies, and for answers in JSON."""

_FEW_THREADS = 1 + ServerOptions().max_workers + _OTHER_THREADS
"""As many threads as may work, when nobody waits for windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how much, and what is asked of the server."""

    seconds: float
    warm_up: float
    connections: int = 200
    seed: int = 0
    loop: str = "uvloop"
    pause: float = 0.1
    largest_mib: int = 64
    memory_mib: int = 80
    """The server's `max_memory_bytes`; little more than the largest request, so that others have to wait for it."""
    ceiling_mib: int = 768
    max_growth: float | None = 0.05
    """Of resident memory between warm-up and end; None where the warm-up is too short to tell."""
    max_health_ms: float | None = 50.0
    """For 99 of 100 health checks; None where other work may hold up the machine."""
    max_stall_ms: float | None = STALL_SECONDS * 1e3
    """Of CPU, for one stretch of work on the event loop, where the loop shows them (not uvloop); None as above."""


def soak(plan: Plan, folder: Path) -> Report:
    """Run a server and its clients; return what was found. The server's log is left in `folder`."""
    report = Report(run={name: getattr(plan, name) for name in _SHOWN})
    options = {**SERVER_OPTIONS, "max_memory_bytes": plan.memory_mib * _MIB}
    with server_process(folder, loop=plan.loop, limits=None, **options) as server, ExitStack() as stack:
        server.limit(resource.RLIMIT_AS, _ADDRESS_SPACE)
        idle = server.held()
        count = plan.connections // _CLIENTS
        clients = [
            stack.enter_context(client_process(server.address, number * count, count, plan.largest_mib * _MIB))
            for number in range(_CLIENTS)
        ]
        _work(clients, plan, report, f"{plan.seed} warm", plan.warm_up)
        warm = _rest(server, plan, tasks=idle["tasks"])
        server.stalls()
        with HealthChecks(server.address) as health:
            _work(clients, plan, report, str(plan.seed), plan.seconds)
        stalls = server.stalls()
        busy = server.held()
        end = _rest(server, plan, tasks=idle["tasks"])
        _judge_clients(report, plan)
        _judge_health(report, health, plan)
        _judge_stalls(report, stalls, plan)
        _judge_memory(report, warm, end, server.peak_resident(), plan)
        _judge_threads(report, busy, end)
        _judge_rest(report, warm, end)
        _judge_end(report, server)
    return report


def _work(clients: list[Client], plan: Plan, report: Report, seed: str, seconds: float) -> None:
    """Let the clients work; of what they have done, the last time counts."""
    began = time.monotonic()
    for client in clients:
        client.order({"seed": seed, "seconds": seconds, "pause": plan.pause})
    documents = [client.report() for client in clients]
    report.counts = Counter()
    for document in documents:
        report.counts.update(document["counts"])
        report.broken += document["broken"]
    sent = sum(document["sent"] for document in documents)
    report.figures["good requests per second"] = _answered(report.counts) / (time.monotonic() - began)
    report.figures["MB of good requests per second"] = sent / 1e6 / (time.monotonic() - began)


def _rest(server: ServerProcess, plan: Plan, *, tasks: int) -> dict[str, Any]:
    """Return what the server holds when nobody is connected any more."""
    server.quiet(tasks=tasks)
    asyncio.run(_level(server, plan))
    return server.quiet(tasks=tasks, threads=_FEW_THREADS)


async def _level(server: ServerProcess, plan: Plan) -> None:
    """Let the server's pool hold the same at the end of each phase: the block of one large tensor."""
    nbytes = min(POOL_BYTES, plan.largest_mib * _MIB)
    line = await Line.open(server.address)
    await ask(line, [Maker(Random(0), bytes(nbytes)).of_bytes(nbytes)])  # noqa: S311 - not to be secret
    line.close()


def _answered(counts: Counter[str]) -> int:
    return sum(count for name, count in counts.items() if name.startswith("good ") and name.endswith("answered"))


def _judge_clients(report: Report, plan: Plan) -> None:
    report.promise(
        "every good request is answered bit for bit, or told when to come back",
        f"{_answered(report.counts):,} answered, {report.counts['good: full']:,} told to come back",
        is_kept=not report.broken and _answered(report.counts) >= plan.connections,
    )


def _judge_health(report: Report, health: HealthChecks, plan: Plan) -> None:
    report.promise("every health check is answered", f"{len(health.failures)} not", is_kept=not health.failures)
    report.broken += health.failures[:5]
    p99 = quantile(health.seconds, 0.99) * 1e3
    report.figures |= {
        "health checks": len(health.seconds),
        "health check, p50, ms": quantile(health.seconds, 0.5) * 1e3,
        "health check, p99, ms": p99,
        "health check, max, ms": max(health.seconds) * 1e3,
        "who asks wakes up late by, p99, ms": quantile(health.late, 0.99) * 1e3,
    }
    if plan.max_health_ms is not None:
        text = f"99 of 100 health checks take {plan.max_health_ms:g} ms at most"
        report.promise(text, f"{p99:.1f} ms", is_kept=p99 <= plan.max_health_ms)


def _judge_stalls(report: Report, stalls: dict[str, Any], plan: Plan) -> None:
    longest, turn = stalls["longest"], stalls["turn"]
    report.figures |= {
        "longest stretch on the event loop, ms of CPU": longest["cpu"] * 1e3,
        "that was": longest["name"],
        "longest turn of the event loop, ms of CPU": turn["cpu"] * 1e3,
    }
    if plan.max_stall_ms is not None and plan.loop != "uvloop":
        text = f"no stretch on the event loop takes more than {plan.max_stall_ms:g} ms of CPU"
        found = f"{stalls['stalls']:,} do, the longest {longest['cpu'] * 1e3:.1f} ms"
        report.promise(text, found, is_kept=longest["cpu"] * 1e3 <= plan.max_stall_ms * slowness())


def _judge_memory(report: Report, warm: dict[str, Any], end: dict[str, Any], peak: int, plan: Plan) -> None:
    growth = end["resident"] / warm["resident"]
    report.figures |= {
        "resident after warm-up, MiB": warm["resident"] / _MIB,
        "resident in the end, MiB": end["resident"] / _MIB,
        "resident at most, MiB": peak / _MIB,
    }
    if plan.max_growth is not None:
        text = f"resident memory is flat within {plan.max_growth:.0%}"
        report.promise(text, f"{growth - 1:+.1%}", is_kept=growth <= 1 + plan.max_growth)
    text = f"resident memory stays below {plan.ceiling_mib} MiB"
    report.promise(text, f"{peak / _MIB:.0f} MiB", is_kept=peak <= plan.ceiling_mib * _MIB)


def _judge_rest(report: Report, warm: dict[str, Any], end: dict[str, Any]) -> None:
    for name in ("descriptors", "tasks", "connections", "reserved"):
        report.promise(f"no {name} are left", f"{end[name]:,}, as {warm[name]:,}", is_kept=end[name] <= warm[name])
    left = _more(end["alive"], warm["alive"])
    report.promise("no object of a connection is left", ", ".join(left) or "none", is_kept=not left)


def _judge_threads(report: Report, busy: dict[str, Any], end: dict[str, Any]) -> None:
    """Those who wait for windows may each have a thread, and when they have gone, their threads have."""
    options, few = ServerOptions(), _FEW_THREADS
    for text, found, most in (
        (
            "no more threads than workers and requests with windows",
            busy["threads"],
            few + options.max_windowed_requests,
        ),
        ("no more threads are left than may work", end["threads"], few),
    ):
        report.promise(text, f"{found} of {most}", is_kept=found <= most)


def _more(alive: dict[str, int], before: dict[str, int]) -> Iterable[str]:
    return [
        f"{count} {name}" for name, count in alive.items() if count > before.get(name, 0) + _REMEMBERED.get(name, 0)
    ]


_REMEMBERED = {"Recognized": 256, "_Worker": ServerOptions().max_workers + _OTHER_THREADS}
"""Objects that a server keeps for all of its connections, and how many of them at most."""


def _judge_end(report: Report, server: ServerProcess) -> None:
    status = server.terminate()
    report.promise("the server ends when it is told to", f"status {status}", is_kept=status == 0)
    log = server.log()
    report.promise("the server's log is empty", f"{len(log.splitlines())} lines", is_kept=not log)
    report.broken += dict.fromkeys(line for line in log.splitlines() if not line.startswith(" "))
