"""Results: what runs have found, in `results.json`, and on which machine.

A run of some scenarios replaces their part and leaves the others as they are. So each part says for itself when, where
and by which command it was made.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.figures import Bound, Chart, Figure, Figures
from tests.benchmarks.measure import Spread

_PACKAGES: Final = ("streamcodec", "numpy", "h11", "anyio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a part was made."""

    command: str
    date: str
    """Day and time, in UTC."""
    seconds: int
    """How long it took."""
    is_quick: bool
    """Whether rounds were few, and the largest sizes left out."""
    machine: str
    versions: Mapping[str, str]
    """Of what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one scenario has found."""

    run: Run
    figures: Figures


def machine() -> str:
    """Describe this machine in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{name}, {os.cpu_count()} cores, {gibibytes:.0f} GiB, {platform.system()} {platform.release()}"


def versions() -> dict[str, str]:
    """Return the versions of our side."""
    return {"Python": platform.python_version()} | {name: version(name) for name in _PACKAGES}


def read(path: Path) -> dict[str, Part]:
    """Read what earlier runs have found; nothing if there were none."""
    if not path.exists():
        return {}
    return {name: _part(data) for name, data in json.loads(path.read_text()).items()}


def write(path: Path, parts: Mapping[str, Part]) -> None:
    """Write what all runs have found."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {name: asdict(part) for name, part in parts.items()}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _part(data: dict[str, Any]) -> Part:
    found = data["figures"]
    figures = Figures(
        figures=[_figure(figure) for figure in found["figures"]],
        charts=[Chart(**chart) for chart in found["charts"]],
        missing=found["missing"],
        versions=found["versions"],
    )
    return Part(run=Run(**data["run"]), figures=figures)


def _figure(data: dict[str, Any]) -> Figure:
    bound = data["bound"]
    return Figure(**data | {"spread": Spread(**data["spread"]), "bound": None if bound is None else Bound(**bound)})
