"""Plots: one picture for each chart of a scenario, and one for the front page.

A bar is a median, its whisker the quartiles. Every bar has its name and its value in words, so that there is no legend
and no axis to read. Bars begin at 0 and are linear. If the cases of a chart differ too much for one scale, each case
has its own. A system has the same colour in all pictures. A curve joins medians. The pictures are as narrow as a phone.
matplotlib comes with the extra `bench`, and nothing but this file needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.figures import OURS, Chart, Figure
from tests.benchmarks.units import with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_COLOURS: Final = {
    OURS: "#1f6fb2",
    "Triton": "#c9a227",
    "tritonclient": "#c9773a",
    "KServe": "#7a5ea8",
    "bare": "#8a8f98",
}
_OTHER_COLOUR: Final = "#5b8c5a"
_CURVE_COLOURS: Final = ("#1f6fb2", "#c9a227", "#7a5ea8", "#5b8c5a")
_EVEN_COLOUR: Final = "#c0392b"
_WIDTH_INCHES: Final = 4.2
_ROW_INCHES: Final = 0.21
_CURVES_INCHES: Final = 4.2
_DPI: Final = 170
_NAMES: Final = 0.42
"""The part of the width, in units of the longest bar, that the names of bars take."""
_VALUES: Final = 0.55
"""The same for their values."""
_MOST: Final = 20
"""The largest value of a chart that has one scale, in units of the smallest of the cases' largest values."""

Groups = Sequence[tuple[str, Sequence[Figure]]]
"""Headings, and what stands below each."""


def draw(chart: Chart, figures: Sequence[Figure], path: Path) -> None:
    """Draw a chart.

    Args:
        chart: what is shown.
        figures: those of its quantity, not empty.
        path: of the PNG.
    """
    cases = list(dict.fromkeys(figure.case for figure in figures))
    if chart.is_curve:
        canvas, axes = _canvas(_CURVES_INCHES, chart.title)
        _draw_curves(axes, chart, figures, cases)
        canvas.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
        canvas.savefig(path, metadata={"Software": None})
        return
    groups = [(case.replace("`", ""), [figure for figure in figures if figure.case == case]) for case in cases]
    draw_bars(chart.title, groups, path)


def draw_bars(title: str, groups: Groups, path: Path) -> None:
    """Draw groups of bars, one below the other."""
    longest = [max(_end(figure) for figure in figures) for _, figures in groups]
    is_one_scale = len({figure.unit for _, figures in groups for figure in figures}) == 1
    is_one_scale = is_one_scale and max(longest) <= _MOST * min(longest)
    rows = sum(len(figures) + 1.6 for _, figures in groups)
    canvas, axes = _canvas(_ROW_INCHES * rows + 0.45, title)
    position = 0.0
    for (heading, figures), end in zip(groups, longest, strict=True):
        axes.text(-_NAMES, position, heading, va="center", fontsize=9, fontweight="bold")
        for row, figure in enumerate(figures):
            _draw_bar(axes, figure, position + 1 + row, max(longest) if is_one_scale else end)
        position += len(figures) + 1.6
    axes.set_xlim(-_NAMES, 1 + _VALUES)
    axes.set_ylim(position - 0.9, -0.7)
    axes.set_axis_off()
    canvas.savefig(path, metadata={"Software": None})


def _canvas(height: float, title: str) -> tuple[Canvas, Axes]:
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    canvas = Canvas(figsize=(_WIDTH_INCHES, height), dpi=_DPI, layout="constrained")
    axes = canvas.subplots()
    canvas.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return canvas, axes


def _draw_curves(axes: Axes, chart: Chart, figures: Sequence[Figure], cases: Sequence[str]) -> None:
    """Draw a curve for each `who`, with a line at 1, where both sides of a ratio are equal."""
    axes.axhline(1, color=_EVEN_COLOUR, linewidth=1)
    for number, who in enumerate(dict.fromkeys(figure.who for figure in figures)):
        medians = {figure.case: figure.spread.median for figure in figures if figure.who == who}
        places = [place for place, case in enumerate(cases) if case in medians]
        colour, style = _CURVE_COLOURS[number % 4], ("-", "--")[number // 4 % 2]
        axes.plot(places, [medians[cases[place]] for place in places], style, color=colour, marker="o", ms=3, label=who)
    axes.set_xticks(range(len(cases)), list(cases), rotation=45, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(chart.quantity)
    axes.spines[["top", "right"]].set_visible(False)


def _end(figure: Figure) -> float:
    return max(figure.spread.median, figure.spread.high)


def _draw_bar(axes: Axes, figure: Figure, position: float, scale: float) -> None:
    spread = figure.spread
    low, middle, high = (value / scale for value in (spread.low, spread.median, spread.high))
    whiskers = [[max(0, middle - low)], [max(0, high - middle)]]
    axes.barh(position, middle, 0.8, color=_COLOURS.get(figure.who, _OTHER_COLOUR), xerr=whiskers, ecolor="#333333")
    text = with_unit(figure.unit, spread.median)
    if figure.bound is not None:
        text += f", goal {figure.bound.relation} {with_unit(figure.unit, figure.bound.value)}"
    axes.text(max(middle, high) + 0.02, position, text, va="center", fontsize=8)
    axes.text(-0.02, position, figure.who, va="center", ha="right", fontsize=8)


def draw_panels(
    title: str, cases: Sequence[str], panels: Mapping[str, Mapping[str, Sequence[float]]], path: Path
) -> None:
    """Draw one panel below the other, each with curves over the same cases.

    Args:
        title: of the picture.
        cases: below the last panel.
        panels: by what they show, the values of each curve by its name.
        path: of the PNG.
    """
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    canvas = Canvas(figsize=(_WIDTH_INCHES, 2.1 * len(panels) + 0.6), dpi=_DPI, layout="constrained")
    canvas.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    rows = canvas.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, (quantity, curves) in zip(rows, panels.items(), strict=True):
        for number, (who, values) in enumerate(curves.items()):
            axes.plot(values, color=_CURVE_COLOURS[number % 4], marker="o", ms=3, label=who)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(quantity, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    rows[-1].set_xticks(range(len(cases)), list(cases))
    handles, names = rows[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    canvas.savefig(path, metadata={"Software": None})
