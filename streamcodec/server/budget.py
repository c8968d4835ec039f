"""Budget: the memory that the requests of one server may take together. Sans-IO: it counts, and others wait.

What counts is the body of a request, decompressed, or for a model that takes windows the JSON header and the windows;
and what is made of it besides, the arrays of JSON tensors and the offsets of BYTES. So most of it is known by the head
where the body's length is declared, and by the JSON header where it is not. Before memory is taken, the bytes are
*asked* for. Who cannot have them waits, in order of arrival: a large request is not passed over for ever by small ones.
What has been given is given back when the request is over, however it ends.

Two requests must not wait for what the other keeps. So who waits has no more than what is there already, and comes
before those who have nothing yet. What is there already is not waited for: it is counted even where it is more than
there should be, and others wait.

Not counted is what is bounded by the number of connections: scratch memory, and small requests that are answered from
there at once. Nor is what a model makes. JSON takes more memory than its text while it is parsed: 4 times as much where
floats are written with all their digits, 14 times with digits alone, 24 times with texts of one letter; where strangers
send it, `max_header_bytes` is the limit to lower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streamcodec.core.errors import LimitExceededError
from streamcodec.core.pool import Pool


class Budget:
    """Counts the bytes of all reservations.

    Attributes:
        max_bytes: how many may be granted at once.
        reserved: how many there are; more than that where requests hold more than their heads have told.
    """

    def __init__(self, max_bytes: int, pool: Pool | None = None) -> None:
        """Begin with nothing reserved; what is idle of the pool makes room for what is."""
        self.max_bytes = max_bytes
        self.reserved = 0
        self._pool = pool
        self._begun: deque[Reservation] = deque()
        self._waiting: deque[Reservation] = deque()

    def admit(self, reservation: Reservation) -> None:
        """Let a reservation have what it wants, now or when its turn has come."""
        self._queue_of(reservation).append(reservation)
        self.go_on()

    def forget(self, reservation: Reservation) -> None:
        """Let a reservation wait no longer; those behind it may fit now."""
        self._queue_of(reservation).remove(reservation)
        self.go_on()

    def go_on(self) -> None:
        """Give to those who wait, as far as it reaches."""
        while (queue := self._begun or self._waiting) and self.reserved + queue[0].missing <= self.max_bytes:
            queue.popleft().grant()

    def reserve(self, nbytes: int) -> None:
        """Count so many bytes more, or fewer if negative; idle blocks of the pool are given back for them."""
        self.reserved += nbytes
        if self._pool is not None:
            self._pool.trim(max(0, self.max_bytes - self.reserved))

    def _queue_of(self, reservation: Reservation) -> deque[Reservation]:
        return self._begun if reservation.nbytes else self._waiting


class Reservation:
    """What one request has of a budget.

    Attributes:
        nbytes: what it has.
        missing: what it waits for; 0 if it does not.
        on_granted: called when it has waited and has got it.
    """

    def __init__(self, budget: Budget) -> None:
        """Begin with nothing."""
        self._budget = budget
        self.nbytes = 0
        self.missing = 0
        self.on_granted: Callable[[], object] | None = None

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
        most = self._budget.max_bytes
        if nbytes > most:
            msg = f"the request takes {nbytes} bytes of memory, the server has {most} for all requests together"
            raise LimitExceededError(msg, limit="max_memory_bytes")
        if nbytes <= max(self.nbytes, held):
            self._have(nbytes)
            return True
        self._have(held)
        self.missing = nbytes - held
        self._budget.admit(self)
        return not self.missing

    def grant(self) -> None:
        """Have what it waits for; called by the budget."""
        self._budget.reserve(self.missing)
        self.nbytes += self.missing
        self.missing = 0
        if self.on_granted is not None:
            self.on_granted()

    def release(self) -> None:
        """Give everything back, and wait no longer."""
        self.on_granted = None
        if self.missing:
            self.missing = 0
            self._budget.forget(self)
        if self.nbytes:
            self._have(0)

    def handed_over(self) -> Reservation:
        """Return another reservation that has what this one had."""
        other = Reservation(self._budget)
        other.nbytes, self.nbytes = self.nbytes, 0
        return other

    def _have(self, nbytes: int) -> None:
        self._budget.reserve(nbytes - self.nbytes)
        self.nbytes = nbytes
        self._budget.go_on()
