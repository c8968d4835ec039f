"""Board: the metrics of several processes on one page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from streamcodec.metrics.board import Board

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no workers without processes")


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Board()
    yield made
    made.close()
    assert not made.folder.exists()


def _families(count: float, *others: str) -> list[Metric]:
    counter = CounterMetricFamily("requests", "Requests", labels=["model"])
    for model in ("m", *others):
        counter.add_metric([model], count)
    gauge = GaugeMetricFamily("memory", "Memory", labels=["model"])
    gauge.add_metric(["m"], count)
    histogram = HistogramMetricFamily("seconds", "Seconds")
    histogram.add_metric([], [("1", count), ("+Inf", 2 * count)], 3 * count)
    return [counter, gauge, histogram]


def _published(board: Board, pid: int, families: list[Metric], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid)
        board.publish(families)


def _shown(board: Board) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in board.collect()
        for sample in family.samples
    }


def test_counters_are_added_and_gauges_are_shown_for_each(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    _published(board, 1, _families(1), monkeypatch)
    _published(board, 2, _families(10, "other"), monkeypatch)
    assert _shown(board) == {
        ("requests_total", "m"): 11,
        ("requests_total", "other"): 10,
        ("memory", "m", "1"): 1,
        ("memory", "m", "2"): 10,
        ("seconds_bucket", "1"): 11,
        ("seconds_bucket", "+Inf"): 22,
        ("seconds_count",): 22,
        ("seconds_sum",): 33,
        ("streamcodec_worker_deaths_total",): 0,
        ("streamcodec_worker_restarts_total",): 0,
    }
    assert {family.type for family in board.collect()} == {"counter", "gauge", "histogram"}


def test_threads_of_one_process_publish_at_the_same_time(board: Board) -> None:
    """That of the clock, and that of the page; each writes a file of its own, and the last one is the result."""

    def publish(count: int) -> None:
        for _ in range(100):
            board.publish(_families(1, *map(str, range(count))))
            board.collect()

    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(publish, count) for count in (1, 100, 400)]:
            each.result()
    assert [path.name for path in board.folder.iterdir() if path.suffix == ".new"] == []


def test_what_the_ended_have_counted_is_kept_and_their_files_are_not(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in range(1, 50):
        _published(board, pid, _families(1), monkeypatch)
        shown = _shown(board)
        assert shown["requests_total", "m"] == pid
        assert [key for key in shown if key[0] == "memory"] == [("memory", "m", str(pid))]
        board.ended(pid, has_died=pid % 2 == 1)
        assert _shown(board)["requests_total", "m"] == pid
    shown = _shown(board)
    assert (shown["streamcodec_worker_deaths_total",], shown["streamcodec_worker_restarts_total",]) == (25, 49)
    assert [path.name for path in board.folder.iterdir()] == ["ended"]
    board.ended(99, has_died=True)  # it has written nothing
    assert _shown(board)["requests_total", "m"] == 49


def test_a_file_that_is_folded_meanwhile_counts_once(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reader has read before the first process folds it, and removes it."""
    _published(board, 1, _families(7), monkeypatch)
    usual = Board._read  # noqa: SLF001 - between two of its reads

    def read(self: Board, name: str) -> object:
        found = usual(self, name)
        if name == "1" and not self._folded:
            self._folded = ["?"]
            monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
            self.ended(1, has_died=True)
        return found

    monkeypatch.setattr(Board, "_read", read)
    assert _shown(board)["requests_total", "m"] == 7
    assert _shown(board)["requests_total", "m"] == 7, "though its file is still there"


def test_a_disk_without_room_loses_nothing_that_was_written(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    _published(board, 1, _families(7), monkeypatch)

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", fail)
        _published(board, 1, _families(8), monkeypatch)
        board.ended(1, has_died=True)
        assert _shown(board)["requests_total", "m"] == 7
    board.ended(2, has_died=True)
    assert _shown(board)["requests_total", "m"] == 7


def test_only_folders_of_the_dead_are_removed(board: Board) -> None:
    place = board.folder.parent
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    (place / f"streamcodec-metrics-{process.pid}-x").mkdir()
    (place / f"streamcodec-metrics-{os.getppid()}-x").mkdir()
    (place / "streamcodec-metrics-1-x").mkdir()
    (place / "streamcodec-metrics-x").mkdir()
    (place / f"streamcodec-metrics-{process.pid}-y").symlink_to(place / "streamcodec-metrics-x")
    other = Board()
    try:
        left = {path.name for path in place.iterdir()} - {other.folder.name, board.folder.name}
        assert left == {
            f"streamcodec-metrics-{os.getppid()}-x",
            "streamcodec-metrics-1-x",
            "streamcodec-metrics-x",
            f"streamcodec-metrics-{process.pid}-y",
        }
        assert other.folder.stat().st_mode & 0o77 == 0
    finally:
        other.close()
