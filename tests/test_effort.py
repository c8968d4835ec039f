"""What a round leaves out: parameter sets of a test that has many, and never a test."""

from __future__ import annotations

import pytest

from tests import effort


def test_a_test_with_few_parameter_sets_keeps_them() -> None:
    tests = [("one", f"one[{index}]") for index in range(3)] + [("other", "other")]
    kept, left_out = effort.thinned(tests)
    assert kept == [name for _, name in tests]
    assert left_out == []


def test_of_many_parameter_sets_some_are_kept_among_them_the_first_and_the_last() -> None:
    tests = [("one", index) for index in range(1000)] + [("other", 1000)]
    kept, left_out = effort.thinned(tests)
    assert len(kept) == 3 + 1
    assert {0, 999, 1000} <= set(kept)
    assert sorted([*kept, *left_out]) == list(range(1001))


def test_all_cuts_are_made_where_all_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "IS_EXHAUSTIVE", True)
    assert effort.places(range(100)) == range(100)
    assert effort.examples(1000) == 1000
    monkeypatch.setattr(effort, "IS_EXHAUSTIVE", False)
    assert len(effort.places(range(100))) == 12
    assert effort.examples(1000) == 25


def test_of_a_test_that_takes_minutes_an_ordinary_round_has_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "IS_EXHAUSTIVE", False)
    assert effort.parts(10) == [0]
    monkeypatch.setattr(effort, "IS_EXHAUSTIVE", True)
    marks = [part.marks for part in effort.parts(10)]  # type: ignore[attr-defined] # of `pytest.param`
    assert [bool(of_part) for of_part in marks] == [False] * 2 + [True] * 8
