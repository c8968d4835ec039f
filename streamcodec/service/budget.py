"""Budget: the memory that the requests of one server may take together. Sans-IO: it counts, and others wait.

What counts is the body of a request, decompressed, or for a model that takes windows the JSON header and the windows;
and what is made of it besides, the arrays of JSON tensors and the offsets of BYTES. While a JSON header comes, only
what has come of it counts, and a little for what comes next. When it is complete it is known what the request takes,
and before memory is taken for tensors, all of it is *asked* for. Who cannot have it waits, in order of arrival: a large
request is not passed over for ever by small ones. What has been given is given back when the request is over, however
it ends.

Two requests must not wait for what the other keeps. So who waits has no more than what is there already, and who has
much comes before those who have little. What is there already is not waited for: it is counted even where it is more
than there should be, and others wait.

Nor may a request keep what it only announces. While somebody waits, those who have something are looked at, by the
bytes that they bring: who is under `min_rate`, or would need more than a minute for the rest, *shrinks* to what has
really come. It goes on with that, and asks for more in steps that grow, as a JSON header does; so it competes with
those who wait by what it holds, and no longer by what its head has said. Who was quick enough has never noticed. Who
stays under `min_rate` for some seconds while others wait loses what it has, too, and is told that it was too slow.

What the pool keeps idle belongs to the budget, too, and is given back before anybody waits. What is used of it is
counted with what it is used for. An array that a model keeps after its request is the model's, like all that it makes.

Not counted is what is bounded by the number of connections: scratch memory, one read more than a request has room for,
and small requests that are answered at once. A block of the pool may be larger than its tensor by a quarter.

Time is an argument: there is no clock here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from streamcodec.engine.errors import LimitExceededError
from streamcodec.engine.pool import Pool

_LITTLE_BYTES: Final = 64 << 10
"""Who has more than this comes first, for others may wait for it; or more than a step, where the budget is small."""

_FIRST_STEP_BYTES: Final = 16 << 10
"""Of a JSON header, at first: most are shorter."""

_STEPS: Final = 1024
"""A step is at first no more than one part in so many of the budget, so that many may go on at once."""

_LEAST_STEP_BYTES: Final = 1 << 10

_WINDOW_SECONDS: Final = 1.0
"""So long is looked at how many bytes come, before anybody is found to be slow."""

_SLOW_LOOKS: Final = 3
"""So many times in a row a request may be found under `min_rate` while others wait, before it loses what it has."""

_PATIENCE_SECONDS: Final = 60.0
"""Who would take longer for the rest does not keep memory for it meanwhile."""


class Budget:
    """Counts the bytes of all reservations.

    Attributes:
        max_bytes: how many may be granted at once.
        reserved: how many there are; more than that where requests hold more than they have asked for.
        min_rate: bytes a second that a request should come with.
    """

    def __init__(self, max_bytes: int, pool: Pool | None = None, *, min_rate: float = 0.0) -> None:
        """Begin with nothing reserved; what is idle of the pool makes room for what is."""
        self.max_bytes = max_bytes
        self.min_rate = min_rate
        self.reserved: int = 0
        self.step_bytes: int = max(_LEAST_STEP_BYTES, min(_FIRST_STEP_BYTES, max_bytes // _STEPS))
        self._little_bytes = min(_LITTLE_BYTES, max_bytes // _STEPS)
        self._pool = pool
        self._holders: dict[Reservation, None] = {}
        self._begun: deque[Reservation] = deque()
        self._waiting: deque[Reservation] = deque()
        self._looked = float("-inf")
        self._given_up = 0

    def check(self, nbytes: int) -> None:
        """Refuse what there will never be.

        Raises:
            LimitExceededError: status 413.
        """
        if nbytes > self.max_bytes:
            msg = f"the request takes {nbytes} bytes of memory, the server has {self.max_bytes} for all of them"
            raise LimitExceededError(msg, limit="max_memory_bytes")

    def admit(self, reservation: Reservation) -> None:
        """Let a reservation have what it wants, now or when its turn has come."""
        self._queue_of(reservation).append(reservation)
        self.go_on()

    def forget(self, reservation: Reservation) -> None:
        """Let a reservation wait no longer; those behind it may fit now."""
        with suppress(ValueError):  # it is none of them where there was no memory to let it wait
            self._queue_of(reservation).remove(reservation)
        self.go_on()

    def go_on(self) -> None:
        """Give to those who wait, as far as it reaches."""
        while (queue := self._begun or self._waiting) and self._taken() + queue[0].missing <= self.max_bytes:
            queue[0].grant()
            queue.popleft()

    def look(self, now: float) -> None:
        """Have those who are slow shrink, if somebody waits; to be called now and then by whoever does.

        Args:
            now: seconds, on any clock.
        """
        if now - self._looked < _WINDOW_SECONDS / 2 or not (self._begun or self._waiting):
            return
        self._looked = now
        for reservation in [*self._holders]:
            reservation.look(now)
        self.go_on()

    def count(self, reservation: Reservation, nbytes: int) -> None:
        """Count what a reservation has now in place of what it had; idle blocks of the pool are given back for it.

        Where there is no memory for it, nothing has happened, or what matters.
        """
        self.reserved += nbytes - reservation.nbytes
        reservation.nbytes = nbytes
        try:
            if not nbytes:
                self._holders.pop(reservation, None)
            else:
                self._holders[reservation] = None
            if self._pool is not None and (room := self.max_bytes - self._taken()) < self._pool.max_idle_bytes:
                self._pool.trim(max(0, room))
        except MemoryError:
            return

    def has_at_once(self, nbytes: int) -> bool:
        """Whether so many bytes more can be had, and nobody waits who comes before."""
        return not (self._begun or self._waiting) and self._taken() + nbytes <= self.max_bytes

    def _taken(self) -> int:
        """Return what is reserved, and what may be there besides: who shrinks keeps its block of the pool.

        A new block is there as far as bytes have come. One that was used before is there as a whole.
        """
        if self._pool is None or not self._given_up:
            return self.reserved
        return self.reserved + min(self._given_up, self._pool.reused_bytes)

    def gave_up(self, nbytes: int) -> None:
        """Tell that a reservation has shrunk by so many bytes, or with a negative number that this is over."""
        self._given_up += nbytes

    def _queue_of(self, reservation: Reservation) -> deque[Reservation]:
        return self._begun if reservation.nbytes > self._little_bytes else self._waiting


class Reservation:
    """What one request has of a budget.

    Attributes:
        nbytes: what it has.
        missing: what it waits for; 0 if it does not.
        is_short: whether that is less than the request will take, so that whoever reads it has to ask by `has_room`.
        on_granted: called when it has waited and has got it.
        taken: returns how much memory the request really takes by now; None if it is not the client's pace that counts
            any more. Without it, the reservation stays as it is until it is released.
    """

    def __init__(self, budget: Budget) -> None:
        """Begin with nothing."""
        self._budget = budget
        self._step = budget.step_bytes
        self._seen: tuple[float, int] | None = None
        self._given_up = 0
        self._slow_looks = 0
        self.nbytes = 0
        self.missing: int = 0
        self.is_short: bool = False
        self.on_granted: Callable[[], object] | None = None
        self.taken: Callable[[], int | None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the request is to be given up: others wait, and it has hardly come on for some seconds."""
        return self._slow_looks >= _SLOW_LOOKS

    def ask(self, nbytes: int, *, held: int = 0) -> bool:
        """Ask for so many bytes in all, more than before or fewer.

        Args:
            nbytes: of memory.
            held: how many of them are there already, granted or not. While it waits it has these and no more.

        Returns:
            Whether they are there; if not, it waits for them.

        Raises:
            LimitExceededError: there will never be so many; status 413.
        """
        self._budget.check(nbytes)
        self.is_short = False
        if nbytes <= max(self.nbytes, held) or self._budget.has_at_once(nbytes - self.nbytes):
            self._have(nbytes)
            return True
        self._have(held)
        self.missing = nbytes - held
        self._budget.admit(self)
        return not self.missing

    def check(self, nbytes: int) -> None:
        """Refuse what there will never be; see `Budget.check`.

        Raises:
            LimitExceededError: status 413.
        """
        self._budget.check(nbytes)

    def has_room(self, taken: int, total: int | None) -> bool:
        """Ask for a step more, if a request that is short has come to the end of what it has.

        Args:
            taken: how much memory the request really takes by now.
            total: how much it will take in all; None if that is not known yet.

        Returns:
            Whether it may go on; if not, it waits.

        Raises:
            LimitExceededError: it takes more than there is; status 413.
        """
        if taken < self.nbytes:
            return True
        most = self._budget.max_bytes if total is None else total
        wanted = max(taken, min(most, taken + self._step))
        self._step *= 2
        is_there = self.ask(wanted, held=taken)
        self.is_short = total is None or wanted < total
        return is_there

    def look(self, now: float) -> None:
        """Shrink if the request comes too slowly for what it has; called by the budget while others wait.

        Args:
            now: seconds, on any clock.
        """
        taken = None if self.taken is None or self.missing else self.taken()
        if taken is None or self._seen is None:
            self._seen = None if taken is None else (now, taken)
            return
        since, before = self._seen
        if now - since < _WINDOW_SECONDS:
            return
        self._seen = now, taken
        rate = (taken - before) / (now - since)
        self._slow_looks = self._slow_looks + 1 if rate < self._budget.min_rate else 0
        if self.nbytes - taken > rate * _PATIENCE_SECONDS or rate < self._budget.min_rate:
            self._shrink(taken if rate < self._budget.min_rate else taken + self._budget.step_bytes)

    def grant(self) -> None:
        """Have what it waits for; called by the budget."""
        self._budget.count(self, self.nbytes + self.missing)
        self.missing = 0
        if self.on_granted is not None:
            with suppress(MemoryError):  # whoever waits looks now and then
                self.on_granted()

    def press(self, now: float) -> None:
        """Have those who are slow make room, while this waits; see `Budget.look`."""
        self._budget.look(now)

    def release(self) -> None:
        """Give everything back, and wait no longer."""
        self.on_granted = self.taken = self._seen = None
        self._slow_looks = 0
        self.is_short = False
        self._step = self._budget.step_bytes
        if self._given_up:
            self._budget.gave_up(-self._given_up)
            self._given_up = 0
        if self.missing:
            self.missing = 0
            self._budget.forget(self)
        if self.nbytes:
            self._have(0)

    def handed_over(self) -> Reservation:
        """Return another reservation that has what this one had."""
        other = Reservation(self._budget)
        nbytes = self.nbytes
        self._budget.count(self, 0)
        self._budget.count(other, nbytes)
        return other

    def _shrink(self, nbytes: int) -> None:
        if nbytes < self.nbytes:
            self._given_up += self.nbytes - nbytes
            self._budget.gave_up(self.nbytes - nbytes)
            self._budget.count(self, nbytes)
            self._step = self._budget.step_bytes
            self.is_short = True

    def _have(self, nbytes: int) -> None:
        self._budget.count(self, nbytes)
        self._budget.go_on()
