"""Waiting: waits for memory that a request has asked for; shared by all servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from streamcodec.service.budget import Reservation

_PRESS_SECONDS: Final = 0.25
"""Interval for checking the requests that hold memory, while another request waits for it."""


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
