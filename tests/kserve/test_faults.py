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
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
"""The C library gives back what is larger at once. Otherwise it keeps a tensor or two of each thread, or does not."""


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    done = subprocess.run(
        [os.environ[INTERPRETER], "-m", "tests.kserve.faults_script", str(_COUNT)],
        cwd=_ROOT,
        env=os.environ | _ALLOCATOR,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_nothing_is_left_of_requests_that_break_off(result: dict[str, Any]) -> None:
    assert result["left"] == {"tasks": 1, "threads": 1, "sockets": 0, "reserved": 0, "reused_bytes": 0}


@pytest.mark.parametrize("kind", ["identity", "arrays", "failing", "batched", "batched, failing"])
def test_memory_is_flat_without_the_collector(result: dict[str, Any], kind: str) -> None:
    """Of a hundred requests not one tensor is kept."""
    assert result[kind]["status"] == (400 if "failing" in kind else 200)
    assert result[kind]["bytes"] < _TENSOR_BYTES
