"""The recorder: watches the tests that belong to cells of the matrix, and writes down what came of them.

`conftest.py` calls it from pytest's hooks. It judges nothing: tests assert, `record.py` knows what a cell is.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import streamcodec
from tests.interop.record import FEATURES, SYSTEMS, Cell, Outcome, Place, SystemRecord, read_record, write_record

_MARKER = "interop"
_KEYS = {"system": SYSTEMS, "feature": FEATURES}


@dataclass(slots=True)
class _Test:
    """A test that belongs to a cell."""

    place: Place
    outcome: Outcome = Outcome.NOT_RUN
    deviations: list[str] = field(default_factory=list)


class Recorder:
    """What a session has seen so far."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        """Note which tests belong to which cells.

        Raises:
            pytest.UsageError: marks that name no cell.
        """
        places = {item.nodeid: _place(item) for item in items}
        self._tests = {nodeid: _Test(place) for nodeid, place in places.items() if place is not None}
        self._versions: dict[str, dict[str, str]] = {}

    def see(self, report: pytest.TestReport) -> None:
        """Take the report on setup, call or teardown of a test."""
        test = self._tests.get(report.nodeid)
        if test is None or test.outcome is Outcome.FAILED:
            return
        if report.failed or hasattr(report, "wasxfail"):  # an expected failure is one
            test.outcome = Outcome.FAILED
        elif report.when == "call" and report.passed:
            test.outcome = Outcome.YES

    def add_deviation(self, nodeid: str, text: str) -> None:
        """Take the words of a test that has shown a deviation."""
        assert nodeid in self._tests, "a deviation needs a cell: mark the test with system and feature"
        assert "; " in text, "a deviation says what the peer does; what we do about it"
        self._tests[nodeid].deviations.append(text)

    def add_versions(self, system: str, text: str) -> None:
        """Take versions as `name x.y.z, name x.y.z`."""
        assert system in SYSTEMS, f"there is no system {system!r}"
        versions = self._versions.setdefault(system, {})
        for part in text.split(", "):
            name, _, version = part.rpartition(" ")
            assert name, f"{part!r} is no name and version"
            assert versions.setdefault(name, version) == version, f"{system} has more than one version of {name}"

    def merge_into(self, path: Path) -> None:
        """Replace, in the record, each system of which at least one test ran."""
        ran = {test.place[0] for test in self._tests.values() if test.outcome is not Outcome.NOT_RUN}
        record = read_record(path)
        record.update({system: self._system_record(system) for system in SYSTEMS if system in ran})
        write_record(path, record)

    def _system_record(self, system: str) -> SystemRecord:
        cells: dict[str, Cell] = {}
        for test in self._tests.values():
            if test.place[0] == system:
                cells.setdefault(test.place[1], Cell()).add(test.outcome, test.deviations)
        return SystemRecord(
            date=datetime.now(UTC).date().isoformat(),
            versions=self._versions.get(system, {}),
            ours=_our_versions(),
            cells=cells,
        )


def _place(item: pytest.Item) -> Place | None:
    """Merge the marks of a test and all it is in; the nearest wins, and nearest are those of a parameter."""
    found = [mark for node in item.listchain() for mark in node.own_markers if mark.name == _MARKER]
    if not found:
        return None
    merged: dict[str, str] = {}
    for mark in found:
        merged |= mark.kwargs
    wrong = [f"{key}={value!r}" for key, value in merged.items() if value not in _KEYS.get(key, ())]
    wrong += [f"no {key}" for key in _KEYS if key not in merged]
    if wrong or any(mark.args for mark in found):
        raise pytest.UsageError(f"{item.nodeid}: interop(system=..., feature=...) names no cell: {', '.join(wrong)}")
    return merged["system"], merged["feature"]


def _our_versions() -> dict[str, str]:
    return {
        "streamcodec": streamcodec.__version__,
        "Python": platform.python_version(),
        "numpy": np.__version__,
    }
