"""Figures: what was measured is in the pages by its name in `results.json`, and nowhere typed.

A number with a unit of time, a rate or a ratio is taken for a measurement, and so is a size next to a word that speaks
of memory. Code and tables are not prose: they are what the named program printed. But the first pages' tables are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.benchmarks import prose, results
from tests.benchmarks.figures import Figures
from tests.benchmarks.results import Part, Run

_HOW: Final = (
    "bind it to its name, see tests/benchmarks/prose.py; or take it out; or, if nobody has measured it (a limit, a "
    "default, the size of a tensor, what a test holds), add its line, as printed here, to tests/docs/not_measured.txt"
)
_NOT_MEASURED: Final = Path(__file__).with_name("not_measured.txt")
_FIRST_PAGES: Final = {"README.md", "docs/index.md", "docs/why-not.md"}
_FENCE: Final = re.compile(r"^(?P<mark>```+|~~~+).*?^(?P=mark)\s*$", re.DOTALL | re.MULTILINE)
_TABLE: Final = re.compile(r"^\|.*$", re.MULTILINE)
_NUMBER: Final = r"(?<![\w.,/#-])\d[\d,.]*"
_TIME_OR_RATIO: Final = re.compile(
    rf"{_NUMBER}[\s-](?:[nuµm]?s|milliseconds?|microseconds?|seconds?|minutes?|times|per\scent"
    r"|requests?/s|req/s|[KMGkT]i?B/[sh]|[MG]bit/s|cores?)\b"
    rf"|{_NUMBER}\s?%(?!\w)"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|hundred|thousand)\stimes\s(?:as|the|more|less)\b"
)
_SIZE: Final = re.compile(rf"{_NUMBER}\s[KMG]i?B\b(?!/)")
_OF_MEMORY: Final = re.compile(r"\b(?:memory|peak|grew|grow|resident|takes?|took|needs?|needed|costs?|saves?)\b")
_BEFORE: Final = re.compile(r"(?:\S+\s+){0,3}\S*\Z")
_BEHIND: Final = re.compile(r"\S*(?:\s+\S+){0,3}")
_SENTENCE: Final = re.compile(r"(?<=[.:;?!])\s+|\n\s*\n|\n(?=\s*[-*|#] )")

_RUN: Final = Run(command="", date="", seconds=1, is_quick=False, machine="", versions={})


def typed(text: str, *, has_tables: bool) -> Iterator[str]:
    """Yield each figure that is not bound to a name, with the words before and behind it."""
    text = prose.BOUND.sub("it", _FENCE.sub("\n", text))
    for sentence in _SENTENCE.split(text if has_tables else _TABLE.sub("", text)):
        found = list(_TIME_OR_RATIO.finditer(sentence))
        found += _SIZE.finditer(sentence) if _OF_MEMORY.search(sentence) else ()
        for match in sorted(found, key=re.Match.start):
            before, behind = _BEFORE.search(sentence[: match.start()]), _BEHIND.match(sentence[match.end() :])
            assert before is not None
            assert behind is not None
            yield " ".join(f"{before[0]}{match[0]}{behind[0]}".split())


def _all() -> list[str]:
    return sorted(
        {
            f"{name}: {figure}"
            for path in prose.pages()
            for name in [path.relative_to(prose.ROOT).as_posix()]
            for figure in typed(path.read_text(), has_tables=name in _FIRST_PAGES)
        }
    )


def test_figures_in_the_pages_are_those_of_the_results() -> None:
    stale = [path.relative_to(prose.ROOT).as_posix() for path, _ in prose.changed()]
    assert not stale, "python -m tests.benchmarks.prose writes them anew"


def test_no_measured_figure_is_typed() -> None:
    allowed = _NOT_MEASURED.read_text().splitlines()
    found = _all()
    assert not (new := set(found) - set(allowed)), f"{_HOW}:\n" + "\n".join(sorted(new))
    assert not (gone := set(allowed) - set(found)), "no page has these any more:\n" + "\n".join(sorted(gone))
    assert allowed == found, "the lines are in order"


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("It took 353 ms here.", ["It took 353 ms here."]),
        ("It took 353\nms, or 12 s.", ["It took 353 ms, or 12 s.", "353 ms, or 12 s."]),
        ("a ratio of 2.1 times", ["a ratio of 2.1 times"]),
        ("Three times the work; four times as fast", ["four times as fast"]),
        ("10,000 requests/s and 5 GB/s", ["10,000 requests/s and 5 GB/s", "10,000 requests/s and 5 GB/s"]),
        ("A tensor of 64 MiB goes out.", []),
        ("A tensor of 64 MiB takes 65 MiB.", ["A tensor of 64 MiB takes 65 MiB.", "64 MiB takes 65 MiB."]),
        ("It took 353 ms<!-- a :: b :: c :: d --> here.", []),
        ("```text\nIt took 353 ms here.\n```", []),
        ("| It took 353 ms here. |", []),
        ("It took +12 % more.", ["It took +12 % more."]),
        ("issue-12 s, v1.5 s", []),
    ],
)
def test_what_is_taken_for_a_measured_figure(text: str, figures: list[str]) -> None:
    assert list(typed(text, has_tables=False)) == figures


@pytest.fixture
def parts() -> dict[str, Part]:
    found = Figures()
    found.add("64 MiB", "time", "ours", "s", [0.168])
    found.add("64 MiB", "time", "theirs", "s", [0.353])
    found.add("64 MiB", "time", "a / b", "ratio", [7.0])
    return {"client": Part(run=_RUN, figures=found)}


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("1 s<!-- client :: 64 MiB :: time :: theirs -->.", "353 ms<!-- client :: 64 MiB :: time :: theirs -->."),
        ("1\ns<!-- client :: 64 MiB ::\ntime :: ours -->", "168\nms<!-- client :: 64 MiB ::\ntime :: ours -->"),
        (
            "in 1<!-- client :: 64 MiB :: time :: theirs / ours -->",
            "in 2.10<!-- client :: 64 MiB :: time :: theirs / ours -->",
        ),
        (
            "in 1<!-- client :: 64 MiB :: time :: a / b --> times",
            "in 7<!-- client :: 64 MiB :: time :: a / b --> times",
        ),
        ("5 s <!-- a comment -->", "5 s <!-- a comment -->"),
    ],
)
def test_figures_are_written_by_their_names(text: str, new: str, parts: dict[str, Part]) -> None:
    assert prose.rewritten(text, parts) == new
    assert prose.rewritten(new, parts) == new


@pytest.mark.parametrize("name", ["client :: 64 MiB :: time :: nobody", "client :: 64 MiB :: time :: ours / nobody"])
def test_a_name_without_a_figure_is_an_error_that_says_which_there_are(name: str, parts: dict[str, Part]) -> None:
    with pytest.raises(LookupError, match="client :: 64 MiB :: time :: theirs"):
        prose.rewritten(f"1 s<!-- {name} -->", parts)
    with pytest.raises(LookupError, match="there are:\nclient"):
        prose.rewritten("1 s<!-- no :: 64 MiB :: time :: ours -->", parts)


def test_the_command_writes_pages_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Part]) -> None:
    page = tmp_path / "README.md"
    page.write_text("1 s<!-- client :: 64 MiB :: time :: ours -->")
    results.write(tmp_path / "results.json", parts)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "RESULTS", tmp_path / "results.json")
    prose.main()
    assert page.read_text() == "168 ms<!-- client :: 64 MiB :: time :: ours -->"
    assert not list(prose.changed())
