"""The budget, by itself: who comes too slowly for the memory it has, while others wait. Time is an argument."""

from __future__ import annotations

import pytest

from streamcodec.engine.errors import LimitExceededError
from streamcodec.service.memory.budget import Budget, Reservation

RATE = 1000.0
MOST = 1 << 20


class Request:
    """One that holds all memory, and may be asked how far it has come."""

    def __init__(self, nbytes: int = MOST) -> None:
        self.budget = Budget(MOST, min_rate=RATE)
        self.taken = 0
        self.reservation = Reservation(self.budget)
        assert self.reservation.ask(nbytes)
        self.reservation.taken = lambda: self.taken
        self.now = 100.0
        self.reservation.look(self.now)

    def comes_on(self, nbytes: int, seconds: float = 1.0) -> int:
        """Let it bring so much in so long; return how much it has then."""
        self.now += seconds
        self.taken += nbytes
        self.reservation.look(self.now)
        return self.reservation.nbytes


def test_who_comes_at_exactly_the_minimum_rate_keeps_what_it_needs() -> None:
    request = Request(nbytes=50_000)
    assert [request.comes_on(1000) for _ in range(40)] == [50_000] * 40
    assert not request.reservation.is_lost


def test_who_comes_more_slowly_than_that_has_what_has_come_and_no_more() -> None:
    request = Request(nbytes=50_000)
    assert request.comes_on(999) == 999
    assert request.reservation.is_short


def test_each_second_is_judged_by_itself() -> None:
    request = Request(nbytes=50_000)
    assert request.comes_on(20_000) == 50_000
    assert request.comes_on(100) == 20_100, "it was quick once, and is not any more"


def test_a_rate_is_bytes_by_seconds() -> None:
    assert Request(nbytes=50_000).comes_on(1600, seconds=2.0) == 1600, "800 bytes a second"
    assert Request(nbytes=50_000).comes_on(2000, seconds=2.0) == 50_000


def test_nobody_is_judged_by_less_than_a_second() -> None:
    request = Request(nbytes=50_000)
    assert request.comes_on(0, seconds=0.5) == 50_000
    assert request.comes_on(0, seconds=0.25) == 50_000
    assert request.comes_on(0, seconds=0.25) == 0


def test_who_would_need_more_than_a_minute_for_the_rest_keeps_a_step_ahead_of_what_has_come() -> None:
    assert Request(nbytes=122_000).comes_on(2000) == 122_000, "exactly a minute"
    request = Request(nbytes=122_001)
    assert request.comes_on(2000) == 2000 + request.budget.step_bytes
    assert not request.reservation.is_lost


def test_who_is_too_slow_three_times_in_a_row_has_lost() -> None:
    request = Request()
    slow, quick = 10, 100_000
    for nbytes, is_lost in ((slow, False), (slow, False), (quick, False), (slow, False), (slow, False), (slow, True)):
        request.comes_on(nbytes)
        assert request.reservation.is_lost is is_lost
    request.comes_on(quick)
    assert not request.reservation.is_lost, "it has come on before anybody asked"


def test_who_waits_itself_is_not_judged_and_begins_anew() -> None:
    request = Request()
    other = Reservation(request.budget)
    assert not other.ask(1)
    request.comes_on(10)
    request.reservation.missing = 5  # it has come to the end of what it has, and asks for more
    request.comes_on(0, seconds=100.0)
    request.reservation.missing = 0
    for _ in range(2):
        request.comes_on(0)
    assert not request.reservation.is_lost, "the first of these looks only tells where it goes on from"


def test_nobody_is_looked_at_unless_somebody_waits_and_then_twice_a_second_at_most() -> None:
    request, looks = Request(), list[float]()
    request.reservation.look = looks.append  # type: ignore[method-assign,assignment] # to see it
    request.budget.look(10.0)
    assert not looks
    waiting = Reservation(request.budget)
    assert not waiting.ask(1)
    for now in (11.0, 11.25, 11.5, 11.75, 12.0):
        waiting.press(now)
    assert looks == [11.0, 11.5, 12.0]
    waiting.release()
    request.budget.look(20.0)
    assert looks[-1] == 12.0


def test_nothing_is_left_of_a_request_in_its_reservation() -> None:
    request = Request()
    for _ in range(3):
        request.comes_on(0)
    assert request.reservation.is_lost
    request.reservation.release()
    reservation = request.reservation
    assert (reservation.nbytes, reservation.missing, reservation.is_short, reservation.is_lost) == (0, 0, False, False)
    assert (reservation.taken, reservation.on_granted, request.budget.reserved) == (None, None, 0)
    assert reservation.ask(MOST), "the next request may have all"
    waiting = Reservation(request.budget)
    assert not waiting.ask(MOST)
    waiting.release()
    assert (waiting.missing, waiting.nbytes) == (0, 0)


def test_a_header_that_grows_gets_steps_that_grow_and_never_more_than_it_takes() -> None:
    budget = Budget(64 << 20)
    step = budget.step_bytes
    reservation = Reservation(budget)
    sizes = []
    taken = 0
    while taken < 20 * step:
        assert reservation.has_room(taken, 20 * step)
        sizes.append(reservation.nbytes)
        taken = reservation.nbytes
    assert sizes == [step, 3 * step, 7 * step, 15 * step, 20 * step]
    assert not reservation.is_short
    reservation.release()
    assert reservation.has_room(0, None)
    assert (reservation.nbytes, reservation.is_short) == (step, True), "the next one begins with a small step again"


def test_of_unknown_length_it_may_grow_to_all_there_is_and_not_beyond() -> None:
    reservation = Reservation(Budget(10_000))
    taken = 0
    for _ in range(10):
        assert reservation.has_room(taken, None)
        assert reservation.is_short
        taken = reservation.nbytes
        if taken == 10_000:
            break
    assert taken == 10_000
    with pytest.raises(LimitExceededError, match="10001 bytes") as caught:
        reservation.has_room(10_001, None)
    assert caught.value.limit == "max_memory_bytes"
