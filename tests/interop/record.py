"""The record: what the last run of the suite saw of each foreign system.

A cell is a pair (system, feature). Marks put tests into cells, `recorder.py` watches them, and the record, one JSON
file beside this one, keeps what came of it. A run replaces all there is of each system of which at least one test ran,
and nothing else; so quick peers and heavy ones can be run apart.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("record.json")

CLIENTS = (
    "tritonclient sync",
    "tritonclient aio",
    "KServe InferenceRESTClient",
    "Python requests",
    "Node fetch",
    "Chromium fetch",
    "Go net/http",
)
"""They call our server."""
SERVERS = ("KServe ModelServer", "Triton server")
"""Our clients call them."""
SYSTEMS = CLIENTS + SERVERS

FEATURES = (
    "binary tensors",
    "JSON tensors",
    "binary and JSON mixed",
    "FP16",
    "BF16",
    "BOOL",
    "64-bit extremes",
    "NaN payloads",
    "non-finite as JSON",
    "BYTES",
    "BYTES hostile to text",
    "empty tensors",
    "scalars",
    "requested outputs",
    "ids and parameters",
    "raw binary request",
    "headerless form",
    "gzip request",
    "deflate request",
    "compressed response",
    "errors",
    "metadata and health",
    "versions",
    "large tensors",
    "classification",
    "CORS",
)

Place = tuple[str, str]
"""System and feature."""


class Outcome(enum.StrEnum):
    """What came of a test, or of a cell: the worst of its tests."""

    YES = "yes"
    NOT_RUN = "not run"
    """Skipped, or not reached."""
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class Cell:
    """What a run saw of a feature of a system."""

    outcome: Outcome = Outcome.YES
    tests: int = 0
    deviations: list[str] = field(default_factory=list)
    """What the peer does in a way of its own, and what we do about it."""

    def add(self, outcome: Outcome, deviations: Iterable[str]) -> None:
        """Count a test."""
        self.outcome = max(self.outcome, outcome, key=list(Outcome).index)
        self.tests += 1
        self.deviations = list(dict.fromkeys([*self.deviations, *deviations]))


@dataclass(slots=True, kw_only=True)
class SystemRecord:
    """What a run saw of a system."""

    date: str
    """Of the run, as YYYY-MM-DD."""
    versions: dict[str, str]
    """Of the peer and what it stands on, by name."""
    ours: dict[str, str]
    """The same of our side."""
    cells: dict[str, Cell]
    """By feature."""


Record = dict[str, SystemRecord]
"""By system."""


def read_record(path: Path) -> Record:
    """Return the record; an empty one if there is no such file."""
    if not path.exists():
        return {}
    document: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return {system: _system_record(**members) for system, members in document.items()}


def write_record(path: Path, record: Mapping[str, SystemRecord]) -> None:
    """Write the record with systems and features in their order, so that runs differ only where something changed."""
    document = {
        system: asdict(record[system])
        | {"cells": {f: asdict(record[system].cells[f]) for f in cells_of(record, system)}}
        for system in SYSTEMS
        if system in record
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def cells_of(record: Mapping[str, SystemRecord], system: str) -> list[str]:
    """Return the features of which a cell is recorded, in their order."""
    return [feature for feature in FEATURES if system in record and feature in record[system].cells]


def _system_record(*, cells: dict[str, dict[str, Any]], **members: Any) -> SystemRecord:  # noqa: ANN401 - JSON values
    read = {f: Cell(**cell | {"outcome": Outcome(cell["outcome"])}) for f, cell in cells.items()}
    return SystemRecord(cells=read, **members)
