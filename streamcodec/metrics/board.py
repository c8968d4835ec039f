"""Board: the metrics of several processes on one page, whichever of them is asked.

Each process writes its metrics to a file of its own, again and again and whenever its page is asked for. The page is
the sum of all files: counters and histograms are added, and a gauge is shown for each process, with the label `worker`.
So a process that is stuck or has died neither holds up the page nor takes anything from it, and nobody waits for a
lock. `prometheus_client` has such files, too, but only for its own counters, which take a lock for each addition, and
not for what is computed when the page is asked for. A process that is killed takes with it what it has counted since it
last wrote its file: a second's requests, unless its own page has shown them.

The first process folds the file of a process that has ended into one file, so that counters never go back and there are
never more files than processes. It writes this file before it removes the other, and the file says whose are in it. A
reader reads it last. So nobody is counted twice or left out.

The files are in a directory that only this user can read, and that is removed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from threading import get_ident
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, Metric

from streamcodec.runtime.folders import temporary_folder

_PREFIX: Final = "streamcodec-metrics-"
_ENDED: Final = "ended"
_GAUGE: Final = "gauge"
_MOST_FOLDED: Final = 1000
"""Processes that are known to be folded. A file is removed at once, so one that a reader still finds is among them."""

_Families = dict[str, dict[str, Any]]
"""Of one process by name: documentation, type, and samples, each with its name, labels and value."""


class Board:
    """The metrics of several processes.

    Attributes:
        folder: where they are.
    """

    def __init__(self) -> None:
        """Make the folder, in the first process."""
        self.folder: Final[Path] = temporary_folder(_PREFIX)
        self._deaths = self._restarts = 0
        self._folded: list[str] = []
        self._families: _Families = {}
        self._write_ended()

    def close(self) -> None:
        """Remove the folder, in the first process."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # In the first process

    def ended(self, pid: int, has_died: bool) -> None:  # noqa: FBT001 - as `on_worker_end` of `run_workers`
        """Note that a process has ended, and another one takes its place.

        Args:
            pid: its number.
            has_died: whether nobody had told it to end.
        """
        self._deaths += has_died
        self._restarts += 1
        counted = {name: each for name, each in self._read(str(pid)).items() if each["type"] != _GAUGE}
        self._families = _merged([self._families, counted])
        self._folded = [*self._folded[1 - _MOST_FOLDED :], str(pid)]
        if self._write_ended():
            (self.folder / str(pid)).unlink(missing_ok=True)

    def _write_ended(self) -> bool:
        workers = [self._deaths, self._restarts]
        return self._write(_ENDED, {"families": self._families, "folded": self._folded, "workers": workers})

    # In each process

    def publish(self, families: Iterable[Metric]) -> None:
        """Write the present metrics of this process, so that other processes can show them."""
        plain = {
            family.name: {
                "text": family.documentation,
                "type": family.type,
                "samples": [[sample.name, sample.labels, sample.value] for sample in family.samples],
            }
            for family in families
        }
        self._write(str(os.getpid()), plain)

    def collect(self) -> list[Metric]:
        """Return the metrics of all processes."""
        names = [path.name for path in self.folder.iterdir() if path.name.isdecimal()]
        found = {name: self._read(name) for name in names}
        ended = self._read(_ENDED)  # the last: see above
        live = {name: families for name, families in found.items() if name not in ended["folded"]}
        merged = _merged([ended["families"], *(_by_worker(families, name) for name, families in live.items())])
        deaths, restarts = ended["workers"]
        return [
            *map(_family, merged, merged.values()),
            CounterMetricFamily("streamcodec_worker_deaths", "Workers that nobody had told to stop", deaths),
            CounterMetricFamily("streamcodec_worker_restarts", "Workers that took the place of another", restarts),
        ]

    def _write(self, name: str, content: object) -> bool:
        """Write a file at once, or not at all; return whether it was written."""
        beside = self.folder / f"{name}.{os.getpid()}-{get_ident()}.new"  # the page may be asked for meanwhile
        try:
            beside.write_text(json.dumps(content))
            beside.replace(self.folder / name)
        except OSError:  # a full disk: the page shows what was written before
            return False
        return True

    def _read(self, name: str) -> Any:  # noqa: ANN401 - what was written
        try:
            return json.loads((self.folder / name).read_text())
        except OSError:  # folded in the meantime, or nothing has been written yet
            return {}


def _by_worker(families: _Families, worker: str) -> _Families:
    """Return the metrics of one process, its gauges with a label that says whose they are."""
    return {
        name: each
        if each["type"] != _GAUGE
        else {**each, "samples": [[key, {**labels, "worker": worker}, value] for key, labels, value in each["samples"]]}
        for name, each in families.items()
    }


def _merged(processes: Iterable[_Families]) -> _Families:
    """Add the samples that have the same name and labels."""
    merged: _Families = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for families in processes:
        for name, each in families.items():
            merged.setdefault(name, {"text": each["text"], "type": each["type"]})
            sums_of = sums.setdefault(name, {})
            for key, labels, value in each["samples"]:
                place = key, tuple(labels.items())
                sums_of[place] = sums_of.get(place, 0) + value
    for name, sums_of in sums.items():
        merged[name]["samples"] = [[key, dict(labels), value] for (key, labels), value in sums_of.items()]
    return merged


def _family(name: str, each: dict[str, Any]) -> Metric:
    family = Metric(name, each["text"], each["type"])
    for key, labels, value in each["samples"]:
        family.add_sample(key, labels, value)
    return family
