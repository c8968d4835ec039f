"""The tests that programs of tritonclient pass with our server: they pass with ours in its place, unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.http", reason="the tests ask for tritonclient's version")

_ROOT = Path(__file__).parents[2]
_DIFFERENT = "test_requests.py::test_response_that_nobody_asked_to_be_compressed[aio]"
"""aiohttp asks for compressed answers unless told otherwise, and our client does not."""


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["triton_clients", "round_trip"])
def test_under_its_name(folder: str) -> None:
    path = f"tests/interop/{folder}"
    options = ["-q", "-m", "not quiet", "-p", "tests.tritonclient.under_its_name", "-p", "no:cacheprovider"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *options,
        path,
        "--deselect",
        f"tests/interop/triton_clients/{_DIFFERENT}",
    ]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout
