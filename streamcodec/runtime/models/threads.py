"""Threads: run functions beside the event loops, and call event loops back from there.

The threads of a process are shared by all of its event loops. An idle thread waits for a lock of its own, so handing it
a function takes one release of that lock. The one that became idle last is taken first: the others reach the end of
their time, and end. All of them are daemons: a function that hangs does not keep the process from ending.

A thread wakes an event loop by a system call, which costs more than the rest. So what several threads have for one loop
is brought there by one wake (`Mailbox`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from time import sleep
from typing import Any, Final, Protocol

IDLE_SECONDS: float = 10.0
"""Time after which an idle thread ends."""


class _Worker:
    """A thread that runs one function after the other."""

    __slots__ = ("_function", "_has_function")

    def __init__(self, function: Callable[[], object]) -> None:
        """Start the thread with its first function.

        Raises:
            RuntimeError: the system cannot start another thread.
        """
        self._function: Callable[[], object] | None = function
        self._has_function = Lock()
        self._has_function.acquire()
        Thread(target=self._work, name="streamcodec worker", daemon=True).start()

    def give(self, function: Callable[[], object]) -> None:
        """Have it run a function. It must be idle."""
        self._function = function
        self._has_function.release()

    def _work(self) -> None:
        while (function := self._function) is not None:
            self._function = None
            function()
            del function
            _IDLE.append(self)
            if not self._has_function.acquire(timeout=IDLE_SECONDS):
                with suppress(ValueError):  # it was taken at this moment: the function comes
                    _IDLE.remove(self)
                    return
                self._has_function.acquire()


_PAUSE_SECONDS: Final = 0.01
"""A pause in which others may free memory."""

_IDLE: Final[list[_Worker]] = []
"""The idle threads of this process."""

if hasattr(os, "register_at_fork"):  # a forked process has none of them
    os.register_at_fork(after_in_child=_IDLE.clear)


def run_in_thread(function: Callable[[], object]) -> None:
    """Run a function that raises nothing in an idle thread, or in a new one.

    Raises:
        RuntimeError: there is no idle thread, and the system cannot start another one.
    """
    try:
        worker = _IDLE.pop()
    except IndexError:
        _Worker(function)
    else:
        worker.give(function)


class Event(Protocol):
    """Something that one task waits for."""

    async def wait(self) -> object:
        """Wait for it."""
        ...

    def set(self) -> None:
        """Let the task go on; its event loop calls this."""
        ...


class Mailbox:
    """Brings functions from threads to one event loop, which calls them.

    Attributes:
        loop: the event loop: of asyncio, or a token of trio.
        event: makes an event for a task of the event loop.
    """

    def __init__(self, loop: Any) -> None:  # noqa: ANN401 - see above
        """Prepare for an event loop, as `current_loop` returns it."""
        self.loop = loop
        self.event: Callable[[], Event]
        if isinstance(loop, asyncio.AbstractEventLoop):
            self.event = partial(_LoopEvent, loop)
            self._call_soon = loop.call_soon_threadsafe
        else:
            self.event = sys.modules["trio"].Event
            self._call_soon = loop.run_sync_soon
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def put(self, function: Callable[[], object]) -> None:
        """Have the event loop call a function that raises nothing; no effect if the loop has ended.

        It is called in any case, because a task waits for it: what there is no memory for now is tried again.
        """
        is_put = False
        while True:
            try:
                if not is_put:
                    self._waiting.append(function)
                    is_put = True
                if not self._is_woken:  # else the event loop has not begun to empty this
                    self._wake()
            except MemoryError:
                sleep(_PAUSE_SECONDS)
            else:
                return

    def _wake(self) -> None:
        self._is_woken = True
        try:
            with suppress(RuntimeError):  # it has ended
                self._call_soon(self._empty)
        except MemoryError:
            self._is_woken = False
            raise

    def _empty(self) -> None:
        self._is_woken = False
        while self._waiting:
            self._waiting.popleft()()


class _LoopEvent:
    """An event of asyncio; its own class takes three times as long."""

    __slots__ = ("_future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[None] = loop.create_future()

    async def wait(self) -> None:
        await self._future

    def set(self) -> None:
        if not self._future.done():  # whoever waited was cancelled
            self._future.set_result(None)


def current_loop() -> Any:  # noqa: ANN401 - of asyncio, or a token of trio
    """Return what tells the current event loop from others, for a `Mailbox`."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return sys.modules["trio"].lowlevel.current_trio_token()  # it is there, because it runs this
