"""Thousands of requests that break off leave nothing behind, and no memory waits for the garbage collector."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kserve.conftest import INTERPRETER

_ROOT = Path(__file__).parents[2]
_COUNT = 4000
_TENSOR_BYTES = 4 << 20


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    done = subprocess.run(
        [os.environ[INTERPRETER], "-m", "tests.kserve.faults_script", str(_COUNT)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_nothing_is_left_of_requests_that_break_off(result: dict[str, Any]) -> None:
    """A thread for batched models waits for the next call."""
    assert result["left"] == {"tasks": 1, "threads": 2, "sockets": 0, "reserved": 0, "reused_bytes": 0}


@pytest.mark.parametrize("kind", ["identity", "arrays", "failing", "batched", "batched, failing"])
def test_memory_is_flat_without_the_collector(result: dict[str, Any], kind: str) -> None:
    """Of a hundred requests not one tensor is kept, or a few: a thread may be about to give back what a batch had."""
    assert result[kind]["status"] == (400 if "failing" in kind else 200)
    assert result[kind]["bytes"] < (8 if "batched" in kind else 1) * _TENSOR_BYTES
