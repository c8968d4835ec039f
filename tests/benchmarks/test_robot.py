"""The robot's round trip: what it needs, on either link."""

from __future__ import annotations

import statistics
import sys

import pytest

from tests.benchmarks import robot

MIB = 1 << 20
MOST = {"Unix socket": 30 * MIB, "WebSocket": 36 * MIB}
"""Above a bare Python. The package `websockets` takes 11 MiB of it."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
@pytest.mark.parametrize("transport", robot.TRANSPORTS)
def test_a_robot_and_its_policy_need_little_memory(transport: str) -> None:
    if transport == "WebSocket":
        pytest.importorskip("websockets")
    bare = robot.bare_bytes()
    found = robot.measured(transport, "frames", 20)
    assert len(found["robot"]["latencies"]) == 20
    for side in ("robot", "policy"):
        assert found[side]["peak"] - bare <= MOST[transport], side


@pytest.mark.quiet
@pytest.mark.parametrize("transport", robot.TRANSPORTS)
def test_a_robot_waits_two_milliseconds_at_most(transport: str) -> None:
    pytest.importorskip("websockets")
    latencies = robot.measured(transport, "frames", 500)["robot"]["latencies"]
    assert statistics.quantiles(latencies, n=100, method="inclusive")[98] <= 0.002
