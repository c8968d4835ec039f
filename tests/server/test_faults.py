"""Faults: clients that break off, with TLS and with workers that die, and that nothing is left of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.server.faults import SERVERS, trial

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes in /proc"),
]

COUNT = int(os.environ.get("STREAMCODEC_FAULTS", "200"))
"""Clients for each server; `python -m tests.server.faults` has 10,000 and takes some minutes."""


@pytest.mark.parametrize("server", SERVERS)
def test_nothing_is_left_of_clients_that_break_off(server: str) -> None:
    found = trial(server, COUNT, batch=COUNT // 2)
    assert found.has_all_back, found
    assert found.answered > 0
    assert found.status == 0
    assert found.stopping < 5, "nobody had to be killed"
    if not found.deaths:
        assert (found.sent_back, found.lost) == (0, 0)
