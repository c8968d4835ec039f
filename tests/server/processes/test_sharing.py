"""Sharing: one budget, many threads, and reservations that are given back at any time."""

from __future__ import annotations

import gc
import random
import threading

import pytest

from streamcodec.engine.memory.pool import Pool
from streamcodec.runtime.memory.sharing import Hold, SharedBudget, SharedReservation

MIB = 1 << 20


def test_what_is_given_back_within_the_budget_is_released_afterwards() -> None:
    shared = SharedBudget(MIB)
    hold = shared.hold_at_once(1000)
    with shared, shared:
        del hold
        assert shared.budget.reserved == 1000
    assert shared.budget.reserved == 0


def test_what_is_given_back_while_another_thread_counts_is_not_lost_and_does_not_wait() -> None:
    shared = SharedBudget(MIB)
    hold = shared.hold_at_once(1000)
    assert hold is not None
    entered, leave = threading.Event(), threading.Event()

    def count() -> None:
        with shared:
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=count)
    thread.start()
    assert entered.wait(60)
    hold.end()
    assert shared.budget.reserved == 1000
    leave.set()
    thread.join()
    assert shared.budget.reserved == 0


def test_what_is_held_counts_until_it_is_given_back() -> None:
    shared = SharedBudget(1000, Pool())
    waiting = SharedReservation(shared)
    held = shared.hold_at_once(600)
    assert held is not None
    assert shared.hold_at_once(600) is None
    assert not waiting.ask(500)
    assert shared.hold_at_once(1) is None, "somebody waits"
    held.end()
    del held
    assert not waiting.missing
    other = shared.hold(waiting)
    assert (waiting.nbytes, other.nbytes, shared.budget.reserved) == (0, 500, 500)
    del other
    assert shared.budget.reserved == 0


@pytest.mark.slow
def test_threads_that_ask_and_drop_leave_nothing_reserved() -> None:
    shared = SharedBudget(MIB)

    def work(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - no secret
        kept: list[Hold] = []
        for _ in range(2000):
            reservation = SharedReservation(shared)
            if not reservation.ask(chance.randrange(1, MIB // 4)):
                reservation.release()
                kept.clear()
                continue
            cycle: list[object] = [shared.hold(reservation)]  # is deleted by the garbage collector, whenever that runs
            cycle.append(cycle if chance.random() < 0.5 else None)
            if (hold := shared.hold_at_once(chance.randrange(1, MIB // 64))) is not None:
                kept.append(hold)

    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert shared.budget.reserved == 0
    assert SharedReservation(shared).ask(MIB)


def test_only_its_own_thread_looks_at_a_request() -> None:
    shared = SharedBudget(MIB, min_rate=1000.0)
    slow, waiting = SharedReservation(shared), SharedReservation(shared)
    lookers: list[int] = []

    def taken() -> int:
        lookers.append(threading.get_ident())
        return 10

    slow.taken = taken
    assert slow.ask(MIB)
    slow.begin_to_wait()
    assert not waiting.ask(MIB // 2)

    def press() -> None:
        for second in range(6):
            waiting.press(float(second))

    thread = threading.Thread(target=press)
    thread.start()
    thread.join()
    assert lookers == [threading.get_ident()]
    assert not waiting.missing, "the slow one has made room"
    assert slow.is_short


def test_a_request_whose_client_is_not_waited_for_is_not_slow() -> None:
    shared = SharedBudget(MIB, min_rate=1000.0)
    busy, waiting = SharedReservation(shared), SharedReservation(shared)
    busy.taken = lambda: 10
    assert busy.ask(MIB)
    busy.begin_to_wait()
    busy.end_to_wait()
    assert not waiting.ask(MIB // 2)
    for second in range(6):
        waiting.press(float(second))
    assert waiting.missing
    assert not busy.is_lost
