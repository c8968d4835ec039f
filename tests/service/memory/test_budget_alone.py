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
