"""The soak in little memory, for some seconds: in a control group where one can be made, else under who kills alike."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.devices.processes import group
from tests.soak.memory.cells import Cell, measure
from tests.soak.memory.requests import catalogue, tiny

pytestmark = pytest.mark.slow

_MIB = 1 << 20
_SCALE = 0.25


def _kind() -> str:
    try:
        with group("memory", limit_in_bytes=64 * _MIB):
            return "group"
    except OSError:
        return "watch"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux what a process has")
@pytest.mark.parametrize("options", [(), ("--small",)], ids=["defaults", "small"])
def test_a_server_in_little_memory_is_not_killed_and_answers_nothing_wrong(options: tuple[str, ...]) -> None:
    cell = Cell(mebibytes=96, seconds=5, kind=_kind(), options=options)
    requests = catalogue(Random(0), _SCALE)  # noqa: S311 - to be the same again
    found = measure(cell, requests, tiny())
    assert not found.kills, found
    assert not found.counts["wrong"], found
    assert not found.broken, found
    assert found.counts["right"] > 0, found
