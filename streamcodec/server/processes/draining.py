"""Draining: the time between the order to stop and the end, in which no request is lost (`drain_delay`)."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

import anyio

from streamcodec.runtime.tasks import Tasks

_SECONDS: Final = 0.05
"""Between two looks whether the requests in progress have ended."""


def begin_to_stop(
    tasks: Tasks | None,
    delay: float,
    end: float,
    *,
    close: Callable[[], None],
    is_idle: Callable[[], bool],
    stop_accepting: Callable[[], None],
) -> None:
    """Stop at once, or first serve everything for a time, and tell others that they come too late.

    Args:
        tasks: where to wait for that time; None if nothing is served yet.
        delay: `drain_delay`.
        end: when this has to be over, by the monotonic clock.
        close: begins to serve only those who are there.
        is_idle: whether the requests in progress have ended.
        stop_accepting: takes no more connections.
    """

    async def drain() -> None:
        await anyio.sleep(delay)
        close()
        with anyio.move_on_after(end - monotonic()):
            # An event would cost something with each request.
            while not is_idle():  # noqa: ASYNC110
                await anyio.sleep(_SECONDS)
        stop_accepting()

    if delay and tasks is not None:
        tasks.start_soon(drain)
    else:
        close()
        stop_accepting()
