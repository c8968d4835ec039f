"""Plot: requests per second, and latency by percentile, as a picture. matplotlib comes with the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamcodec.cli.benching.report import Row
from streamcodec.cli.files import write
from streamcodec.engine.errors import LocalProtocolError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUFFIXES: Final = {".svg", ".png", ".pdf"}
_NINES: Final = (0, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
"""Percentiles that are drawn; the distance to 100 is drawn on a logarithmic axis."""
_TICKS: Final = (0, 50, 90, 99, 99.9, 99.99)


def check_plot(path: Path) -> None:
    """Raise LocalProtocolError if no such picture can be drawn; better now than after the measurement."""
    if path.suffix not in _SUFFIXES:
        raise LocalProtocolError(f"--plot {path}: the name must end in {', '.join(sorted(_SUFFIXES))}")
    if find_spec("matplotlib") is None:
        raise LocalProtocolError("--plot needs matplotlib: pip install 'streamcodec[plot]'")


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Draw the runs.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    with rc_context({"svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 4.5), layout="constrained")
        rates, latencies = figure.subplots(1, 2, width_ratios=(2, 3))
        _draw_rates(rates, rows)
        _draw_latencies(latencies, rows)
        figure.suptitle(title, fontsize=10)
        write(path, lambda file: figure.savefig(file, format=path.suffix[1:]), replaces=True)


def _draw_rates(axes: Axes, rows: Sequence[Row]) -> None:
    labels = [row.title for row in rows]
    bars = axes.barh(range(len(rows)), [row.measured.rate for row in rows], color="#1f6fb2")
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_xlabel("requests per second")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_latencies(axes: Axes, rows: Sequence[Row]) -> None:
    for row in rows:
        latencies = row.measured.latencies
        shown = [percent for percent in _NINES if latencies.count * (100 - percent) >= 100]  # noqa: PLR2004 - percent
        if shown:
            times = [1e3 * (latencies.percentile(percent) if percent else latencies.least) for percent in shown]
            axes.plot([100 / (100 - percent) for percent in shown], times, marker="o", markersize=3, label=row.title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([100 / (100 - percent) for percent in _TICKS], [f"{percent:g}" for percent in _TICKS])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("percentile")
    axes.set_ylabel("latency, milliseconds")
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_lines():
        axes.legend(fontsize=8, frameon=False)
