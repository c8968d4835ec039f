"""Judging: what a finding complains of, on a quiet machine and on one that has other work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.under_attack.probing import Probes
from tests.under_attack.trial import BUDGET_MIB, MAX_CROWDING, MAX_EXTRA_MIB, MAX_MS, MAX_P99_MS, Finding

_FINE = Finding(
    name="an attack",
    p50=1,
    p99=2,
    max=3,
    calm_p99=1,
    calm_max=2,
    failures=[],
    probes=75,
    extra_mib=1,
    cpu_share=0.5,
    stall_ms=1,
    stall="nothing",
    log="",
)
_WAITS = [replace(_FINE, p99=MAX_P99_MS * 4), replace(_FINE, max=MAX_MS * 4)]
_OTHERS = [
    replace(_FINE, failures=["503"]),
    replace(_FINE, extra_mib=MAX_EXTRA_MIB + BUDGET_MIB + 1),
    replace(_FINE, stall_ms=11),
    replace(_FINE, log="Traceback"),
]


def test_a_quiet_machine_complains_of_everything() -> None:
    assert _FINE.complaints() == []
    assert [len(finding.complaints()) for finding in _WAITS + _OTHERS] == [1] * 6


@pytest.mark.parametrize("crowding", [MAX_CROWDING + 0.1, 10])
def test_a_crowded_machine_does_not_judge_waits(crowding: float) -> None:
    crowded = [replace(finding, crowding=crowding, max=10_000, p99=10_000) for finding in _WAITS + _OTHERS]
    assert [len(finding.complaints()) for finding in crowded] == [0] * 2 + [1] * 4


def test_the_slowest_of_few_is_not_their_99th_percentile() -> None:
    probes = Probes(seconds=[0.001] * 74 + [1.0])
    assert (probes.ms(0.5), probes.ms(0.99), probes.ms(1)) == (1.0, 1.0, 1000.0)
