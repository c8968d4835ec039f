"""The matrix has no empty cell, and its page shows the record."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.interop.matrix import ABSENT, PAGE, main, render
from tests.interop.record import FEATURES, RECORD, SYSTEMS, Cell, Outcome, SystemRecord, read_record

PLACES = list(product(SYSTEMS, FEATURES))


def recorded() -> dict[tuple[str, str], Cell]:
    record = read_record(RECORD)
    return {(system, feature): cell for system in record for feature, cell in record[system].cells.items()}


@pytest.mark.parametrize(("system", "feature"), PLACES, ids=[f"{s}, {f}" for s, f in PLACES])
def test_each_cell_is_recorded_or_declared_absent_and_not_both(system: str, feature: str) -> None:
    assert ((system, feature) in recorded()) is not ((system, feature) in ABSENT)


def test_nothing_is_recorded_or_declared_that_is_no_cell() -> None:
    assert recorded().keys() | ABSENT.keys() <= set(PLACES)


def test_no_recorded_cell_has_failed_or_was_left_out() -> None:
    assert {place: cell.outcome for place, cell in recorded().items() if cell.outcome is not Outcome.YES} == {}


def test_each_system_tells_its_versions() -> None:
    record = read_record(RECORD)
    assert [system for system in record if not (record[system].versions and record[system].ours)] == []


def test_the_page_is_what_the_record_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not, run `python -m tests.interop.matrix`."""
    monkeypatch.setattr("sys.argv", ["matrix", "--page", str(tmp_path / "interop.md")])
    main()
    assert (tmp_path / "interop.md").read_text() == PAGE.read_text()


def test_the_page_tells_what_failed_deviates_and_has_not_run() -> None:
    cells = {
        "BOOL": Cell(outcome=Outcome.FAILED, tests=2, deviations=["lies; we do not"]),
        "BYTES": Cell(tests=1, deviations=["shouts | sings; we listen; and more"]),
        "FP16": Cell(tests=1, deviations=["shouts | sings; we listen; and more", "hums; we too"]),
        "BF16": Cell(tests=1),
    }
    page = render({"Triton server": SystemRecord(date="2000-01-01", versions={"triton": "9"}, ours={}, cells=cells)})
    servers = page.partition("## Servers for our clients")[2].splitlines()
    row = {line.split(" | ")[0]: line.split(" | ")[-1] for line in servers}
    link = "(#interop-triton-server)"
    assert row["| BOOL"] == "**failed** |"
    assert row["| scalars"] == "**not run** |"
    assert row["| BF16"] == "yes |"
    assert row["| BYTES"] == f"deviates [1]{link} |"
    assert row["| FP16"] == f"deviates [1]{link} [2]{link} |"
    assert "| 1 | FP16, BYTES | shouts \\| sings | we listen; and more |" in servers
    assert "lies" not in page
