"""Report: what was measured, as a table for people and as a document for programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streamcodec.cli.benching.batches import shown_sizes
from streamcodec.cli.benching.plan import Measured

PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}

_MIB: Final = 1 << 20
_WIDTH: Final = 10
_HEADING: Final = ("connections", "due/s", "requests/s", "MiB/s out", "MiB/s in", *PERCENTILES, "max", "errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run."""

    concurrency: int
    """Connections."""
    rate: float | None
    """Requests per second that were due; None for a closed loop."""
    measured: Measured
    """What was measured."""
    batches: Counter[int] = field(default_factory=Counter)
    """How many calls of the model had so many rows, as its server says; empty if it says nothing."""

    @property
    def title(self) -> str:
        """A short name of the run."""
        connections = f"{self.concurrency} connection{'s' if self.concurrency > 1 else ''}"
        return connections if self.rate is None else f"{connections}, {self.rate:g}/s"


def heading() -> str:
    """Return the first line of the table."""
    return _line(_HEADING)


def row_line(row: Row) -> str:
    """Return the line of a run."""
    measured = row.measured
    seconds = measured.seconds or math.inf
    return _line(
        [
            str(row.concurrency),
            "-" if row.rate is None else f"{row.rate:g}",
            f"{measured.rate:,.1f}" if measured.rate < 100 else f"{measured.rate:,.0f}",  # noqa: PLR2004 - three digits
            f"{measured.sent_bytes / seconds / _MIB:,.1f}",
            f"{measured.received_bytes / seconds / _MIB:,.1f}",
            *(_time(measured.latencies.percentile(percent)) for percent in PERCENTILES.values()),
            _time(measured.latencies.most),
            str(measured.errors.total()),
        ]
    )


def remarks(row: Row) -> Iterator[str]:
    """Say what a reader of the line must know."""
    measured = row.measured
    if row.batches:
        yield f"{row.title}: {shown_sizes(row.batches)}"
    if measured.errors:
        errors = ", ".join(f"{count} x {cause}" for cause, count in measured.errors.most_common())
        yield f"{row.title}: {errors}"
    if measured.unsent:
        yield (
            f"{row.title}: {measured.unsent} more requests were due and had not begun at the end, because all "
            "connections were busy; if there are many, the server is slower than the rate, or --concurrency too low"
        )
    if measured.is_client_saturated:
        yield (
            f"{row.title}: the client used {max(measured.processors):.0%} of a processor, so it may have been the "
            "limit, and not the server; try more --processes, or another machine"
        )


def document(row: Row) -> dict[str, Any]:
    """Return a run for programs: times in seconds, bytes with the heads of HTTP."""
    measured, latencies = row.measured, row.measured.latencies
    return {
        "concurrency": row.concurrency,
        "rate": row.rate,
        "seconds": measured.seconds,
        "requests": latencies.count,
        "requests_per_second": measured.rate,
        "sent_bytes": measured.sent_bytes,
        "received_bytes": measured.received_bytes,
        "latency": {
            "min": latencies.least if latencies.count else 0.0,
            "mean": latencies.mean,
            **{name: latencies.percentile(percent) for name, percent in PERCENTILES.items()},
            "max": latencies.most,
        },
        "errors": dict(measured.errors),
        "unsent": measured.unsent,
        "client_processors": measured.processors,
        "is_client_saturated": measured.is_client_saturated,
        "is_stopped": measured.is_stopped,
        "batches": {str(rows): count for rows, count in sorted(row.batches.items())},
    }


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.rjust(max(_WIDTH, len(name))) for cell, name in zip(cells, _HEADING, strict=True))


def _time(seconds: float) -> str:
    """Return a time with its unit and three digits."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        value = seconds * factor
        if value < 999.5:  # noqa: PLR2004 - more would be shown as 1000
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"  # noqa: PLR2004 - three digits
    return f"{seconds:.2f} s"
