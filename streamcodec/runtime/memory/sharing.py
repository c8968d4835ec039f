"""Sharing: the budget of memory, used by several threads.

A `Budget` counts, and knows of no threads. Changes come through a reservation or a `Hold`. So each of their steps
takes the budget's lock. Only the budget's own code runs under the lock, and nobody waits under it.

The budget looks at all requests while one of them waits, in the thread of that one. It must not read the decoders of
requests that other threads work on. So each thread reports how much memory its request takes before it waits for its
client, and takes the report back afterwards. The budget looks at the reports; without one, it is not the client who is
waited for.

The bytes of a complete request belong to an object that is deleted at any time, in any thread, even within the budget's
own code (`Hold`). So what such an object gives back is first put into a queue. Whoever has the lock next, or leaves it,
empties the queue.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

from streamcodec.engine.memory.pool import Pool
from streamcodec.service.memory.budget import Budget, Reservation


class SharedBudget:
    """The memory of all requests of one process.

    Attributes:
        budget: counts it.
    """

    def __init__(self, max_bytes: int, pool: Pool | None = None, *, min_rate: float = 1024.0) -> None:
        """Begin with nothing reserved.

        Args:
            max_bytes: how many bytes requests may have at once.
            pool: gives back idle memory when requests need it.
            min_rate: bytes a second. A request that brings less loses its memory while others wait for some.
        """
        self.budget: Budget = Budget(max_bytes, pool, min_rate=min_rate)
        self._lock = threading.RLock()
        self._depth = 0
        self._returned: deque[int] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        self._lock.release()
        if self._returned:
            self._empty_queue()

    def hold_at_once(self, nbytes: int) -> Hold | None:
        """Reserve so many bytes until the result is deleted; None if they are not free now."""
        hold = Hold(self)
        with self:
            if self.budget.has_at_once(nbytes):
                self.budget.add(nbytes)
                hold.nbytes = nbytes
        return hold if hold.nbytes else None

    def hold(self, reservation: Reservation) -> Hold:
        """Keep what a reservation has until the result is deleted; the reservation has nothing then."""
        hold = Hold(self)
        with self:
            hold.nbytes = reservation.nbytes
            self.budget.reserved += hold.nbytes
            reservation.release()
        return hold

    def give_back(self, nbytes: int) -> None:
        """Give bytes back as soon as the lock is free. It may be called within any code, and does not wait."""
        self._returned.append(nbytes)
        self._empty_queue()

    def _empty_queue(self) -> None:
        """Give back what is in the queue, unless another thread has the lock, or this one is in the budget's code."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                if self._depth:
                    return
                self._depth += 1
                while self._returned:
                    self.budget.add(-self._returned.popleft())
                self._depth -= 1
            finally:
                self._lock.release()


class SharedReservation(Reservation):
    """What one request has of it."""

    def __init__(self, shared: SharedBudget) -> None:
        """Begin with nothing."""
        super().__init__(shared.budget)
        self.lock = self._shared = shared
        self._reported: int | None = None

    def begin_to_wait(self) -> None:
        """Report how much memory the request takes now. Its own thread calls this before it waits for its client."""
        self._reported = None if self.taken is None else self.taken()

    def end_to_wait(self) -> None:
        """Take the report back."""
        self._reported = None

    def taken_now(self) -> int | None:
        """Return what is reported."""
        return self._reported

    def ask(self, nbytes: int, *, held: int = 0) -> bool:
        """Ask for so many bytes in all."""
        with self._shared:
            return super().ask(nbytes, held=held)

    def ask_at_once(self, nbytes: int) -> bool:
        """Ask for so many bytes in all, if they are free."""
        with self._shared:
            return super().ask_at_once(nbytes)

    def beside(self) -> SharedReservation:
        """Return another one, which has nothing."""
        return SharedReservation(self._shared)

    def has_room(self, taken: int, total: int | None) -> bool:
        """Ask for a step more."""
        with self._shared:
            return super().has_room(taken, total)

    def press(self, now: float) -> None:
        """Have those who are slow make room."""
        with self._shared:
            super().press(now)

    def release(self) -> None:
        """Give everything back."""
        with self._shared:
            super().release()


class Hold:
    """Keeps bytes of the budget until it is deleted.

    Attributes:
        nbytes: that are counted in the budget.
    """

    __slots__ = ("_shared", "nbytes")

    def __init__(self, shared: SharedBudget) -> None:
        """Begin with nothing."""
        self._shared = shared
        self.nbytes: int = 0

    def end(self) -> None:
        """Give them back now."""
        nbytes, self.nbytes = self.nbytes, 0
        if nbytes:
            self._shared.give_back(nbytes)

    __del__ = end
