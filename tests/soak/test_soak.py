"""The soak: a few seconds of it with every run of the tests, more when `STREAMCODEC_SOAK_SECONDS` says so."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.soak.soaking import Plan, soak

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("STREAMCODEC_SOAK_SECONDS", "0"))
_NOT_JUDGED: dict[str, Any] = {"max_health_ms": None, "max_growth": None, "max_stall_ms": None}
LOOP = "asyncio" if find_spec("uvloop") is None else "uvloop"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux what a process has")
def test_a_server_under_everything_at_once_keeps_its_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = (
        Plan(seconds=SECONDS, warm_up=SECONDS / 2, loop=LOOP, max_health_ms=None, max_stall_ms=None)
        if SECONDS
        else Plan(seconds=2, warm_up=1, connections=24, largest_mib=4, pause=0.02, loop=LOOP, **_NOT_JUDGED)
    )
    report = soak(plan, tmp_path)
    with capsys.disabled():
        print(f"\n{report.table()}" if SECONDS else "")
    assert report.is_kept, report.table()
