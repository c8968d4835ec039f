"""Beside: runs one task beside a block of code, and cancels it at the end of the block.

A task group of anyio does this, too, with two effects that this module avoids. It wraps an exception of the block in a
group of exceptions. And on asyncio, a task that ends because it was cancelled leaves a reference cycle: its exception
refers to its frames, and so to the tensors that it was sending, until the garbage collector runs. So the task ends by a
scope of its own, whether its block ends or is cancelled, and no cancellation leaves it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def beside(function: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a function, which raises nothing itself, in a task beside the body of the `async with`."""
    failure: Exception | None = None
    scope = anyio.CancelScope(shield=True)

    async def run() -> None:
        with scope:
            await function()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below, because the task group would raise a group with it
            failure = error
        finally:
            scope.cancel()
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback refers to this frame
