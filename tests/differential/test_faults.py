"""Each fault that short cuts once had is found by histories when it is put back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.faults import FAULTS
from tests.differential.fronts import front_of
from tests.differential.machine import Finding, Machine, Script, scripts

pytestmark = pytest.mark.slow

_MOST_HISTORIES = 1000
"""At most 200 were needed."""


@pytest.fixture(autouse=True)
def _is_quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # some models fail on purpose
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_is_put_back_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    fault.put_back(monkeypatch)
    with front_of(fault.front) as front:
        machine = Machine(front)

        @seed(0)
        @settings(
            max_examples=_MOST_HISTORIES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(scripts(front))
        def play(script: Script) -> None:
            machine.play(script)

        with pytest.raises(Finding) as caught:
            play()
    print(f"{name}: {machine.count['histories']} histories, {caught.value.args[0].splitlines()[0]}")
