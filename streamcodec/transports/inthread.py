"""Inthread: has a thread do what would stop an event loop for long. It knows nothing of what that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

_T = TypeVar("_T")


async def in_thread(function: Callable[[], _T], limiter: anyio.CapacityLimiter) -> _T:
    """Call a function in a thread, or here if the system can start none, as where address space is limited.

    Then others wait for it. To give up would end a connection without an answer.

    Args:
        function: is called once.
        limiter: of the threads.

    Raises:
        Exception: any exception of the function.
    """
    has_begun = False

    def run() -> _T:
        nonlocal has_begun
        has_begun = True
        return function()

    try:
        return await anyio.to_thread.run_sync(run, limiter=limiter)
    except RuntimeError:  # "can't start new thread"
        if has_begun:
            raise
    return function()
