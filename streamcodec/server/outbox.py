"""Outbox: sends small answers together, after all requests of a turn of the event loop have been handled.

Each sent answer may wake the client, which costs more than the sending. If answers are sent one right after the other,
most of them find the client awake. Several answers for one client are sent as one.

The same holds for the server: waking a sleeping processor takes longer than answering a small request, above all in a
virtual machine. A client that waits for its answer before it asks again is back within that time. So after answers have
been sent, the event loop makes a few more turns to look for requests, before the system may put it to sleep. The cost
is limited: it is zero if no small requests arrive.

If a client has sent more requests than are answered in one turn, they are answered in several turns, after other
clients that have done the same. In each turn some of them continue, for a limited time. So a thousand requests in one
write do not delay clients that have sent one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

_TURN_SECONDS: Final = 0.001
"""For those who are behind, together, in each turn; the last one may take longer."""


class Outbox:
    """What one event loop has to send in this turn.

    Attributes:
        behind: those who have more requests than could be answered so far, to be called in this order.
    """

    def __init__(self, busy_poll: float) -> None:
        """Begin inside a running event loop; for `busy_poll` see `ServerOptions`."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Transport, list[bytes]] = {}
        self._busy_poll = busy_poll
        self._awake_until = 0.0
        self._is_looking = False
        self.behind: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def later(self, catch_up: Callable[[], None]) -> None:
        """Call somebody in a later turn, when those before it have gone on."""
        self.behind.append(catch_up)
        self._schedule()

    def put(self, transport: asyncio.Transport, data: bytes) -> None:
        """Send data at the end of this turn."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.setdefault(transport, []).append(data)

    def nbytes(self, transport: asyncio.Transport) -> int:
        """Return how much waits for a transport."""
        parts = self._waiting.get(transport)
        return sum(map(len, parts)) if parts else 0

    def flush(self) -> None:
        """Send everything now."""
        waiting, self._waiting = self._waiting, {}
        for transport, parts in waiting.items():
            if not transport.is_closing():  # in this very turn
                transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        self._awake_until = self._loop.time() + self._busy_poll
        if not self._is_looking:
            self._look()

    def _look(self) -> None:
        """Have the event loop turn once more without sleeping, as long as it pays."""
        self._is_looking = self._loop.time() < self._awake_until
        if self._is_looking:
            self._loop.call_soon(self._look)

    def _schedule(self) -> None:
        if self.behind and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Let those who are behind go on, each once, as long as there is time in this turn."""
        end = perf_counter() + _TURN_SECONDS
        try:
            for _ in range(len(self.behind)):
                self.behind.popleft()()
                if perf_counter() >= end:
                    break
        finally:
            self._is_scheduled = False
            self._schedule()
