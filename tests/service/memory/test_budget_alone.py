"""The budget, by itself: the pool's idle blocks, want of memory, and reservations that change hands."""

from __future__ import annotations

import pytest

from streamcodec import DATATYPES, Pool, TensorSpec
from streamcodec.service.memory.budget import Budget, Reservation

KIB = 1 << 10


def _used(nbytes: int) -> Pool:
    """Return a pool that keeps an idle block of so many bytes."""
    pool = Pool(max_idle_bytes=1 << 30, min_bytes=0)
    spec = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(nbytes,), nbytes=nbytes, offset=0)
    list(pool.slabs(spec))
    return pool


def test_idle_blocks_are_given_back_before_anybody_waits() -> None:
    pool = _used(64 * KIB)
    assert pool.idle_bytes >= 64 * KIB
    assert Reservation(Budget(100 * KIB, pool)).ask(90 * KIB)
    assert pool.idle_bytes <= 10 * KIB


def test_who_shrinks_keeps_a_block_that_was_used_before() -> None:
    pool = _used(64 * KIB)
    spec = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(64 * KIB,), nbytes=64 * KIB, offset=0)
    kept = list(pool.slabs(spec))
    budget = Budget(100 * KIB, pool, min_rate=1000.0)
    slow, other = Reservation(budget), Reservation(budget)
    assert slow.ask(64 * KIB)
    slow.taken = int
    assert not other.ask(50 * KIB)
    for now in range(5):
        other.press(float(now))
    assert slow.nbytes == 0
    assert other.missing, "the block is there although its request has lost it"
    del kept


def test_without_memory_to_note_a_holder_it_is_counted_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(max_idle_bytes=1 << 30, min_bytes=0)
    budget = Budget(100 * KIB, pool)

    def trim(_: int) -> None:
        raise MemoryError

    monkeypatch.setattr(pool, "trim", trim)
    assert Reservation(budget).ask(90 * KIB)
    assert budget.reserved == 90 * KIB
    budget.add(5 * KIB)
    assert budget.reserved == 95 * KIB


def test_who_is_told_that_its_memory_has_come_may_have_none_for_that() -> None:
    budget = Budget(100 * KIB)
    first, second = Reservation(budget), Reservation(budget)
    assert first.ask(90 * KIB)
    assert not second.ask(90 * KIB)

    def told() -> None:
        raise MemoryError

    second.on_granted = told
    first.release()
    assert second.nbytes == 90 * KIB


def test_a_reservation_may_be_handed_over() -> None:
    budget = Budget(100 * KIB)
    reservation = Reservation(budget)
    assert reservation.ask(90 * KIB)
    other = reservation.handed_over()
    assert (reservation.nbytes, other.nbytes, budget.reserved) == (0, 90 * KIB, 90 * KIB)
    other.release()
    assert budget.reserved == 0


def test_who_waits_is_counted() -> None:
    budget = Budget(100 * KIB)
    holder, large, small = (Reservation(budget) for _ in range(3))
    assert holder.ask(100 * KIB)
    assert budget.waiting == 0
    assert not large.ask(90 * KIB, held=10 * KIB)  # has something, so it is in the other queue
    assert not small.ask(1)
    assert budget.waiting == 2
    holder.release()
    assert budget.waiting == 0


def test_what_no_reservation_has_counts_like_the_rest() -> None:
    pool = _used(64 * KIB)
    budget = Budget(100 * KIB, pool)
    budget.add(90 * KIB)
    assert (budget.reserved, pool.idle_bytes <= 10 * KIB) == (90 * KIB, True)
    waiting = Reservation(budget)
    assert not waiting.ask(20 * KIB)
    budget.add(-90 * KIB)
    assert (waiting.nbytes, budget.reserved) == (20 * KIB, 20 * KIB)


def test_without_a_minimum_rate_nobody_is_too_slow() -> None:
    budget = Budget(100 * KIB)
    slow, other = Reservation(budget), Reservation(budget)
    assert slow.ask(90 * KIB)
    slow.taken = lambda: 10 * KIB
    assert not other.ask(50 * KIB)
    for now in range(10):
        other.press(float(now))
    assert not slow.is_lost
    assert slow.nbytes == 10 * KIB + budget.step_bytes, "what nobody fills for a minute is for others"


def test_who_gets_more_at_once_is_not_told_that_it_has_waited() -> None:
    told: list[str] = []
    reservation = Reservation(Budget(100 * KIB))
    reservation.on_granted = lambda: told.append("granted")
    assert reservation.ask(60 * KIB)
    assert reservation.ask(90 * KIB)
    assert (told, reservation.missing) == ([], 0)


def test_who_has_waited_misses_nothing_any_more() -> None:
    budget = Budget(100 * KIB)
    first, second = Reservation(budget), Reservation(budget)
    assert first.ask(90 * KIB)
    assert not second.ask(90 * KIB)
    assert second.missing == 90 * KIB
    first.release()
    assert (second.missing, second.nbytes) == (0, 90 * KIB)


def _spec(nbytes: int) -> TensorSpec:
    return TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(nbytes,), nbytes=nbytes, offset=0)


@pytest.mark.parametrize("was_slow", [False, True])
def test_after_many_requests_exactly_what_is_reserved_is_not_free(*, was_slow: bool) -> None:
    """Also while a request has a block that was used before, and after others have given up theirs."""
    pool = _used(8 * KIB)
    budget = Budget(100 * KIB, pool, min_rate=1000.0)
    slow, other = Reservation(budget), Reservation(budget)
    for _ in range(3):
        assert slow.ask(64 * KIB)
        if was_slow:
            slow.taken = lambda: KIB
            assert not other.ask(50 * KIB)
            for now in range(2):
                slow.look(float(now))
            assert slow.nbytes == KIB
        slow.release()
        other.release()
    kept = list(pool.slabs(_spec(8 * KIB)))
    assert pool.reused_bytes
    assert other.ask(60 * KIB)
    assert (budget.has_at_once(40 * KIB), budget.has_at_once(40 * KIB + 1)) == (True, False)
    del kept
