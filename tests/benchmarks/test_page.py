"""The machinery of the benchmarks: what is measured gets onto the page, and nothing else does."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as program
from tests.benchmarks import alone, capacity, report, results
from tests.benchmarks.comparing import OVERVIEW, compared, summary_table, table_by_case
from tests.benchmarks.figures import Chart, Figures, Options, Scenario, at_least, at_most
from tests.benchmarks.scenarios import SCENARIOS
from tests.benchmarks.units import with_unit

_DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"


_RUN = results.Run(command="", date="", seconds=0, is_quick=False, machine="", versions={})


def _run(options: Options) -> Figures:
    assert options.choose(9, 3) == 3
    found = Figures(missing=["somebody: not here"], versions={"Triton": "9"})
    found.add("64 MiB", "time", "Triton", "s", [0.2])
    found.add("64 MiB", "time", "streamcodec", "s", [0.001, 0.004, 0.002], bound=at_most(0.005))
    found.add("64 MiB", "rate", "streamcodec", "ratio", [0.5], bound=at_least(0.95))
    return found


def _fail(options: Options) -> Figures:
    raise RuntimeError(options)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the page of a run with two scenarios, after each has been run alone."""
    scenarios = {
        "first": Scenario(title="First", about="Of a thing.", run=_run),
        "second": Scenario(title="Second", about="Of another.", run=_run),
        "broken": Scenario(title="Broken", about="Of none.", run=_fail),
    }
    monkeypatch.setattr(program, "SCENARIOS", scenarios)
    for name in ("second", "first"):
        program.main(["--quick", "--only", name, "--output", str(tmp_path)])
    return tmp_path / "index.md"


def test_each_figure_has_its_spread_its_bound_and_a_verdict(page: Path) -> None:
    text = page.read_text()
    assert "|  | time | streamcodec | 2 ms | 1.50 - 3 | 3 | <= 5 ms | yes |" in text
    assert "|  | rate | streamcodec | 0.50 |  | 1 | >= 0.95 | **no** |" in text
    assert "| 64 MiB | time | Triton | 200 ms |  | 1 |  |  |" in text


def test_the_summary_counts_what_is_asked_for_and_names_what_is_not_reached(page: Path) -> None:
    text = page.read_text()
    assert "Of 4 values that were asked for, 2 are reached." in text
    assert "- First, 64 MiB: rate of streamcodec is 0.50, asked for >= 0.95" in text


def test_others_are_compared_with_ours_in_each_case_that_both_have() -> None:
    found = Figures(charts=[Chart(quantity="time", title="Times")])
    for case, ours, other in (("small", 2.0, 3.0), ("large", 4.0, 40.0)):
        found.add(case, "time", "streamcodec", "s", [ours])
        found.add(case, "time", "Triton", "s", [other])
    found.add("huge", "time", "Triton", "s", [99.0])
    assert compared(found.figures) == "Time, in units of ours: Triton 1.50 to 10."
    part = results.Part(run=_RUN, figures=found)
    assert list(summary_table({"Part": part}))[2:] == [
        "| Part, small: time | 2 s | Triton 3 s (1.50x) |",
        "| Part, large: time | 4 s | Triton 40 s (10x) |",
    ]


def test_a_wide_table_has_a_line_for_each_case_and_says_what_is_missed() -> None:
    found = Figures()
    for case, ours, bound in (("chunked", 20.0, at_least(1)), ("health", 5.0, at_least(1)), ("metadata", 5.0, None)):
        found.add(case, "requests", "streamcodec", "1/s", [ours])
        found.add(case, "requests", "Triton", "1/s", [10.0])
        found.add(case, "requests", "streamcodec / Triton", "ratio", [ours / 10], bound=bound)
    assert list(table_by_case(found.figures)) == [
        "| case | measured | streamcodec | Triton | streamcodec / Triton | asked for | reached |",
        "| --- | --- | --: | --: | --: | --: | --- |",
        "| chunked | requests | 20 /s | 10 /s | 2 | >= 1 | yes |",
        "| health | requests | 5 /s | 10 /s | 0.50 | >= 1 | **no** |",
        "| metadata | requests | 5 /s | 10 /s | 0.50 |  |  |",
    ]


@pytest.mark.parametrize(("value", "says"), [(1.0, None), (0.5, "missed 1:\ncase: >= 0.80")])
def test_a_scenario_by_itself_ends_with_an_error_if_a_bound_is_missed(
    value: float, says: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(options: Options) -> Figures:
        assert options.is_quick
        found = Figures(missing=["wrk is not here"])
        found.add("case", "requests", "streamcodec / Triton", "ratio", [value], bound=at_least(0.8))
        return found

    monkeypatch.setattr("sys.argv", ["program", "--quick"])
    scenario = Scenario(title="Title", about="Of a thing.", run=measure, served="inline", is_wide=True)
    with nullcontext() if says is None else pytest.raises(SystemExit, match=says):
        alone.main(scenario)
    assert "Models: inline.\nNot measured: wrk is not here\n" in capsys.readouterr().out


def test_a_part_says_how_it_was_made_and_what_was_missing(page: Path) -> None:
    text = page.read_text()
    assert "by `python -m tests.benchmarks --only first --quick`" in text
    assert "- **Not measured.** somebody: not here" in text
    assert ", Triton 9." in text


def test_parts_are_kept_and_stand_in_order_however_they_were_run(page: Path) -> None:
    text = page.read_text()
    assert re.findall("^## (.*)$", text, re.MULTILINE)[-3:] == ["First", "Second", "Broken"]
    assert "Not run yet: `python -m tests.benchmarks --only broken`" in text


def test_a_failure_ends_the_program_with_an_error_and_loses_nothing(page: Path) -> None:
    before = page.read_text()
    with pytest.raises(SystemExit, match="broken"):
        program.main(["--only", "broken", "--output", str(page.parent)])
    assert page.read_text() == before


def test_results_come_back_as_they_were_written(tmp_path: Path, page: Path) -> None:
    parts = results.read(page.parent / "results.json")
    parts["first"].figures.charts.append(Chart(quantity="time", title="A title"))
    results.write(tmp_path / "again.json", parts)
    assert results.read(tmp_path / "again.json") == parts


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("s", 1.5, "1.50 s"),
        ("s", 4.56e-5, "45.6 µs"),
        ("B", 257 << 20, "257 MiB"),
        ("B", 1023, "1,023 B"),
        ("1/s", 12345.6, "12,346 /s"),
        ("s/B", 2.1e-10, "0.21 ns per byte"),
        ("B/s", 9e7, "90 MB/s"),
        ("ratio", 0.948, "0.95"),
    ],
)
def test_values_are_written_for_readers(unit: str, value: float, text: str) -> None:
    assert with_unit(unit, value) == text


def test_the_page_in_the_documentation_is_made_from_the_results_beside_it() -> None:
    parts = results.read(_DOCS / "results.json")
    text = (_DOCS / "index.md").read_text()
    assert text == report.render(SCENARIOS, parts), "python -m tests.benchmarks --render makes it anew"
    pictures = {file for name, part in parts.items() for file, *_ in report.pictures(name, part)} | {OVERVIEW}
    assert pictures == {path.name for path in _DOCS.glob("*.png")}
    assert pictures == set(re.findall(r"\]\((.*\.png)\)", text))


def test_the_tables_of_the_arithmetic_are_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    capacity.main([])
    pages = [(_DOCS.parent / name).read_text() for name in ("scaling.md", "scaling.md", "howto/operate.md")]
    for table, page in zip(capsys.readouterr().out.split("\n\n"), pages, strict=True):
        assert table.strip() in page, "python -m tests.benchmarks.capacity"
