"""Our client against tritonclient, both with a real Triton: 64 MiB to `identity` and back.

Each round is a fresh process for each client, in turn. It holds the tensor, makes one call for nothing, and then a few
that count; the answer is an array that can be used. The server's share of the time is the same for both. Memory is the
peak above what the process had before these calls.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import Any

from tests.benchmarks import load
from tests.benchmarks.figures import MIB, OURS, Chart, Figures, Options, Scenario, at_most
from tests.benchmarks.measure import in_turn, ratios
from tests.benchmarks.peers import TRITON

_NBYTES = 64 * MIB
_CALLS = 5
_OTHER = "tritonclient"
_CASE = "64 MiB"


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    servers = options.peers.found([TRITON], found.missing)
    found.name(servers)
    if importlib.util.find_spec(_OTHER) is None:
        found.missing.append(f"{_OTHER} is not here. To have it: `pip install -e '.[bench]'`")
        return found
    found.versions[_OTHER] = version(_OTHER)
    for server in servers:
        load.check(server)
        kinds = {name: partial(_call, name, server.url) for name in (OURS, _OTHER)}
        _report(found, in_turn(kinds, options.choose(9, 3), warm_up=False))
    return found


def _report(found: Figures, runs: dict[str, list[dict[str, Any]]]) -> None:
    times = {name: [median(run["seconds"]) for run in taken] for name, taken in runs.items()}
    peaks = {name: [run["peak"] for run in taken] for name, taken in runs.items()}
    for name in runs:
        found.add(_CASE, "time", name, "s", times[name])
    for name in runs:
        found.add(_CASE, "peak memory", name, "B", peaks[name])
    who = f"{OURS} / {_OTHER}"
    found.add(_CASE, "time, ratio", who, "ratio", ratios(times[OURS], times[_OTHER]), bound=at_most(0.5))
    found.add(_CASE, "peak memory, ratio", who, "ratio", ratios(peaks[OURS], peaks[_OTHER]), bound=at_most(1 / 3))
    found.charts.append(Chart(quantity="time", title="64 MiB to Triton and back"))
    found.charts.append(Chart(quantity="peak memory", title="64 MiB to Triton and back: memory of the client"))


def _call(kind: str, url: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.client_program", kind, url, str(_NBYTES), str(_CALLS)]
    result: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return result


SCENARIO = Scenario(title="Clients", about=__doc__, run=run)
