"""Tasks: independent tasks that serve connections. An error in one of them ends no other.

A task group ends all of its tasks when one of them fails. A connection catches exceptions of its own code, but not
those around it: if memory is short, a task may fail before its first line or after its last one. So on asyncio these
tasks are in no group. A set keeps them; at the end they are awaited, and then cancelled. trio has no tasks without a
group; if it has no memory for its own bookkeeping, it ends by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

Function = Callable[..., Coroutine[Any, Any, None]]


class Tasks(Protocol):
    """Tasks that end by themselves, or are cancelled at the end."""

    def start_soon(self, function: Function, *arguments: Any) -> None:  # noqa: ANN401 - the function's
        """Start a task."""
        ...

    def end_within(self, seconds: float) -> None:
        """Cancel the tasks that still run after this time."""
        ...


@asynccontextmanager
async def open_tasks() -> AsyncIterator[Tasks]:
    """Return tasks of the current event loop. The block ends when all have ended; if it is cancelled, so are they."""
    try:
        tasks = _LoopTasks(asyncio.get_running_loop())
    except RuntimeError:
        async with anyio.create_task_group() as group:
            yield _GroupTasks(group)
        return
    try:
        yield tasks
        await tasks.wait()
    finally:
        await tasks.cancel()


class _LoopTasks:
    """The tasks of asyncio."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._scopes: set[anyio.CancelScope] = set()
        self._seconds: float | None = None

    def start_soon(self, function: Function, *arguments: Any) -> None:  # noqa: ANN401 - the function's
        task = self._loop.create_task(self._run(function, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end_within(self, seconds: float) -> None:
        self._seconds = seconds

    async def wait(self) -> None:
        """Wait until all have ended, or their time is over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._seconds)

    async def cancel(self) -> None:
        """Cancel the remaining tasks, and wait until they have ended."""
        for scope in self._scopes:
            scope.cancel()
        with anyio.CancelScope(shield=True):
            self._seconds = None
            await self.wait()

    async def _run(self, function: Function, arguments: tuple[Any, ...]) -> None:
        try:  # this statement takes no memory, unlike `suppress`
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    await function(*arguments)
                finally:
                    self._scopes.discard(scope)
        except MemoryError:
            pass


class _GroupTasks:
    """The tasks of trio."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group

    def start_soon(self, function: Function, *arguments: Any) -> None:  # noqa: ANN401 - the function's
        self._group.start_soon(_alone, function, arguments)

    def end_within(self, seconds: float) -> None:
        self._group.cancel_scope.deadline = anyio.current_time() + seconds


async def _alone(function: Function, arguments: tuple[Any, ...]) -> None:
    try:  # noqa: SIM105 - as above
        await function(*arguments)
    except MemoryError:
        pass
