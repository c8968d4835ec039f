"""The demo as a stranger runs it: the whole of it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamcodec.http.scratch import SCRATCH_BYTES

pytestmark = pytest.mark.slow

MEMORY_SLACK = 2.0
"""MiB; what the server may hold beyond the tensor at its peak."""


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """The cells of the table's two rows."""
    command = [sys.executable, "-m", "streamcodec", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    heading, rule, *rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert heading.count("|") == rule.count("|")
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_a_batch_of_images_and_256_mib_make_the_round_trip(rows: list[list[str]]) -> None:
    assert [row[:2] for row in rows] == [
        ["FP32 [8, 224, 224, 3]", f"{8 * 224 * 224 * 3 * 4:,}"],
        ["FP32 [64, 1024, 1024]", f"{256 << 20:,}"],
    ]


def test_only_what_came_with_the_head_is_copied(rows: list[list[str]]) -> None:
    for _, nbytes, _, _, copies, *_ in rows:
        assert 0 <= float(copies) * int(nbytes.replace(",", "")) <= SCRATCH_BYTES * 1.5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory of another process is read from /proc")
def test_the_server_needs_little_more_memory_than_the_tensor(rows: list[list[str]]) -> None:
    for row in rows:
        assert float(row[5].removesuffix(" MiB")) <= MEMORY_SLACK
