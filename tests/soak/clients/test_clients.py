"""Two seconds of the soak of each kind of client; `python -m tests.soak.clients` has two minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.clients.calling import KINDS
from tests.soak.clients.soaking import soaked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux what a process has"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_doubled_or_left(kind: str) -> None:
    report = soaked(kind, seconds=2, seed=0)
    assert report.is_kept, report.table()
