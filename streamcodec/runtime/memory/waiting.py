"""Waiting: waits for memory that a request has asked for; shared by all servers.

There are two ways to wait, and they have no code in common but the budget's. A task must not block its event loop, and
a thread has no event loop. Both look at those who keep memory (`press`) while they wait.

An endpoint's tasks may run in several event loops that share one budget. To wake a task of another loop is the business
of that loop. So such a task has no event; it looks more often instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

import anyio

from streamcodec.service.memory.budget import Reservation

_PRESS_SECONDS: Final = 0.25
"""Interval for checking the requests that hold memory, while another request waits for it."""

_LOOK_SECONDS: Final = 0.02
"""So often a task looks that nobody wakes."""


async def wait_for_memory(reservation: Reservation, timeout: float, check: Callable[[], object] = int) -> bool:
    """Wait for the memory that a request has asked for.

    Args:
        reservation: of the request.
        timeout: seconds.
        check: called repeatedly; its exceptions end the wait.

    Returns:
        Whether the memory has come.
    """
    granted = anyio.Event()
    reservation.on_granted = granted.set
    with anyio.move_on_after(timeout):
        while reservation.missing:  # it may have been granted before this task had its turn
            check()
            reservation.press(anyio.current_time())
            with anyio.move_on_after(_PRESS_SECONDS):
                await granted.wait()
    return not reservation.missing


async def look_for_memory(reservation: Reservation, timeout: float) -> bool:
    """Wait for the memory of a budget that several event loops share; see `wait_for_memory`."""
    end = monotonic() + timeout
    while reservation.missing and monotonic() < end:
        reservation.press(monotonic())
        await anyio.sleep(_LOOK_SECONDS)
    return not reservation.missing


def block_for_memory(reservation: Reservation, timeout: float) -> bool:
    """Have this thread wait for the memory that a request has asked for; see `wait_for_memory`."""
    granted = threading.Event()
    reservation.on_granted = granted.set
    end = monotonic() + timeout
    while reservation.missing and (left := end - monotonic()) > 0:  # it may have come before this
        reservation.press(monotonic())
        granted.wait(min(left, _PRESS_SECONDS))
    return not reservation.missing
