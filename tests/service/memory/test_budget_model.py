"""Budget: many requests at once, in any order of events. Nothing leaks, nobody is passed over, and somebody goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamcodec import DATATYPES, Pool, TensorSpec
from streamcodec.service.memory.budget import Budget, Reservation

MAX_BYTES = 1 << 20
TIMEOUT = 60.0
READ_BYTES = 64 << 10


@dataclass(eq=False)
class Request:
    """One request, as a session treats it: a header of some length, then tensors."""

    reservation: Reservation
    header: int
    total: int
    taken: int = 0
    has_header: bool = False
    waits_since: float | None = None
    number: int = -1
    arrays: list[np.ndarray[Any, Any]] = field(default_factory=list)

    def progress(self) -> int | None:
        return None if self.is_complete else self.taken

    @property
    def is_complete(self) -> bool:
        return self.has_header and self.taken >= self.total


class Requests(RuleBasedStateMachine):
    """A server in which nothing has to do with anything."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(min_bytes=1)
        self.budget = Budget(MAX_BYTES, self.pool, min_rate=1024)
        self.requests: list[Request] = []
        self.granted: list[int] = []
        self.now = 0.0
        self.count = 0

    def _some(self, data: st.DataObject, requests: list[Request]) -> Request:
        return data.draw(st.sampled_from(requests))

    @property
    def waiting(self) -> list[Request]:
        return [request for request in self.requests if request.reservation.missing]

    @property
    def going(self) -> list[Request]:
        return [request for request in self.requests if not request.reservation.missing]

    def _asked(self, request: Request, is_there: bool) -> None:
        request.waits_since = None if is_there else self.now
        self.count += 1
        request.number = self.count

    @rule(header=st.integers(1, 100_000), tensors=st.integers(0, MAX_BYTES - 100_000))
    def begin(self, header: int, tensors: int) -> None:
        request = Request(Reservation(self.budget), header, header + tensors)
        request.reservation.taken = request.progress
        request.reservation.on_granted = lambda: self.granted.append(request.number)
        self.requests.append(request)
        self._asked(request, request.reservation.has_room(0, header))

    @precondition(lambda self: self.going)
    @rule(data=st.data(), nbytes=st.integers(1, READ_BYTES))
    def read(self, data: st.DataObject, nbytes: int) -> None:
        request = self._some(data, self.going)
        reservation = request.reservation
        request.taken = min(request.taken + nbytes, request.total if request.has_header else request.header)
        if reservation.is_short:
            total = request.total if request.has_header else request.header
            if not reservation.has_room(request.taken, total):
                self._asked(request, False)
                return
        if not request.has_header and request.taken == request.header:
            request.has_header = True
            self._asked(request, reservation.ask(request.total, held=request.taken))

    @precondition(lambda self: self.going)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = self._some(data, self.going)
        if data.draw(st.booleans()):
            array = _lease(self.pool, request.total)
            del array
        self._forget(request)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self._forget(self._some(data, self.waiting))

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.5]))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds
        self.budget.look(self.now)
        for request in self.waiting:
            if request.waits_since is not None and self.now - request.waits_since >= TIMEOUT:
                self._forget(request)

    def _forget(self, request: Request) -> None:
        request.reservation.release()
        self.requests.remove(request)

    @invariant()
    def what_is_counted_is_what_they_have(self) -> None:
        assert self.budget.reserved == sum(request.reservation.nbytes for request in self.requests)
        assert all(request.reservation.nbytes >= 0 for request in self.requests)

    @invariant()
    def no_more_is_granted_than_there_is(self) -> None:
        # What is there already is counted although nobody has granted it: a read for each, or what had been granted.
        over = sum(max(0, request.taken - request.reservation.nbytes) for request in self.requests)
        assert over <= READ_BYTES * len(self.requests)
        if not self.waiting:
            assert self.budget.reserved <= MAX_BYTES + READ_BYTES * len(self.requests)

    @invariant()
    def nobody_waits_for_what_is_free(self) -> None:
        if self.waiting:
            assert self.budget.reserved + min(r.reservation.missing for r in self._first()) > MAX_BYTES

    def _first(self) -> list[Request]:
        """Whoever comes next: of those who have much or, if there are none, of the others, who has waited longest."""
        queue = self.budget._begun or self.budget._waiting  # noqa: SLF001 - nothing else tells
        return [request for request in self.waiting if request.reservation is queue[0]]

    @invariant()
    def order_is_kept_among_equals(self) -> None:
        for queue in (self.budget._begun, self.budget._waiting):  # noqa: SLF001 - nothing else tells
            numbers = [request.number for r in queue for request in self.requests if request.reservation is r]
            assert numbers == sorted(numbers)

    def teardown(self) -> None:
        """From anywhere, time alone brings all to an end: who does not wait goes on, who waits is told so in time."""
        for _ in range(10 * len(self.requests) + 10):
            for request in self.going:
                self._forget(request)
            self.time_goes_on(TIMEOUT)
        assert not self.requests
        assert self.budget.reserved == 0


def _lease(pool: Pool, nbytes: int) -> np.ndarray[Any, Any]:
    (slab,) = pool.slabs(TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(nbytes,), nbytes=nbytes))
    assert slab.array is not None
    return slab.array


TestRequests = Requests.TestCase
TestRequests.settings = settings(deadline=None)


# One after the other


def test_who_only_announces_is_shrunk_to_what_has_come_when_somebody_waits() -> None:
    budget = Budget(8 << 30, min_rate=1024)
    slow, honest = _announcing(budget, 8 << 30, 100), Reservation(budget)
    budget.look(0)
    budget.look(100)
    assert slow.reservation.nbytes == 8 << 30, "nobody waits"
    assert not honest.ask(1 << 20)
    budget.look(100)
    budget.look(100.9)
    assert honest.missing, "it is looked at for a second"
    budget.look(101.5)
    assert (slow.reservation.nbytes, slow.reservation.is_short, honest.nbytes) == (100, True, 1 << 20)


def test_who_would_take_more_than_a_minute_keeps_a_step_and_who_would_not_keeps_all() -> None:
    for rate, kept in ((1 << 20, (1 << 20) + (16 << 10)), (80 << 20, 4 << 30)):
        budget = Budget(4 << 30, min_rate=1024)
        coming, other = _announcing(budget, 4 << 30, 0), Reservation(budget)
        assert not other.ask(1)
        budget.look(0)
        coming.taken += rate
        budget.look(1)
        assert coming.reservation.nbytes == kept


def test_who_has_been_shrunk_goes_on_in_steps_that_grow() -> None:
    budget = Budget(1 << 30, min_rate=1024)
    coming, other = _announcing(budget, 1 << 30, 5000), Reservation(budget)
    assert not other.ask(1)
    budget.look(0)
    budget.look(1)
    reservation = coming.reservation
    assert (reservation.nbytes, other.nbytes) == (5000, 1)
    steps = []
    while reservation.is_short:
        coming.taken = reservation.nbytes
        assert reservation.has_room(coming.taken, (1 << 30) - 1)
        steps.append(reservation.nbytes - coming.taken)
    assert steps[:4] == [16 << 10, 32 << 10, 64 << 10, 128 << 10]
    assert len(steps) < 18
    assert reservation.has_room(7, 1 << 30), "there is room"
    other.release()
    reservation.release()
    assert (budget.reserved, reservation.is_short) == (0, False)


def test_a_request_whose_client_is_not_waited_for_keeps_what_it_has() -> None:
    budget = Budget(100, min_rate=1024)
    complete, fixed, other = Reservation(budget), Reservation(budget), Reservation(budget)
    complete.taken = lambda: None
    assert complete.ask(50)
    assert fixed.ask(50)
    assert not other.ask(1)
    for now in range(10):
        budget.look(now)
    assert (complete.nbytes, fixed.nbytes, other.missing) == (50, 50, 1)


def _announcing(budget: Budget, nbytes: int, taken: int) -> Request:
    request = Request(Reservation(budget), 0, nbytes, taken=taken, has_header=True)
    request.reservation.taken = request.progress
    assert request.reservation.ask(nbytes)
    return request
