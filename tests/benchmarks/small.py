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

import json
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec import Tensor, encode_request
from tests.benchmarks import load
from tests.benchmarks.figures import OURS, Chart, Figures, Options, Scenario, at_least
from tests.benchmarks.measure import in_turn, ratios
from tests.benchmarks.peers import TRITON, Missing, Running, tool

_SCRIPTS: Final = Path(__file__).with_name("wrk")
_FLOATS: Final = np.arange(16, dtype=np.float32)
_MARK: Final = "x" * 16
_LEAST: Final = {(1, "constant"): 1.2, (1, "changing"): 0.7, (16, "constant"): 1.2, (16, "changing"): 0.4}
"""Requests per second, ours by Triton's, for connections and head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of wrk has found; times in seconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    try:
        wrk = tool("wrk", "wrk")
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
                _run_wrk, wrk, server, _write_request(options.work, server, head), connections, seconds
            )
            for server in servers
        }
        runs = in_turn(variants, options.choose(7, 3))
        case = f"{connections} connection{'s'[: connections > 1]}, {head} head"
        _report(found, case, runs, least)
    found.charts.append(Chart(quantity="requests", title="16 floats there and back"))
    return found


def _report(found: Figures, case: str, runs: dict[str, list[Run]], least: float) -> None:
    for name, taken in runs.items():
        found.add(case, "requests", name, "1/s", [run.rate for run in taken])
    for name, taken in runs.items():
        found.add(case, "time, median", name, "s", [run.p50 for run in taken])
        found.add(case, "time, 99th percentile", name, "s", [run.p99 for run in taken])
    if TRITON in runs:
        values = ratios([run.rate for run in runs[OURS]], [run.rate for run in runs[TRITON]])
        found.add(case, "requests, ratio", f"{OURS} / {TRITON}", "ratio", values, bound=at_least(least))


def _write_request(work: Path, server: Running, head: str) -> Path:
    """Write the whole request to a file; a changing head has marks where the script puts a number."""
    is_changing = head == "changing"
    message = encode_request(
        [Tensor(name="x", array=_FLOATS)],
        parameters={"binary_data_output": True},
        request_id=_MARK if is_changing else None,
    )
    fields = [*message.headers]
    if is_changing:
        fields.append(("traceparent", f"00-0123456789abcdef{_MARK}-0123456789abcdef-01"))
    path = work / f"{server.name}-{head}.http"
    path.write_bytes(b"".join([load.head_of(server, "identity", fields), *message.buffers]))
    return path


def _run_wrk(wrk: str, server: Running, request: Path, connections: int, seconds: int) -> Run:
    script = _SCRIPTS / f"{request.stem.rpartition('-')[2]}.lua"
    command = [wrk, "--threads=1", f"--connections={connections}", f"--duration={seconds}s", "--timeout=10s"]
    command += ["--script", str(script), server.url, "--", str(request)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result = Run(**json.loads(output.splitlines()[-1]))
    if result.errors:
        msg = f"{result.errors} of {result.requests} requests to {server.name} failed:\n{output}"
        raise RuntimeError(msg)
    return result


SCENARIO = Scenario(title="Small requests", about=__doc__, run=run)
