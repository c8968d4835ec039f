"""What all tests share: how much is tried, what a round says at its end, and the two JSON parsers."""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from streamcodec.engine.json import text as jsontext
from streamcodec.transports import turns
from tests.effort import IS_BUSY, IS_EXHAUSTIVE, IS_THINNED, examples, thinned

settings.register_profile("round", max_examples=examples(100), deadline=None)  # a busy machine is no failure
settings.load_profile("round")

if IS_BUSY:
    for _seconds in ("_TURN_SECONDS", "_TRIO_TURN_SECONDS", "_BEHIND_SECONDS"):
        setattr(turns, _seconds, getattr(turns, _seconds) / 20)

_LESS = "cuts and examples: STREAMCODEC_EXHAUSTIVE=1 tries all of them"
_FEWER = "parameter sets of tests with many: so does a round of one folder or file, as in `pytest tests/http`"
_ORDINARY = "not slow and not quiet"
_SLOW_TESTS = "tests that take long: -m 'not quiet' runs them, too; those that want a quiet machine: -m quiet"


def pytest_runtest_teardown() -> None:
    """Forget the level of the log that a command has set in this process: other tests choose theirs for all loggers."""
    logging.getLogger("streamcodec").setLevel(logging.NOTSET)


@pytest.fixture
def ml_dtypes() -> Any:  # noqa: ANN401 - a module
    """The package, which not every processor has."""
    return pytest.importorskip("ml_dtypes")


@pytest.fixture(params=["standard", "msgspec"], scope="module")
def json_parser(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have every text, whatever its size, parsed by the standard library alone, or by the quick parser first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "LEAST_BYTES", 0 if request.param == "msgspec" else 1 << 62)
        yield request.param


@pytest.hookimpl(optionalhook=True)  # of `pytest -n auto`
def pytest_xdist_auto_num_workers() -> int:
    """Have one more process than processors: a third of the time, a test waits for a server or for a client."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # others look at each test that is left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have a round of everything try some parameter sets of each test."""
    if IS_EXHAUSTIVE or not (IS_THINNED or _is_of_everything(config)):
        return
    items[:], left_out = thinned((item.nodeid.partition("[")[0], item) for item in items)
    config.hook.pytest_deselected(items=left_out)


def _is_of_everything(config: pytest.Config) -> bool:
    """Whether no folder, file or test was asked for by name."""
    everything = {config.rootpath, *(config.rootpath / path for path in config.getini("testpaths"))}
    return everything.issuperset(Path(config.invocation_params.dir, argument).resolve() for argument in config.args)


def pytest_collection_finish() -> None:
    """Spare modules and tests, which stay, from garbage collections: with them, each takes up to half a second."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what this round has left out, one line for each reason, and how to run it."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    lines = [f"{count} tests: {reason}" for reason, count in reasons.most_common()]
    if config.getoption("markexpr") == _ORDINARY:
        lines.append(_SLOW_TESTS)
    if not IS_EXHAUSTIVE:
        lines.append(_LESS)
        if _is_of_everything(config):
            lines.append(_FEWER)
    if lines:
        terminalreporter.section("left out")
        for line in lines:
            terminalreporter.line(line)


def _reason(report: pytest.TestReport) -> str:
    """Return the words of a skip, without pytest's own."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
