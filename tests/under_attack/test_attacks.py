"""Whatever 16 connections do, the others are served: each attack, for a short time.

Times are judged: run them with `-m quiet`, on a machine that does nothing else. How long the attack is, does not matter
to a server that keeps its bounds; the table over several seconds each is `python -m tests.under_attack`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.processes import ServerProcess
from tests.under_attack.attacks import ATTACKS
from tests.under_attack.trial import attack, calm_server

pytestmark = [
    pytest.mark.quiet,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux what a process has"),
]
_SECONDS = 1.5


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with calm_server(tmp_path_factory.mktemp("calm") / "server", "asyncio") as server:
        yield server


@pytest.mark.parametrize("name", ATTACKS)
def test_others_are_served_meanwhile(name: str, calm: ServerProcess, tmp_path: Path) -> None:
    finding = attack(name, calm, tmp_path / "server", loop="asyncio", seconds=_SECONDS)
    assert not finding.complaints(), finding
