"""Beside Triton: rows of requests that wrk sends to our server and to Triton by turns, and what a row must reach.

The same bytes go to both. A request that fails, or whose status is another than it must be, fails the scenario. CPU is
that of the server's whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.benchmarks import load, wrk
from tests.benchmarks.figures import OURS, Bound, Figures, Options
from tests.benchmarks.measure import in_turn, ratios
from tests.benchmarks.peers import TRITON, Missing, Running, tool

_RATIO: Final = f"{OURS} / {TRITON}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of request."""

    case: str
    requests: Callable[[], Sequence[bytes]]
    """Makes them; they are sent at random."""
    bound: Bound | None
    """Of requests per second, ours by Triton's."""
    is_refused: bool = False
    """Whether they must be answered with a status of 400 or more."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What one run has found."""

    rate: float
    """Requests per second."""
    cpu: float
    """Seconds of the server for each."""


def compare(options: Options, rows: Iterable[Row], *, connections: Sequence[int]) -> Figures:
    """Measure requests per second of both, for each row over each number of connections."""
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
    seconds = options.choose(2, 1)
    for row in rows:
        file = wrk.write(options.work, row.requests())
        for count in connections:
            run = partial(
                wrk.run, program, requests=file, connections=count, seconds=seconds, is_refused=row.is_refused
            )
            taken = in_turn({server.name: partial(_measure, run, server) for server in servers}, options.choose(3, 2))
            report(found, f"{row.case}, {count} connection{'s'[: count > 1]}", taken, row.bound)
    return found


def _measure(run: Callable[..., wrk.Run], server: Running) -> Rate:
    before = server.cpu()
    seen = run(server=server)
    return Rate(seen.rate, (server.cpu() - before) / seen.requests)


def report(found: Figures, case: str, taken: Mapping[str, Sequence[Rate]], bound: Bound | None) -> None:
    """Report requests per second and CPU of several servers; the bound is for the ratio of the former."""
    rates = {name: [run.rate for run in runs] for name, runs in taken.items()}
    report_ratio(found, case, "requests", "1/s", rates, bound=bound)
    report_ratio(found, case, "CPU of each", "s", {name: [run.cpu for run in runs] for name, runs in taken.items()})


def report_ratio(
    found: Figures,
    case: str,
    quantity: str,
    unit: str,
    values: Mapping[str, Sequence[float]],
    *,
    bound: Bound | None = None,
    bound_of_ours: Bound | None = None,
) -> None:
    """Report a quantity of several servers, and ours by Triton's if it took part."""
    for name, each in values.items():
        found.add(case, quantity, name, unit, each, bound=bound_of_ours if name == OURS else None)
    if TRITON in values:
        found.add(case, quantity, _RATIO, "ratio", ratios(values[OURS], values[TRITON]), bound=bound)
