"""Sharing: the memory budget, shared by the threads of a server.

A `Budget` has no lock. Only reservations change it. So the reservation here takes the budget's lock for each of its
steps. Only code of the budget runs with the lock, and a thread does not wait with it.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import Final

from streamcodec.service.budget import Budget, Reservation

_PRESS_SECONDS: Final = 0.25
"""Interval for checking the requests that hold memory, while another request waits for it."""


class SharedBudget:
    """The memory of all requests of one process.

    Attributes:
        budget: counts the memory.
        lock: held by the thread that changes the budget; a thread may take it again.
    """

    def __init__(self, budget: Budget) -> None:
        """Add a lock to a budget."""
        self.budget: Budget = budget
        self.lock: threading.RLock = threading.RLock()


class SharedReservation(Reservation):
    """The memory of one request."""

    def __init__(self, shared: SharedBudget) -> None:
        """Begin with nothing."""
        super().__init__(shared.budget)
        self._lock = shared.lock

    def ask(self, nbytes: int, *, held: int = 0) -> bool:
        """Ask for a total number of bytes."""
        with self._lock:
            return super().ask(nbytes, held=held)

    def has_room(self, taken: int, total: int | None) -> bool:
        """Ask for the memory of the next step."""
        with self._lock:
            return super().has_room(taken, total)

    def press(self, now: float) -> None:
        """Make slow requests shrink while this one waits."""
        with self._lock:
            super().press(now)

    def release(self) -> None:
        """Free all memory of the request."""
        with self._lock:
            super().release()


def wait_for_memory(reservation: Reservation, timeout: float) -> bool:
    """Wait, in this thread, for the memory that a request has asked for.

    Args:
        reservation: of the request.
        timeout: seconds.

    Returns:
        Whether the memory has come.
    """
    granted = threading.Event()
    reservation.on_granted = granted.set
    end = monotonic() + timeout
    while reservation.missing and (left := end - monotonic()) > 0:  # it may have come before this
        reservation.press(monotonic())
        granted.wait(min(left, _PRESS_SECONDS))
    return not reservation.missing
