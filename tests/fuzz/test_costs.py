"""The judge of costs: committed inputs are within their bounds, what is slow or large is not, and a hunt finds it."""

from __future__ import annotations

import time

import hunt
import pytest
from targets import costs
from targets import header as header_target
from targets.costs import RATES, cost_of, judged

from tests.fuzz.inputs import CORPORA

_SLOW_SECONDS = 1.2e-6
"""A byte, as it once took to find the value that was wrong."""
_TEXT = header_target.Case(text=b'{"inputs":[],"parameters":{"a":[' + b"1," * 10_000 + b"1]}}").write()


@pytest.mark.slow
@pytest.mark.parametrize("target", RATES)
def test_committed_inputs_are_within_their_bounds(target: str) -> None:
    dear = {name: str(cost) for name, data in CORPORA[target].items() if (cost := cost_of(target, data)).share > 1}
    assert not dear


def _make_slow(patch: pytest.MonkeyPatch) -> None:
    parsed = header_target.parsed

    def slow(case: header_target.Case) -> object:
        end = time.thread_time() + _SLOW_SECONDS * len(case.text) * costs._slowness()  # noqa: SLF001 - of this machine
        while time.thread_time() < end:
            pass
        return parsed(case)

    patch.setattr(header_target, "parsed", slow)


def test_what_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _make_slow(monkeypatch)
    assert cost_of("header", _TEXT).share > 1
    monkeypatch.setattr(costs, "_INSTRUMENTED", 1)
    with pytest.raises(AssertionError, match="too much time for its bytes"):
        judged("header", lambda _: None)(_TEXT)


def test_what_keeps_too_much_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = header_target.parsed

    def greedy(case: header_target.Case) -> object:
        kept = [bytes(100) for _ in case.text]
        return kept and parsed(case)

    monkeypatch.setattr(header_target, "parsed", greedy)
    assert cost_of("header", _TEXT).share > 1


@pytest.mark.slow
def test_a_hunt_finds_what_costs_most(monkeypatch: pytest.MonkeyPatch) -> None:
    _make_slow(monkeypatch)
    search = hunt.Hunt("header", [_TEXT], seed=1)
    search.run(0)
    assert [found.data for found in search.worst] == [_TEXT]
    search.run(0.5)
    assert search.worst[0].cost.share > 1


@pytest.mark.slow
@pytest.mark.parametrize("target", RATES)
def test_a_hunt_makes_inputs_of_every_target(target: str) -> None:
    search = hunt.Hunt(target, list(CORPORA[target].values())[:3], seed=1)
    search.run(0.5)
    assert search.tried > 3
