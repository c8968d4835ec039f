"""Budget: the memory that all requests of one server may take together. Sans-IO: it counts, and its callers wait.

The budget counts the body of a request, decompressed. For a model that takes windows it counts the JSON header and the
windows instead. It also counts what is made from the body: the arrays of JSON tensors, the offsets of BYTES, and the
objects that a model may make of BYTES. While a JSON header arrives, it counts the bytes that have arrived and a small
step for the next ones. The complete header says how much memory the request takes. The request *asks* for all of it
before memory is taken for tensors. A request that cannot have it waits in a queue, in order of arrival, so small
requests do not pass a large one for ever. Memory is given back when the request is over, however it ends.

Two requests must not wait for memory that the other one keeps (a deadlock). So a waiting request keeps only the memory
that it uses already. Requests that hold much come before requests that hold little. Memory in use needs no waiting: it
is counted even if the sum exceeds the budget, and others wait.

A request may not keep memory that it has only announced. While somebody waits, the budget looks at the bytes that each
holder brings. A request *shrinks* to what has really arrived if it is below `min_rate`, or would need more than a
minute for the rest. It then goes on and asks for more in growing steps, as a JSON header does. So it competes by the
memory that it holds, and not by the length in its head. A request that is fast enough never notices this. A request
that stays below `min_rate` for some seconds while others wait loses its memory too, and is refused as too slow.

Idle memory of the pool belongs to the budget too, and is given back before anybody waits. Pool memory in use is counted
with the request that uses it. An array that a model keeps after its request belongs to the model, like everything that
the model makes.

The budget does not count memory that the number of connections bounds: scratch memory, one read beyond the room of a
request, and small requests that are answered at once. A block of the pool may be a quarter larger than its tensor.

Interrupted uploads (`uploads`) hold memory that nobody fills. They give it up as soon as somebody would have to wait.

Time is an argument: there is no clock here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

from streamcodec.engine.errors import LimitExceededError
from streamcodec.engine.memory.pool import Pool

_LITTLE_BYTES: Final = 64 << 10
"""A request with more than this comes first, because others may wait for it; the limit is a step for small budgets."""

_FIRST_STEP_BYTES: Final = 16 << 10
"""The first step of a JSON header: most headers are shorter."""

_STEPS: Final = 1024
"""The first step is at most this fraction (1/1024) of the budget, so that many requests can go on at once."""

_LEAST_STEP_BYTES: Final = 1 << 10

_WINDOW_SECONDS: Final = 1.0
"""The bytes of a request are measured over this time before it can be called slow."""

_SLOW_LOOKS: Final = 3
"""A request that is found below `min_rate` this many times in a row, while others wait, loses its memory."""

_PATIENCE_SECONDS: Final = 60.0
"""A request that would need longer for the rest keeps no memory for it meanwhile."""


class Budget:
    """Counts the bytes of all reservations.

    Attributes:
        max_bytes: how many bytes may be granted at once.
        reserved: how many bytes are reserved; more than `max_bytes` if requests hold more than they have asked for.
        min_rate: the fewest bytes a second that a request should bring.
        give_back: frees memory that is held for nobody in particular, and returns whether there was some. It is called
            before a request waits; None if there is no such memory.
    """

    def __init__(self, max_bytes: int, pool: Pool | None = None, *, min_rate: float = 0.0) -> None:
        """Begin with nothing reserved.

        Args:
            max_bytes: how many bytes may be granted at once.
            pool: gives back idle memory when requests need it.
            min_rate: bytes a second.
        """
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
        self.give_back: Callable[[], bool] | None = None

    @property
    def waiting(self) -> int:
        """How many reservations wait for memory."""
        return len(self._begun) + len(self._waiting)

    def check(self, nbytes: int) -> None:
        """Refuse a request that needs more than the whole budget.

        Raises:
            LimitExceededError: status 413.
        """
        if nbytes > self.max_bytes:
            msg = f"the request needs {nbytes} bytes of memory, the server has {self.max_bytes} for all requests"
            raise LimitExceededError(msg, limit="max_memory_bytes")

    def admit(self, reservation: Reservation) -> None:
        """Put a reservation into its queue; it is granted now, or when its turn has come."""
        self._queue_of(reservation).append(reservation)
        self.go_on()
        self.relieve()

    def relieve(self) -> None:
        """Have memory given back as long as somebody waits and there is such memory; see `give_back`."""
        while self.waiting and self.give_back is not None and self.give_back():
            self.go_on()

    def forget(self, reservation: Reservation) -> None:
        """Take a reservation out of its queue; those behind it may fit now."""
        with suppress(ValueError):  # it is in no queue if there was no memory to queue it
            self._queue_of(reservation).remove(reservation)
        self.go_on()

    def go_on(self) -> None:
        """Grant memory to those who wait, as far as the budget allows."""
        while (queue := self._begun or self._waiting) and self._taken() + queue[0].missing <= self.max_bytes:
            queue[0].grant()
            queue.popleft()

    def look(self, now: float) -> None:
        """Shrink slow requests if somebody waits. Whoever waits calls this from time to time.

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
        """Replace the number of bytes of a reservation; the pool gives back idle blocks if they are needed.

        If there is no memory for this bookkeeping, its effects on the queues and the pool are skipped.
        """
        self.reserved += nbytes - reservation.nbytes
        reservation.nbytes = nbytes
        try:
            if not nbytes:
                self._holders.pop(reservation, None)
            else:
                self._holders[reservation] = None
            self._trim()
        except MemoryError:
            return

    def add(self, nbytes: int) -> None:
        """Count more bytes than the reservations have, or fewer: those of requests that are complete, which stay."""
        self.reserved += nbytes
        try:  # noqa: SIM105 - `suppress` would take half of the time of this
            self._trim()
        except MemoryError:  # as above
            pass
        if nbytes < 0:
            self.go_on()

    def _trim(self) -> None:
        if self._pool is not None and (room := self.max_bytes - self._taken()) < self._pool.max_idle_bytes:
            self._pool.trim(max(0, room))

    def has_at_once(self, nbytes: int) -> bool:
        """Whether `nbytes` bytes more are free, and nobody waits who comes before."""
        return not (self._begun or self._waiting) and self._taken() + nbytes <= self.max_bytes

    def _taken(self) -> int:
        """Return the reserved bytes, and those that requests may still hold after they have shrunk (their pool blocks).

        A new block takes memory only as far as bytes have arrived. A reused block takes all of its memory.
        """
        if self._pool is None or not self._given_up:
            return self.reserved
        return self.reserved + min(self._given_up, self._pool.reused_bytes)

    def gave_up(self, nbytes: int) -> None:
        """Report that a reservation has shrunk by `nbytes` bytes; a negative number says that this is over."""
        self._given_up += nbytes

    def _queue_of(self, reservation: Reservation) -> deque[Reservation]:
        return self._begun if reservation.nbytes > self._little_bytes else self._waiting


class Reservation:
    """The share of one request in a budget.

    Attributes:
        budget: counts them.
        lock: held while what belongs to several requests of the budget changes, if they are those of several threads.
        nbytes: the bytes that it has.
        missing: the bytes that it waits for; 0 if it does not wait.
        is_short: whether it has less than the request will take; the reader must then ask with `has_room`.
        on_granted: called when it has waited and its bytes are granted.
        taken: returns how much memory the request really takes now; None if the client's pace no longer matters. If it
            is not set, the reservation does not change until it is released.
    """

    lock: AbstractContextManager[object] = nullcontext()

    def __init__(self, budget: Budget) -> None:
        """Begin with nothing."""
        self.budget: Budget = budget
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
        """Whether the request must be given up: others wait, and it has brought too few bytes for some seconds."""
        return self._slow_looks >= _SLOW_LOOKS

    def begin_to_wait(self) -> None:
        """Report that the request waits for its client from now on; see `SharedReservation`."""

    def end_to_wait(self) -> None:
        """Report that it waits no more."""

    def ask(self, nbytes: int, *, held: int = 0) -> bool:
        """Ask for `nbytes` bytes in all, more than before or fewer.

        Args:
            nbytes: of memory.
            held: how many of them are in use already, granted or not. While the reservation waits, it has only these.

        Returns:
            Whether the bytes are granted; if not, the reservation waits for them.

        Raises:
            LimitExceededError: the budget is smaller than that; status 413.
        """
        self.budget.check(nbytes)
        self.is_short = False
        if nbytes <= max(self.nbytes, held) or self.budget.has_at_once(nbytes - self.nbytes):
            self._have(nbytes)
            return True
        self._have(held)
        self.missing = nbytes - held
        self.budget.admit(self)
        return not self.missing

    def ask_at_once(self, nbytes: int) -> bool:
        """Ask for `nbytes` bytes in all if they are free now; do not wait for them otherwise."""
        if not self.budget.has_at_once(nbytes - self.nbytes):
            return False
        self._have(nbytes)
        return True

    def check(self, nbytes: int) -> None:
        """Refuse a request that needs more than the whole budget; see `Budget.check`.

        Raises:
            LimitExceededError: status 413.
        """
        self.budget.check(nbytes)

    def has_room(self, taken: int, total: int | None) -> bool:
        """Ask for one more step if a short request has used up its bytes.

        Args:
            taken: how much memory the request really takes now.
            total: how much it will take in all; None if that is not known yet.

        Returns:
            Whether it may go on; if not, it waits.

        Raises:
            LimitExceededError: it takes more than the budget; status 413.
        """
        if taken < self.nbytes:
            return True
        most = self.budget.max_bytes if total is None else total
        wanted = max(taken, min(most, taken + self._step))
        self._step *= 2
        is_there = self.ask(wanted, held=taken)
        self.is_short = total is None or wanted < total
        return is_there

    def taken_now(self) -> int | None:
        """Return how much memory the request takes now; None if the client's pace does not matter."""
        return None if self.taken is None else self.taken()

    def look(self, now: float) -> None:
        """Shrink if the request arrives too slowly for the memory that it has; the budget calls this while others wait.

        Args:
            now: seconds, on any clock.
        """
        taken = None if self.missing else self.taken_now()
        if taken is None or self._seen is None:
            self._seen = None if taken is None else (now, taken)
            return
        since, before = self._seen
        if now - since < _WINDOW_SECONDS:
            return
        self._seen = now, taken
        rate = (taken - before) / (now - since)
        is_slow = rate < self.budget.min_rate
        self._slow_looks = self._slow_looks + 1 if is_slow else 0
        nbytes = taken if is_slow else taken + self.budget.step_bytes
        if nbytes < self.nbytes and (is_slow or self.nbytes - taken > rate * _PATIENCE_SECONDS):
            self._given_up += self.nbytes - nbytes
            self.budget.gave_up(self.nbytes - nbytes)
            self.budget.count(self, nbytes)
            self._step = self.budget.step_bytes
            self.is_short = True

    def grant(self) -> None:
        """Take the bytes that it waits for; called by the budget."""
        self.budget.count(self, self.nbytes + self.missing)
        self.missing = 0
        if self.on_granted is not None:
            with suppress(MemoryError):  # the waiting side also looks from time to time
                self.on_granted()

    def press(self, now: float) -> None:
        """Make slow requests shrink while this one waits; see `Budget.look`."""
        self.budget.look(now)

    def release(self) -> None:
        """Give everything back, and stop waiting."""
        self.on_granted = self.taken = self._seen = None
        self._slow_looks = 0
        self.is_short = False
        self._step = self.budget.step_bytes
        if self._given_up:
            self.budget.gave_up(-self._given_up)
            self._given_up = 0
        if self.missing:
            self.missing = 0
            self.budget.forget(self)
        if self.nbytes:
            self._have(0)

    def beside(self) -> Reservation:
        """Return another reservation of the same budget, which has nothing."""
        return Reservation(self.budget)

    def handed_over(self) -> Reservation:
        """Move the bytes to a new reservation, and return it."""
        other = self.beside()
        self.hand_to(other)
        return other

    def hand_to(self, other: Reservation) -> None:
        """Move the bytes to another reservation of the same budget. This one stops waiting."""
        if self.missing:
            self.missing = 0
            self.budget.forget(self)
        nbytes = self.nbytes
        self.budget.count(self, 0)
        self.budget.count(other, other.nbytes + nbytes)

    def _have(self, nbytes: int) -> None:
        gives_back = nbytes < self.nbytes
        self.budget.count(self, nbytes)
        if gives_back:
            self.budget.go_on()
