"""Small requests: 16 floats to `identity` and back, binary both ways, by wrk.

With a *constant head* each request is the same to the byte, as from a client that sends nothing but its tensor. With a
*changing* one, each has a new `traceparent` in its HTTP head and a new `id` in its JSON, as from a client that traces
its requests; then nothing that is remembered by its bytes can help. wrk sends what a Lua script has prepared, so that
its own work is the same for both servers. It has one thread, and shares the machine with the server that is measured:
ours is one process with one thread, Triton may use all cores.

Runs are short and alternate between the servers. One request that fails, or is not answered with status 200, fails the
scenario.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.benchmarks import load, wrk
from tests.benchmarks.figures import OURS, Chart, Figures, Options, Scenario, at_least
from tests.benchmarks.measure import in_turn, ratios
from tests.benchmarks.peers import TRITON, Missing, tool

_NBYTES: Final = 64
_LEAST: Final = {(1, "constant"): 1.2, (1, "changing"): 0.7, (16, "constant"): 1.2, (16, "changing"): 0.4}
"""Requests per second, ours by Triton's, for connections and head."""


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    try:
        program = tool("wrk", "wrk")
    except Missing as reason:
        found.missing.append(str(reason))
        return found
    servers = [options.peers.ours(), *options.peers.found([TRITON], found.missing)]
    found.name(servers)
    for server in servers:
        load.check(server)
    seconds = options.choose(4, 1)
    for (connections, head), least in _LEAST.items():
        variants = {
            server.name: partial(
                wrk.run,
                program,
                server,
                wrk.write_request(options.work, server, "identity", _NBYTES, head=head),
                connections=connections,
                seconds=seconds,
            )
            for server in servers
        }
        runs = in_turn(variants, options.choose(7, 3))
        case = f"{connections} connection{'s'[: connections > 1]}, {head} head"
        _report(found, case, runs, least)
    found.charts.append(Chart(quantity="requests", title="16 floats there and back"))
    return found


def _report(found: Figures, case: str, runs: dict[str, list[wrk.Run]], least: float) -> None:
    for name, taken in runs.items():
        found.add(case, "requests", name, "1/s", [run.rate for run in taken])
    for name, taken in runs.items():
        found.add(case, "time, median", name, "s", [run.p50 for run in taken])
        found.add(case, "time, 99th percentile", name, "s", [run.p99 for run in taken])
    if TRITON in runs:
        values = ratios([run.rate for run in runs[OURS]], [run.rate for run in runs[TRITON]])
        found.add(case, "requests, ratio", f"{OURS} / {TRITON}", "ratio", values, bound=at_least(least))


SCENARIO = Scenario(title="Small requests", about=__doc__, run=run)
