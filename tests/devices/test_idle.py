"""Idle: what a server takes at rest. `python -m tests.devices.floors` prints all of it."""

from __future__ import annotations

import sys

import pytest

from tests.devices.floors import at_rest, floor, idle_cost
from tests.server.wire import GET_LIVE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.slow
def test_idle_connections_cost_little_and_leave_little() -> None:
    kib, left = idle_cost("serve", GET_LIVE)
    assert kib < 20
    assert left < 7 << 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mebibytes"), [("the same without extras", 44), ("threaded_server.py", 36)])
def test_a_server_at_rest_takes_little(name: str, mebibytes: int) -> None:
    assert at_rest(name)[0] < mebibytes << 10


@pytest.mark.parametrize("least", [9, 24, 100, 511])
def test_a_floor_is_found_by_halving(least: int) -> None:
    assert least <= floor(lambda mebibytes: mebibytes >= least, 4, 512) < least + 4
