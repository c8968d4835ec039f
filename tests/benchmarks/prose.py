"""Prose: measured figures in the pages, each bound by a name to `results.json`.

    python -m tests.benchmarks.prose     # writes the figures of all pages anew

A page has the figure, so that it can be read anywhere. Behind it, in a comment that readers do not see, is its name:

    353 ms<!-- client :: 64 MiB :: time :: tritonclient -->

These are the scenario, the case, the quantity, and whose it is, as the page of the benchmarks has them. `A / B` at the
end is the ratio of the two medians, if there is no figure of this name. It is written without a unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.benchmarks import results
from tests.benchmarks.results import Part
from tests.benchmarks.units import with_unit

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "docs" / "benchmarks" / "results.json"
BOUND: Final = re.compile(r"(?P<shown>\d[\d,.]*(?:\s[\wµ/]+)?)<!--\s+(?P<name>[^<>]+?::[^<>]+?)\s+-->")
"""A figure, and the comment with its name."""


def pages() -> list[Path]:
    """Return what people have written about streamcodec; the benchmarks' own page is made by `report`."""
    docs = (ROOT / "docs").rglob("*.md")
    return [ROOT / "README.md", *sorted(path for path in docs if path.parent.name not in {"benchmarks", "_build"})]


def value(name: str, parts: Mapping[str, Part]) -> str:
    """Return a figure as readers see it.

    Raises:
        LookupError: there is none of that name; the message says which there are.
    """
    scenario, *rest = name.split(" :: ")
    found = {
        f"{figure.case} :: {figure.quantity} :: {figure.who}": figure
        for figure in (parts[scenario].figures.figures if scenario in parts else ())
    }
    key = " :: ".join(rest)
    if key in found:
        return with_unit(found[key].unit, found[key].spread.median)
    where, _, who = key.rpartition(" :: ")
    pair = [found.get(f"{where} :: {one}") for one in who.split(" / ")]
    match pair:
        case [over, under] if over is not None and under is not None:
            return with_unit("ratio", over.spread.median / under.spread.median)
    known = "\n".join(f"{scenario} :: {each}" for each in found) or ", ".join(parts)
    msg = f"no figure {name!r} in results.json; there are:\n{known}"
    raise LookupError(msg)


def rewritten(text: str, parts: Mapping[str, Part]) -> str:
    """Return a page with its figures as the results have them; lines are not wrapped anew."""

    def write(match: re.Match[str]) -> str:
        figure = value(" ".join(match["name"].split()), parts)
        if "\n" in match["shown"]:
            figure = figure.replace(" ", "\n")
        return figure + match[0].removeprefix(match["shown"])

    return BOUND.sub(write, text)


def changed() -> Iterator[tuple[Path, str]]:
    """Yield each page whose figures are not those of the results, with the text that it should have."""
    parts = results.read(RESULTS)
    for path in pages():
        text = path.read_text()
        if (new := rewritten(text, parts)) != text:
            yield path, new


def main() -> None:
    """Write the figures of all pages anew."""
    for path, text in changed():
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
