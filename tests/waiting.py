"""Waiting for what another thread or process does, however long a busy machine takes for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = 60.0
"""No test takes so long, on any machine: what has not come by then hangs."""


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "this should have come by now"
        time.sleep(0.005)
