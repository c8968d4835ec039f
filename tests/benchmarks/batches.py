"""Batches: the rows of many clients in one call of a model, next to a call for each request.

A layer of 1,024 x 1,024 by numpy with one BLAS thread, and requests with one row of 4 KiB, sent over and over by wrk on
64 connections, and on one. One server has the model three times: with `Batch(max_rows=64, max_delay=0.002)`; as a
function with a call for each request, in threads or on the event loop as the server finds best; and as one that
promises to be quick. They are measured in turn. A client that is alone waits for others in vain: `max_delay` is what it
may lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.benchmarks import wrk
from tests.benchmarks.batching.__main__ import SIZES, request_of, serving
from tests.benchmarks.batching.net import MAX_DELAY
from tests.benchmarks.figures import Figures, Options, Scenario, at_least, at_most
from tests.benchmarks.measure import ratios
from tests.benchmarks.peers import Missing, Running, tool

_SIZE: Final = "4 KiB"
_BATCHES: Final = "batches"
_EACH: Final = "a call each"
_INLINE: Final = "inline"
_SERVED: Final = {_BATCHES: "streamcodec", _EACH: "streamcodec, a call each", _INLINE: "streamcodec, inline"}
"""Names of `batching`."""
_MOST_BEYOND: Final = MAX_DELAY + 0.0005
"""What a client that is alone may wait longer: the delay, a timer, and another turn of the event loop."""


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    try:
        program = tool("wrk", "wrk")
    except Missing as reason:
        found.missing.append(str(reason))
        return found
    with serving("streamcodec", SIZES[_SIZE]) as server:
        files = {
            who: wrk.write(options.work, [request_of(name, server, SIZES[_SIZE])], name=f"batches {who}")
            for who, name in _SERVED.items()
        }
        many = _measure(found, program, server, files, 64, rounds=options.choose(5, 2))
        alone = _measure(found, program, server, files, 1, rounds=options.choose(7, 2))
    case = _case(64)
    rates = {who: [one.rate for one in runs] for who, runs in many.items()}
    for who in (_EACH, _INLINE):
        values = ratios(rates[_BATCHES], rates[who])
        found.add(case, "requests, ratio", f"{_BATCHES} / {who}", "ratio", values, bound=at_least(1))
    pairs = zip(alone[_BATCHES], alone[_INLINE], strict=True)
    beyond = [ours.p50 - theirs.p50 for ours, theirs in pairs]
    found.add(_case(1), "median beyond inline", _BATCHES, "s", beyond, bound=at_most(_MOST_BEYOND))
    return found


def _case(connections: int) -> str:
    return f"{connections} connection{'s' * (connections > 1)}"


def _measure(
    found: Figures, program: str, server: Running, files: Mapping[str, Path], connections: int, *, rounds: int
) -> dict[str, list[wrk.Run]]:
    """Send requests to each in turn, and report what came out."""
    runs: dict[str, list[wrk.Run]] = {who: [] for who in files}
    cpu: dict[str, list[float]] = {who: [] for who in files}
    for _ in range(rounds):
        for who, file in files.items():
            before = server.cpu()
            one = wrk.run(program, server, file, connections=connections, seconds=2)
            runs[who].append(one)
            cpu[who].append((server.cpu() - before) / one.requests)
    case = _case(connections)
    for who, measured in runs.items():
        found.add(case, "requests", who, "1/s", [one.rate for one in measured])
    for who, measured in runs.items():
        found.add(case, "median", who, "s", [one.p50 for one in measured])
    for who, measured in runs.items():
        found.add(case, "99th percentile", who, "s", [one.p99 for one in measured])
    for who, values in cpu.items():
        found.add(case, "CPU per request", who, "s", values)
    return runs


SCENARIO = Scenario(
    title="Batches of several clients", about=__doc__, run=run, served="as its table says; access log off"
)
