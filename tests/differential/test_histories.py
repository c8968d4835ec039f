"""Histories: whatever has come before, each request is answered as by a fresh server."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.differential.fronts import FRONTS, IN_PROCESSES, front_of
from tests.differential.machine import Machine, Script, scripts
from tests.effort import IS_EXHAUSTIVE
from tests.kserve.conftest import HOW

COUNT = 100 if IS_EXHAUSTIVE else 4
"""Histories for each way in; `python -m tests.differential` plays more."""


@pytest.fixture(autouse=True)
def _is_quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL)  # some models fail on purpose
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def check(name: str) -> None:
    with front_of(name) as front:
        machine = Machine(front)

        @settings(max_examples=COUNT, deadline=None, suppress_health_check=list(HealthCheck))
        @given(scripts(front))
        def play(script: Script) -> None:
            machine.play(script)

        play()


@pytest.mark.parametrize("name", ["asyncio", "uvloop", "guard", "guard scripted", "trio"])
def test_our_servers(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "uvicorn httptools",
        "uvicorn h11",
        "hypercorn",
        "hypercorn trio",
        "aiohttp plain",
        "aiohttp",
        "werkzeug",
        "waitress",
    ],
)
def test_servers_of_others(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PROCESSES)
def test_servers_in_processes(name: str) -> None:
    if name not in FRONTS:
        pytest.skip(HOW)
    check(name)
