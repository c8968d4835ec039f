"""Quickness: when a function has proved quick, and what it takes until it has done so again."""

from __future__ import annotations

import pytest

from streamcodec.service.models.quickness import Quickness

SMALL, LARGE = 100, 1000
OFTEN = 16
"""Quick calls in a row."""


def _quick(quickness: Quickness, count: int = OFTEN, *, nbytes: int = SMALL, now: float = 0.0) -> None:
    for _ in range(count):
        quickness.ran_in_thread(nbytes, 0.0005, now, has_waited=False)


def _proved() -> Quickness:
    quickness = Quickness()
    _quick(quickness)
    return quickness


def _pause(quickness: Quickness, now: float) -> float:
    """Return how many seconds from now on quick calls do not count."""
    for tenths in range(1, 100_000):
        _quick(quickness, now=now + tenths / 10)
        if quickness.may_run_inline(SMALL):
            return tenths / 10
    pytest.fail("it has no end")


def test_a_function_is_quick_when_it_was_so_often_in_a_row() -> None:
    quickness = Quickness()
    _quick(quickness, OFTEN - 1)
    assert not quickness.may_run_inline(SMALL)
    _quick(quickness, 1)
    assert quickness.may_run_inline(SMALL)


@pytest.mark.parametrize(("seconds", "has_waited"), [(0.0006, False), (0.00001, True)])
def test_a_call_in_between_that_was_slow_or_has_waited_begins_the_row_again(seconds: float, has_waited: bool) -> None:
    quickness = Quickness()
    for _ in range(3):
        _quick(quickness, OFTEN - 1)
        quickness.ran_in_thread(SMALL, seconds, 0.0, has_waited=has_waited)
    assert not quickness.may_run_inline(SMALL)
    _quick(quickness)
    assert quickness.may_run_inline(SMALL)


def test_calls_vouch_for_their_size_only() -> None:
    quickness = _proved()
    verdicts = {nbytes: quickness.may_run_inline(nbytes) for nbytes in (0, 63, 64, SMALL, 127, 128, LARGE, 1 << 40)}
    assert [nbytes for nbytes, verdict in verdicts.items() if verdict] == [64, SMALL, 127]


def test_a_slow_call_in_a_thread_says_nothing_about_other_sizes() -> None:
    quickness = _proved()
    _quick(quickness, nbytes=LARGE)
    quickness.ran_in_thread(LARGE, 1.0, 0.0, has_waited=True)
    assert (quickness.may_run_inline(SMALL), quickness.may_run_inline(LARGE)) == (True, False)


def test_a_stall_ends_it_for_all_sizes() -> None:
    quickness = _proved()
    _quick(quickness, nbytes=LARGE)
    quickness.has_stalled(0.003, 0.0)
    assert (quickness.may_run_inline(SMALL), quickness.may_run_inline(LARGE)) == (False, False)


def test_the_pause_after_a_stall_is_a_thousand_times_as_long_and_grows_each_time() -> None:
    quickness, now, pauses = _proved(), 0.0, []
    for seconds in (0.003, 0.003, 0.003, 0.5, 0.003, 0.003, 0.003, 0.003):
        quickness.has_stalled(seconds, now)
        pauses.append(_pause(quickness, now))
        now += pauses[-1]
    assert pauses == pytest.approx([3, 6, 12, 500, 1000, 2000, 3600, 3600])


def test_a_failure_that_took_no_time_has_a_pause_all_the_same() -> None:
    quickness = _proved()
    quickness.has_stalled(0.0, 0.0)
    assert _pause(quickness, 0.0) == 1.0


@pytest.mark.parametrize(("well", "pause"), [(20.0, 6.0), (50.0, 3.0)])
def test_a_stall_long_ago_does_not_count(well: float, pause: float) -> None:
    quickness = _proved()
    quickness.has_stalled(0.003, 0.0)
    _quick(quickness, now=3.0)
    quickness.has_stalled(0.003, 3.0 + well)
    assert _pause(quickness, 3.0 + well) == pytest.approx(pause)


def test_who_knows_how_to_slow_a_function_down_holds_the_loop_up_for_a_thousandth_of_the_time() -> None:
    """The most that is possible: the function is slowed down as soon as it is called on the event loop."""
    for seconds in (0.003, 0.1, 3.0):
        quickness, now, stalled = _proved(), 0.0, 0.0
        while now < 3600.0:
            quickness.has_stalled(seconds, now)
            stalled += seconds
            now += _pause(quickness, now)
        assert stalled <= now / 1000


def test_what_a_thread_adds_late_does_not_outlive_a_stall() -> None:
    quickness = _proved()
    before = quickness._calls  # noqa: SLF001 - as a thread has it that is at work
    quickness.has_stalled(0.003, 0.0)
    before[SMALL.bit_length()] = OFTEN
    assert not quickness.may_run_inline(SMALL)
