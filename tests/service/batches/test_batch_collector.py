"""BatchCollector: which requests go together, and when, for any order of events. Time is a number here."""

from __future__ import annotations

import gc
import math
from collections.abc import Hashable
from weakref import WeakSet

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamcodec.service import Batch
from streamcodec.service.batches.collector import BatchCollector, Waiting


def test_a_batch_waits_for_its_time_and_then_takes_all() -> None:
    collector: BatchCollector[str] = BatchCollector(Batch(max_rows=4, max_delay=2.0))
    for now, item in enumerate("ab"):
        assert collector.put(item, "k", 1, float(now)) is not None
        assert not collector.is_ripe
    assert collector.due == 2.0
    assert collector.take(1.9) is None
    closed = collector.take(2.0)
    assert closed is not None
    assert (closed.items, closed.rows, closed.reason, closed.waited) == (["a", "b"], 2, "delay", [2.0, 1.0])
    assert len(collector) == 0
    assert collector.due == math.inf


def test_a_full_batch_does_not_wait_and_leaves_what_has_no_room() -> None:
    collector: BatchCollector[str] = BatchCollector(Batch(max_rows=4, max_delay=2.0))
    for item in "abc":
        collector.put(item, "k", 2, 0.0)
    closed = collector.take(0.0)
    assert closed is not None
    assert (closed.items, closed.reason) == (["a", "b"], "full")
    assert collector.take(0.0) is None
    assert collector.rows == 2


def test_a_preferred_number_of_rows_does_not_wait() -> None:
    collector: BatchCollector[str] = BatchCollector(Batch(max_rows=4, max_delay=2.0, preferred_rows=(2,)))
    collector.put("a", "k", 1, 0.0)
    assert collector.take(0.0) is None
    collector.put("b", "k", 1, 0.0)
    closed = collector.take(0.0)
    assert closed is not None
    assert (closed.items, closed.reason) == (["a", "b"], "preferred")


def test_while_the_model_works_its_next_batch_grows() -> None:
    collector: BatchCollector[str] = BatchCollector(Batch(max_rows=4, max_delay=0.0))
    collector.put("a", "k", 1, 0.0)
    assert collector.take(0.0) is not None
    for item in "bc":
        collector.put(item, "k", 1, 0.0)
    assert collector.due == math.inf
    assert collector.take(9.0) is None
    collector.running -= 1
    closed = collector.take(9.0)
    assert closed is not None
    assert closed.items == ["b", "c"]


def test_what_has_waited_long_enough_comes_before_what_is_full() -> None:
    collector: BatchCollector[str] = BatchCollector(Batch(max_rows=2, max_delay=1.0))
    collector.put("rare", "other", 1, 0.0)
    for item in "ab":
        collector.put(item, "k", 1, 0.5)
    closed = collector.take(1.0)
    assert closed is not None
    assert (closed.items, closed.reason) == (["rare"], "delay")


def test_what_is_full_does_not_wait_for_what_came_before() -> None:
    collector: BatchCollector[str] = BatchCollector(Batch(max_rows=2, max_delay=1.0))
    collector.put("rare", "other", 1, 0.5)
    for item in "ab":
        collector.put(item, "k", 1, 0.6)
    closed = collector.take(0.6)
    assert closed is not None
    assert (closed.items, closed.reason) == (["a", "b"], "full")
    collector.running -= 1
    assert collector.take(1.4) is None
    assert collector.take(1.5) is not None


class _Key:
    """Of a group; it is compared by identity, and can be referred to weakly."""


def test_ten_thousand_groups_are_served_in_their_order_and_leave_nothing() -> None:
    collector: BatchCollector[int] = BatchCollector(Batch(max_rows=4, max_delay=1.0, max_queue_rows=100))
    keys = [_Key() for _ in range(10_000)]
    groups: WeakSet[_Key] = WeakSet(keys)
    taken = []
    for number in range(10_000):
        if collector.put(number, keys[number], 1, float(number)) is None:
            assert len(collector) == 100, "the queue bounds the groups, too"
            while (closed := collector.take(1e9)) is not None:
                collector.running -= 1
                taken += closed.items
            assert collector.put(number, keys[number], 1, float(number)) is not None
    while (closed := collector.take(1e9)) is not None:
        collector.running -= 1
        taken += closed.items
    assert taken == [*range(10_000)]
    del keys, closed
    gc.collect()
    assert not groups


MAX_ROWS, MAX_QUEUE, DELAY, MAX_RUNNING = 5, 12, 3.0, 2


class Queue(RuleBasedStateMachine):
    """Any order of requests, departures, calls and their ends, with the rules that always hold."""

    def __init__(self) -> None:
        super().__init__()
        self.batch = Batch(
            max_rows=MAX_ROWS, max_delay=DELAY, max_queue_rows=MAX_QUEUE, preferred_rows=(3,), max_running=MAX_RUNNING
        )
        self.collector: BatchCollector[int] = BatchCollector(self.batch)
        self.now = 0.0
        self.waiting: dict[int, tuple[Waiting[int], Hashable, int, float]] = {}
        self.count = self.running = 0

    @rule(key=st.sampled_from("ab"), rows=st.integers(0, MAX_ROWS))
    def put(self, key: str, rows: int) -> None:
        waits = sum(rows or 1 for _, _, rows, _ in self.waiting.values())
        self.count += 1
        waiting = self.collector.put(self.count, key, rows, self.now)
        assert (waiting is None) is (waits + (rows or 1) > MAX_QUEUE)
        if waiting is not None:
            self.waiting[self.count] = waiting, key, rows, self.now

    @rule(index=st.integers(0, 20))
    def leave(self, index: int) -> None:
        if self.waiting:
            name = [*self.waiting][index % len(self.waiting)]
            waiting = self.waiting.pop(name)[0]
            assert self.collector.remove(waiting)
            assert not self.collector.remove(waiting)

    @rule(seconds=st.floats(0.0, 2 * DELAY))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def end(self) -> None:
        if self.running:
            self.collector.running -= 1
            self.running -= 1

    @rule()
    def take(self) -> None:
        due, is_ripe = self.collector.due, self.collector.is_ripe
        closed = self.collector.take(self.now)
        assert (closed is None) is (due > self.now)
        assert not is_ripe or closed is not None
        if closed is None:
            return
        self.running += 1
        taken = [self.waiting.pop(item) for item in closed.items]
        assert len({key for _, key, _, _ in taken}) == 1
        assert closed.rows == sum(rows or 1 for _, _, rows, _ in taken) <= MAX_ROWS
        assert closed.waited == [self.now - since for _, _, _, since in taken]
        key = taken[0][1]
        assert max(closed.items) < min(
            [item for item, (_, other, _, _) in self.waiting.items() if other == key], default=math.inf
        )
        late = {other for _, other, _, since in [*taken, *self.waiting.values()] if since + DELAY <= self.now}
        assert not late or key in late, "nobody overtakes those whose time has come"

    @invariant()
    def is_consistent(self) -> None:
        assert len(self.collector) == len(self.waiting)
        assert self.collector.rows == sum(rows or 1 for _, _, rows, _ in self.waiting.values())
        assert self.collector.running == self.running <= MAX_RUNNING
        oldest = self.collector.oldest
        assert (None if oldest is None else oldest.item) == min(self.waiting, default=None)
        if self.waiting and self.running < MAX_RUNNING:
            assert self.collector.due <= self.waiting[min(self.waiting)][3] + DELAY


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
