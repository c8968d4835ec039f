"""Outbox: sends small answers together, after all requests of a turn of the event loop have been handled.

Each sent answer may wake the client, which costs more than the sending. If answers are sent one right after the other,
most of them find the client awake. Several answers for one client are sent as one.

The same holds for the server: waking a sleeping processor takes longer than answering a small request, above all in a
virtual machine. A client that waits for its answer before it asks again is back within that time. So after answers have
been sent, the event loop makes a few more turns to look for requests, before the system may put it to sleep. The cost
is limited: it is zero if no small requests arrive.
"""

from __future__ import annotations

import asyncio


class Outbox:
    """The answers that one event loop sends at the end of this turn."""

    def __init__(self, busy_poll: float) -> None:
        """Begin inside a running event loop; for `busy_poll` see `ServerOptions`."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Transport, list[bytes]] = {}
        self._busy_poll = busy_poll
        self._awake_until = 0.0
        self._is_looking = False

    def put(self, transport: asyncio.Transport, data: bytes) -> None:
        """Send data at the end of this turn."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.setdefault(transport, []).append(data)

    def nbytes(self, transport: asyncio.Transport) -> int:
        """Return the number of bytes that wait for a transport."""
        parts = self._waiting.get(transport)
        return sum(map(len, parts)) if parts else 0

    def flush(self) -> None:
        """Send everything now."""
        waiting, self._waiting = self._waiting, {}
        for transport, parts in waiting.items():
            if not transport.is_closing():  # it may have been closed in this turn
                transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        self._awake_until = self._loop.time() + self._busy_poll
        if not self._is_looking:
            self._look()

    def _look(self) -> None:
        """Let the event loop make one more turn without sleeping, until `busy_poll` is over."""
        self._is_looking = self._loop.time() < self._awake_until
        if self._is_looking:
            self._loop.call_soon(self._look)
