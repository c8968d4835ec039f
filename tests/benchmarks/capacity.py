"""Capacity: cores, memory and network for a rate of requests, from what one request costs.

    python -m tests.benchmarks.capacity            # the tables, from `results.json`; the same numbers each time
    python -m tests.benchmarks.capacity measure    # the figures anew, and a check against two workers;
                                                   # with STREAMCODEC_RAY_PYTHON also against two replicas of Ray Serve

The model has three parts. *Cores*: a request costs the same CPU time on every core, so a rate takes rate times cost,
and some room. *Network*: bytes and frames. *Memory and time*: a simulation of each request. Requests come at random
(Poisson). A connection belongs to one replica, by chance, as the system shares them out. A body comes as fast as its
client's network; it holds its memory from its first byte to its answer. Each replica works through what is complete,
one after the other. The generator of random numbers has a seed.

The CPU time of a request is what `costs` has measured, in each of its ways: with TLS, with the default model, with the
access log. The model's own work comes on top: what is counted here is receiving, decoding and answering.
"""

from __future__ import annotations

import heapq
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from streamcodec import Limits
from tests.benchmarks import costs, load, results
from tests.benchmarks.peers import Peers, Running
from tests.benchmarks.prose import RESULTS
from tests.processes import cpu_clock
from tests.ray import clients
from tests.ray.cluster import INTERPRETER, running

MIB: Final = 1 << 20
_CORES_FULL: Final = 0.6
"""Of a core, on average: with more, bursts wait long."""
_FRAMES: Final = 1.05
"""Ethernet, IP and TCP headers of full frames, and acknowledgements."""
_NODE_CORES: Final = 16
_NODE_BITS: Final = 25e9
"""A common machine of a cloud."""
_NETWORK_FULL: Final = 0.7
"""Of a node's network: bursts are lost in switches, and sent again, if there is no room."""
_CONNECTION_BYTES: Final = 72 << 10
"""Scratch memory, see `ServerOptions.max_connections`."""
_HEADER_BYTES: Final = 16 << 10
"""`Limits.max_header_bytes` for requests of one tensor: a name, a datatype, a shape."""
_ARRIVALS: Final = 60_000
_SEED: Final = 20_261_122

_Found = dict[tuple[str, str], list[tuple[float, float, float]]]
"""By setup and size: requests per second, CPU seconds of each, and cores."""

_FAST: Final = "1 TB/h, fast clients"
"""As the line before it, but for the memory."""
_MOST: Final = costs.WAYS[-1]
"""The way that costs most: memory and times are counted with it."""

_MACHINES: Final = ((1, 2), (4, 16), (16, 64))
"""Cores and GiB."""
_ROUNDS: Final = 5
_SECONDS: Final = 1.5


@dataclass(frozen=True, slots=True)
class Figures:
    """What one request costs."""

    name: str
    nbytes: int
    """Of its tensor."""
    cpu: float
    """Seconds of one core."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is wanted."""

    name: str
    rate: float
    """Requests per second."""
    figures: Figures
    client_bits: float
    """Per second, of each client's network."""


_FOUND: Final = {
    (figure.case, figure.who): figure.spread.median
    for figure in results.read(RESULTS)["costs"].figures.figures
    if figure.quantity == costs.CPU
}
"""Seconds of one core, by size and way."""
MEASURED: Final = {size: Figures(size, nbytes, _FOUND[size, costs.BARE]) for size, nbytes in costs.SIZES.items()}
"""The bundled server, model `sink`, with nothing that costs more."""


def limits_for(figures: Figures) -> Limits:
    """Return limits that let such requests in, and nothing larger."""
    most = figures.nbytes + _HEADER_BYTES
    return Limits(max_header_bytes=_HEADER_BYTES, max_tensor_bytes=figures.nbytes, max_message_bytes=most)


def request_bytes(limits: Limits) -> int:
    """Return the most memory of one request in flight: its message, and the scratch memory of its connection.

    A pool's block may be a quarter larger than the tensor in it.
    """
    return limits.max_message_bytes + limits.max_tensor_bytes // 4 + _CONNECTION_BYTES


def replicas_for(demand: Demand) -> int:
    """Return how many cores it takes, each for one process or replica; at least two, since one may die."""
    return max(2, math.ceil(demand.rate * demand.figures.cpu / _CORES_FULL))


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulation has seen."""

    mean: float
    p99: float
    """Seconds from the end of the body to its answer."""
    most_in_flight: int
    """Of all replicas together."""
    most_in_one: int
    """Of the replica that had the most."""


def simulate(demand: Demand, replicas: int, *, arrivals: int = _ARRIVALS, seed: int = _SEED) -> Simulated:
    """Let so many requests come."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    transfer = demand.figures.nbytes * 8 / demand.client_bits
    now, free = 0.0, [0.0] * replicas
    complete: list[tuple[float, int]] = []
    for _ in range(arrivals):
        now += chance.expovariate(demand.rate)
        complete.append((now + transfer, chance.randrange(replicas)))
    waits, changes = [], []
    for at, replica in complete:  # transfers take the same time, so they end in the order in which they began
        free[replica] = end = max(at, free[replica]) + demand.figures.cpu
        waits.append(end - at)
        changes += [(at - transfer, 1, replica), (end, -1, replica)]
    heapq.heapify(changes)
    held, most, most_in_one = [0] * replicas, 0, 0
    in_flight = 0
    while changes:
        _, change, replica = heapq.heappop(changes)
        in_flight += change
        held[replica] += change
        most, most_in_one = max(most, in_flight), max(most_in_one, held[replica])
    return Simulated(statistics.fmean(waits), statistics.quantiles(waits, n=100)[98], most, most_in_one)


def demands(way: str = costs.BARE) -> list[Demand]:
    """Return what the page shows, served in one of the ways of `costs`."""
    small, large = (replace(figures, cpu=_FOUND[size, way]) for size, figures in MEASURED.items())
    hour = 1e12 / 3600
    return [
        Demand("10,000 requests/s", 10_000, small, 100e6),
        Demand("1 TB/h", hour / small.nbytes, small, 100e6),
        Demand("1 TB/h", hour / large.nbytes, large, 100e6),
        Demand(_FAST, hour / large.nbytes, large, 10e9),
        Demand("10,000 requests/s", 10_000, large, 10e9),
    ]


def nodes_for(demand: Demand) -> tuple[int, int]:
    """Return how many nodes it takes for its cores, and how many for its network: the larger one saturates first."""
    by_cores = math.ceil(replicas_for(demand) / _NODE_CORES)
    return by_cores, math.ceil(bits_for(demand) / (_NODE_BITS * _NETWORK_FULL))


def bits_for(demand: Demand) -> float:
    """Return the bits per second that arrive."""
    return demand.rate * demand.figures.nbytes * 8 * _FRAMES


def print_plan() -> None:
    """Print the tables of the page."""
    _head("demand", "tensor", "requests/s", "Gbit/s", "nodes for the network", *(f"cores: {way}" for way in costs.WAYS))
    for served in zip(*map(demands, costs.WAYS), strict=True):
        one = served[0]
        if one.name != _FAST:
            rates = f"{one.rate:,.1f}", f"{bits_for(one) / 1e9:,.1f}", f"{nodes_for(one)[1]:,}"
            _row(one.name, one.figures.name, *rates, *(f"{replicas_for(each):,}" for each in served))
    print()
    _head("demand", "tensor", "clients", "most in flight", "MiB of a replica, at most", "mean ms", "p99 ms")
    for one in demands(_MOST):
        seen = simulate(one, replicas_for(one))
        most = seen.most_in_one * request_bytes(limits_for(one.figures)) / MIB
        network = f"{one.client_bits / 1e6:,.0f} Mbit/s"
        cells = f"{seen.most_in_flight:,}", f"{most:,.0f}", f"{seen.mean * 1e3:.1f}", f"{seen.p99 * 1e3:.1f}"
        _row(one.name, one.figures.name, network, *cells)
    print()
    print_machines()


def print_machines() -> None:
    """Print what machines take: requests of one size, half of the memory for them, and a worker for each core."""
    _head("cores, memory", "tensor", "requests/s: bare", f"requests/s: {_MOST}", "Gbit/s: bare", "in memory at once")
    for cores, gibibytes in _MACHINES:
        for size, figures in MEASURED.items():
            rates = [cores * _CORES_FULL / _FOUND[size, way] for way in (costs.BARE, _MOST)]
            bits = bits_for(Demand("", rates[0], figures, 0))
            at_once = (gibibytes << 30) // 2 // request_bytes(limits_for(figures))
            cells = *(f"{rate:,.0f}" for rate in rates), f"{bits / 1e9:,.1f}", f"{at_once:,}"
            _row(f"{cores}, {gibibytes} GiB", size, *cells)


def _head(*cells: str) -> None:
    _row(*cells)
    _row(*["---"] * len(cells))


@contextmanager
def _workers(peers: Peers, count: int) -> Iterator[Running]:
    """Run the server in so many processes; the CPU is that of all of them."""
    with peers.fresh_ours("--workers", str(count)) as server:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        clocks = [cpu_clock(pid) for pid in (server.pid, *map(int, children))]
        yield replace(server, cpu=lambda: sum(clock() for clock in clocks))


def _load(server: Running, size: str) -> tuple[float, float, float]:
    """Return requests per second, CPU seconds of each, and cores that the servers were busy with."""
    request = clients.request_to(server, "sink", load.message_for(costs.SIZES[size]))
    began, cpu = time.monotonic(), server.cpu()
    with clients.hammering(server, request, costs.CONNECTIONS[size]) as outcome:
        time.sleep(_SECONDS)
    seconds, cpu = time.monotonic() - began, server.cpu() - cpu
    if outcome.failed:
        raise RuntimeError(outcome.failed)
    count = len(outcome.seconds)
    return count / seconds, cpu / count, cpu / seconds


def measure() -> None:
    """Print what requests cost with one and two processes, and whether the model's assumption holds."""
    with tempfile.TemporaryDirectory() as work, Peers(Path(work)) as peers, ExitStack() as stack:
        setups = {f"{count} worker{'s' * (count > 1)}": stack.enter_context(_workers(peers, count)) for count in (1, 2)}
        found: _Found = {(name, size): [] for size in MEASURED for name in setups}
        for _ in range(_ROUNDS):
            for size in MEASURED:
                for name, server in setups.items():
                    found[name, size].append(_load(server, size))
    if INTERPRETER in os.environ:
        with running() as cluster:
            for count in (1, 2):
                server = cluster.deploy("shared", count)
                for size in MEASURED:
                    name = f"{count} replica{'s' * (count > 1)}"
                    found[name, size] = [_load(server, size) for _ in range(_ROUNDS)]
    _print_check(found)


def _print_check(found: _Found) -> None:
    """Print rates next to what the model says of them: cores got, divided by what a request costs with only one."""
    _head("setup", "tensor", "requests/s", "CPU ms each", "cores got", "requests/s by the model", "measured / model")
    for (name, size), rounds in found.items():
        rate, cpu, cores = (statistics.median(values) for values in zip(*rounds, strict=True))
        alone = "1 worker" if "worker" in name else "1 replica"
        base = statistics.median(each for _, each, _ in found[alone, size])
        model = cores / base
        _row(name, size, f"{rate:,.0f}", f"{cpu * 1e3:.3f}", f"{cores:.2f}", f"{model:,.0f}", f"{rate / model:.2f}")


def main(arguments: list[str]) -> None:
    """Do what is asked for."""
    match arguments:
        case []:
            print_plan()
        case ["measure"]:
            measure()
        case _:
            sys.exit(__doc__)


def _row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
