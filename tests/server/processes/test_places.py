"""Places: when a worker is started again."""

from __future__ import annotations

import math

import pytest

from streamcodec.server.processes.workerprocess import Place


def _pauses(place: Place, times: int, *, lived: float, was_ready: bool) -> list[float]:
    """Lose so many workers; return how long the place waits each time."""
    pauses = []
    for _ in range(times):
        place.filled()
        assert place.due == math.inf
        place.lost(100.0, lived=lived, was_ready=was_ready)
        pauses.append(place.due - 100.0)
    return pauses


def test_who_dies_soon_makes_the_next_one_wait_longer_each_time() -> None:
    place = Place(0.0)
    assert place.due == 0.0
    assert _pauses(place, 9, lived=9.9, was_ready=True) == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert _pauses(place, 2, lived=10.0, was_ready=True) == [0, 0]
    assert _pauses(place, 2, lived=0.0, was_ready=True) == [0, 0.5]


def test_who_cannot_start_makes_the_next_one_wait_in_any_case() -> None:
    place = Place(0.0)
    assert _pauses(place, 8, lived=99.0, was_ready=False) == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert place.false_starts == 8
    place.hurry(101.0)
    assert place.due == 130.0
    assert _pauses(place, 1, lived=0.0, was_ready=True) == [0]
    assert place.false_starts == 0


@pytest.mark.parametrize("deaths", [2, 9])
def test_nobody_waits_while_nobody_serves(deaths: int) -> None:
    place = Place(0.0)
    _pauses(place, deaths, lived=0.0, was_ready=True)
    place.hurry(100.0)
    assert place.due == 100.0
    place.filled()
    place.hurry(100.0)
    assert place.due == math.inf, "there is one"
