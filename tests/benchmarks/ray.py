"""Ray Serve: the port that replicas share, the service behind Ray's proxy, and an application that takes whole bodies.

    STREAMCODEC_RAY_PYTHON=PYTHON python -m tests.benchmarks.ray [SCENARIO ...]

All three run in one cluster, each in replicas of its own, and are asked by turns over as many connections. CPU is that
of the replicas, and of the proxy if requests pass it. The clients run on the same processors. Each scenario prints a
table; without names, all of them do, in about ten minutes.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from tests.benchmarks import load
from tests.benchmarks.peers import Running
from tests.processes import forget_peak, peak_resident, resident
from tests.ray import clients
from tests.ray.cluster import WAYS, Cluster, running, until
from tests.ray.models import SLOW_SECONDS

_MIB: Final = 1 << 20
_LARGE: Final = 64 * _MIB
_SMALL: Final = 4096
_SECONDS: Final = 3.0
_ROUNDS: Final = 3
_EVENTS: Final = 12_000


@dataclass(frozen=True)
class Measured:
    """One way under load, for some seconds."""

    per_second: float
    median: float
    """Seconds."""
    cpu: float
    """Seconds, of one request."""
    peak: float
    """MiB of the replica with the most, above what it had before."""
    failed: Counter[str]


def measure(cluster: Cluster, server: Running, request: load.Request, connections: int) -> Measured:
    """Load one way."""
    pids = cluster.pids(server.name)
    before = {pid: resident(pid) for pid in pids}
    for pid in pids:
        forget_peak(pid)
    began, cpu = time.monotonic(), server.cpu()
    with clients.hammering(server, request, connections) as outcome:
        time.sleep(_SECONDS)
    seconds, cpu = time.monotonic() - began, server.cpu() - cpu
    peak = max((peak_resident(pid) - before[pid]) / _MIB for pid in pids)
    count = len(outcome.seconds)
    median = statistics.median(outcome.seconds) if count else 0.0
    return Measured(count / seconds, median, cpu / max(1, count), peak, outcome.failed)


def _middle(found: Sequence[Measured]) -> Measured:
    """Return the round in the middle, with the peak and the failures of all."""
    middle = sorted(found, key=lambda one: one.per_second)[len(found) // 2]
    failed = sum((one.failed for one in found), Counter[str]())
    return Measured(middle.per_second, middle.median, middle.cpu, max(one.peak for one in found), failed)


def _row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _table(title: str, *headings: str) -> None:
    print(f"\n{title}\n", flush=True)
    _row(*headings)
    _row(*["---"] * len(headings))


def _failures(failed: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in failed.items()) or "0"


def sizes(cluster: Cluster) -> None:
    """Compare the ways at both sizes, with one and two replicas."""
    _table("Sizes", "request", "replicas", "way", "requests/s", "MiB/s", "median ms", "CPU ms", "peak MiB", "failed")
    for replicas in (1, 2):
        servers = [cluster.deploy(way, replicas) for way in WAYS]
        for name, model, nbytes, connections in (("4 KiB", "identity", _SMALL, 8), ("64 MiB", "sink", _LARGE, 3)):
            message = load.message_for(nbytes)
            found: dict[str, list[Measured]] = {way: [] for way in WAYS}
            for _ in range(_ROUNDS):
                for server in servers:
                    request = clients.request_to(server, model, message)
                    found[server.name].append(measure(cluster, server, request, connections))
            for way, rounds in found.items():
                one = _middle(rounds)
                rate = f"{one.per_second:,.1f}" if one.per_second < 100 else f"{one.per_second:,.0f}"
                volume = f"{one.per_second * nbytes / _MIB:,.0f}"
                figures = (rate, volume, f"{one.median * 1e3:.1f}", f"{one.cpu * 1e3:.2f}", f"{one.peak:.0f}")
                _row(name, replicas, way, *figures, _failures(one.failed))


def refusal(cluster: Cluster) -> None:
    """Refuse 64 MiB for a model that there is not."""
    _table("Refusal of 64 MiB", "way", "ms", "MiB sent by then", "CPU ms", "peak MiB")
    for way in WAYS:
        server = cluster.deploy(way)
        found = [_refused(cluster, server) for _ in range(5)]
        wall, sent, cpu, peak = (statistics.median(values) for values in zip(*found, strict=True))
        _row(way, f"{wall * 1e3:.1f}", f"{sent / _MIB:.1f}", f"{cpu * 1e3:.1f}", f"{peak:.1f}")


def _refused(cluster: Cluster, server: Running) -> tuple[float, float, float, float]:
    request = clients.request_to(server, "unknown", load.message_for(_LARGE))
    body = memoryview(b"".join(bytes(buffer) for buffer in request.buffers))
    pid = cluster.pids(server.name)[0]
    before = resident(pid)
    forget_peak(pid)
    sent = 0
    with closing(load.connect(server)) as sock:
        cpu, began = server.cpu(), time.monotonic()
        sock.sendall(request.head)
        sock.setblocking(False)
        while True:
            try:
                sent += sock.send(body[sent : sent + (1 << 18)])
            except BlockingIOError:
                time.sleep(0.0005)
            except OSError:
                break
            try:
                if sock.recv(1 << 16):
                    break
            except BlockingIOError:
                continue
        wall = time.monotonic() - began
    time.sleep(0.3)
    return wall, sent, server.cpu() - cpu, (peak_resident(pid) - before) / _MIB


def slow(cluster: Cluster) -> None:
    """Send 256 MiB to a model that begins to read after two seconds."""
    _table("A reader that waits, 256 MiB", "way", "MiB taken in 1 s", "peak MiB of the replica")
    for way in ("shared", "ingress"):
        server = cluster.deploy(way)
        pid = cluster.pids(way)[0]
        before = resident(pid)
        forget_peak(pid)
        sent = clients.push(server, "slow", 256 * _MIB, SLOW_SECONDS / 2)
        _row(way, f"{sent / _MIB:.1f}", f"{(peak_resident(pid) - before) / _MIB:.1f}")


def memory(cluster: Cluster) -> None:
    """Send 12 times 64 MiB at once to a replica with 512 MiB reserved: 256 MiB for requests."""
    _table("12 times 64 MiB at once, 512 MiB reserved", "way", "requests/s", "peak MiB", "failed")
    for way in WAYS:
        server = cluster.deploy(way, memory=512 * _MIB)
        request = clients.request_to(server, "holding", load.message_for(_LARGE))
        one = measure(cluster, server, request, 12)
        _row(way, f"{one.per_second:.1f}", f"{one.peak:.0f}", _failures(one.failed))


def killed(cluster: Cluster) -> None:
    """Kill one of two replicas under load."""
    _table("One of two replicas killed under load", "way", "answered", "failed", "longest gap s", "replaced after s")
    for way in WAYS:
        server = cluster.deploy(way, 2)

        def kill(way: str = way) -> float:
            victim = cluster.pids(way)[0]
            os.kill(victim, signal.SIGKILL)
            return until(lambda: victim not in cluster.pids(way) and len(cluster.pids(way)) == 2, 60)

        _under_load(server, kill)


def rolling(cluster: Cluster) -> None:
    """Replace both replicas under load."""
    _table("Rolling update of two replicas under load", "way", "answered", "failed", "longest gap s", "took s")
    for way in WAYS:
        server = cluster.deploy(way, 2)

        def update(way: str = way) -> float:
            began = time.monotonic()
            cluster.deploy(way, 2)
            return time.monotonic() - began

        _under_load(server, update)


def _under_load(server: Running, act: Callable[[], float]) -> None:
    request = clients.request_to(server, "identity", load.message_for(_SMALL))
    with clients.hammering(server, request, 8) as outcome:
        time.sleep(1)
        seconds = act()
        time.sleep(1)
    answered = f"{len(outcome.seconds):,}"
    _row(server.name, answered, _failures(outcome.failed), f"{outcome.longest_gap:.2f}", f"{seconds:.1f}")


def autoscaling(cluster: Cluster) -> None:
    """Let the number of replicas follow the load, from one to two and back."""
    cluster.delete("shared")
    _table("Autoscaling of the shared port", "event", "after s", "failed")
    server = cluster.deploy("shared", most=2)
    request = clients.request_to(server, "identity", load.message_for(_SMALL))
    with clients.hammering(server, request, 8) as outcome:
        seconds = until(lambda: len(cluster.pids("shared")) == 2, 90)
        time.sleep(3)
    _row("load begins: a second replica", f"{seconds:.1f}", _failures(outcome.failed))
    seconds = until(lambda: len(cluster.pids("shared")) == 1, 120)
    _row("load ends: one replica", f"{seconds:.1f}", "0")
    cluster.delete("shared")


def left(cluster: Cluster) -> None:
    """Look for what thousands of broken, refused and good requests leave in a replica."""
    cluster.delete("shared")
    server = cluster.deploy("shared")
    pid = cluster.pids("shared")[0]
    _table(f"What {_EVENTS:,} events leave", "when", "files", "threads", "tasks", "reserved bytes", "requests", "MiB")
    for when, count in (("before, after 600", 600), ("after", _EVENTS)):
        clients.abuse(server, count)
        until(lambda: cluster.state()["requests"] == 0, 20)
        state = cluster.state()
        rest = (state["tasks"], state["reserved_bytes"], state["requests"], f"{resident(pid) / _MIB:.0f}")
        _row(when, clients.descriptors(pid), clients.threads(pid), *rest)


SCENARIOS: Final = {one.__name__: one for one in (sizes, refusal, slow, memory, killed, rolling, autoscaling, left)}


def main(names: Sequence[str]) -> None:
    """Run scenarios, all of them if none is named."""
    with running() as cluster:
        for name in names or SCENARIOS:
            SCENARIOS[name](cluster)
    if threading.active_count() > 1:
        sys.exit("clients have not ended")


if __name__ == "__main__":
    main(sys.argv[1:])
