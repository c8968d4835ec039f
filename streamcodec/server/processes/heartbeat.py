"""Heartbeats: how the first process knows that a worker still does its work, and not only that it is there.

A process that was stopped (SIGSTOP), or whose event loop stands still in a model, is alive for the system. It gets its
share of the new connections and answers none of them, and it hears no signal that asks it to end. So the event loop of
each worker says again and again that it turns: one byte on the channel that the worker shares with the first process.
It is the loop that speaks, and no thread: models in threads may take as long as they like, and a loop that a model
blocks is as good as dead. A worker that still loads its models has no loop yet, and is not watched.

What counts is a worker's **silence**: the time in which the first process has listened and heard nothing. The time in
which it did not run itself is no silence. A machine that slept, a terminal that stopped the whole group, or a
hypervisor that gave the processor to others have stopped all of them alike; a clock would then condemn all workers at
once, before the first of them could say a word. So the first process looks at short intervals, and a look that comes
late counts as two of them, however late it is.

A byte also says whether the worker takes new connections: one that is about to stop is sent none (see `handover`).

This module has no process and no signal. What follows from a silence is decided in `supervising`.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

BEAT_SECONDS: Final = 0.1
"""Between two beats: a wake-up costs some microseconds, and a client of a worker that does not accept waits for two or
three beats until another one does."""

_BEATS_IN_TIMEOUT: Final = 4
"""A short time limit has so many beats: one may be late."""

_LONGEST_LOOK: Final = 2.0
"""In beats: what a look that comes late counts for."""

_DOUBTFUL: Final = 2.5
"""In beats: a worker that has been silent for so long may be stuck, or only busy."""

_TAKES: Final = b"+"
_LEAVES: Final = b"-"


def beat_seconds(timeout: float) -> float:
    """Return the time between two beats, for workers that may be silent for so long; 0 for any time."""
    return min(BEAT_SECONDS, timeout / _BEATS_IN_TIMEOUT) if timeout else BEAT_SECONDS


async def beat(channel: socket.socket, seconds: float, takes_connections: Callable[[], bool]) -> None:
    """Say at regular intervals that this event loop turns, until this is cancelled.

    Args:
        channel: to the first process.
        seconds: between two beats.
        takes_connections: says whether the worker takes new ones.
    """
    while True:
        try:
            with suppress(OSError):  # nobody listens any more, or nobody has for minutes
                channel.send(_TAKES if takes_connections() else _LEAVES, socket.MSG_DONTWAIT)
            await anyio.sleep(seconds)
        except MemoryError:
            await asyncio.sleep(0)


class Attention:
    """A clock of the first process that stands still while this process does not run.

    It does not see why: it only bounds how much one look may count for.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin at 0.

        Args:
            seconds: between two beats; `look` is meant to be called as often, or more often.
            clock: the time of the machine.
        """
        self._longest = seconds * _LONGEST_LOOK
        self._clock = clock
        self._last = clock()
        self.now = 0.0

    def look(self) -> None:
        """Go on to now."""
        last, self._last = self._last, self._clock()
        self.now += min(self._last - last, self._longest)


class Heartbeat:
    """What one worker has said of itself since it was ready."""

    def __init__(self, attention: Attention, seconds: float) -> None:
        """Begin to listen: a worker that has just become ready has been heard.

        Args:
            attention: of the first process.
            seconds: between two beats.
        """
        self._attention = attention
        self._doubtful = seconds * _DOUBTFUL
        self._heard = attention.now
        self.takes_connections = True

    def hear(self, said: bytes) -> None:
        """Note what the worker has said, if it has said something."""
        if said:
            self._heard = self._attention.now
            self.takes_connections = said.endswith(_TAKES)

    @property
    def silence(self) -> float:
        """Seconds in which nothing was heard."""
        return self._attention.now - self._heard

    @property
    def is_doubtful(self) -> bool:
        """Whether the worker has missed beats: others should do its work, though there may be nothing wrong."""
        return self.silence >= self._doubtful
