"""Bombs: no compressed body takes more memory than its piece, however much it would become."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamcodec import ErrorCode
from tests.http.bodies.bombs import LIMITS, MIB, NAMES, bomb
from tests.http.driver import refuses, server
from tests.http.messages import length, post

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_bomb_takes_no_more_memory_than_the_limits_allow(name: str) -> None:
    command = [sys.executable, "-m", "tests.http.bodies.bombs", name]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    for line in output.splitlines():
        growth, given = map(int, line.split())
        assert given <= LIMITS.max_header_bytes + 1
        assert growth < 8 * MIB  # of which a header may have one, and twice while it grows


def test_bombs_are_what_they_are_called() -> None:
    for name in NAMES:
        body, _ = bomb(name)
        assert len(body) < 5 * MIB


@pytest.mark.parametrize("encodings", [b"gzip, gzip", b"gzip,deflate", b"gzip, identity", b"gzip, br"])
def test_what_is_said_to_be_compressed_twice_is_not_even_begun(encodings: bytes) -> None:
    body, _ = bomb("compressed twice")
    message = post(b"Content-Encoding: " + encodings, length(body[:1000])) + body[:1000]
    driver = server()
    driver.push(message)
    assert refuses(driver, code=ErrorCode.UNSUPPORTED_ENCODING, status=415)
    assert driver.connection.incoming.received_copied == 1000  # dropped as it came
