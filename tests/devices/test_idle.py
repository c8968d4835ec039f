"""Idle: what a server takes at rest. `python -m tests.devices.floors` prints all of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.devices.floors import at_rest, floor, idle_cost
from tests.devices.processes import PROGRAMS, idle_connections, served, works
from tests.server.lanes import eventually
from tests.server.wire import GET_LIVE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


_WAITING: Final = 4
"""`WAITING_THREADS` of the example."""


@pytest.mark.slow
def test_idle_connections_cost_little_and_leave_little() -> None:
    kib, left = idle_cost("serve", GET_LIVE)
    assert kib < 20
    assert left < 6 << 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mebibytes"), [("the same without extras", 44), ("threaded_server.py", 37)])
def test_a_server_at_rest_takes_little(name: str, mebibytes: int) -> None:
    assert at_rest(name)[0] < mebibytes << 10


@pytest.mark.slow
def test_the_threads_of_many_connections_end_with_them() -> None:
    with served(PROGRAMS["threaded_server.py"]) as server:
        threads = Path(f"/proc/{server.pid}/task")
        for _ in range(2):
            sockets = idle_connections(server, 20, GET_LIVE)
            assert len([*threads.iterdir()]) > 20
            for sock in sockets:
                sock.close()
            assert eventually(lambda: len([*threads.iterdir()]) <= 2 + _WAITING)
            assert works(server, is_large=False)


@pytest.mark.parametrize("least", [9, 24, 100, 511])
def test_a_floor_is_found_by_halving(least: int) -> None:
    assert least <= floor(lambda mebibytes: mebibytes >= least, 4, 512) < least + 4
