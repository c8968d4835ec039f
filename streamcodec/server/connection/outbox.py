"""Outbox: sends small answers together, after all requests of a turn of the event loop have been handled.

Each sent answer may wake the client, which costs more than the sending. If answers are sent one right after the other,
most of them find the client awake. Several answers for one client are sent as one.
"""

from __future__ import annotations

import asyncio


class Outbox:
    """The answers that one event loop sends at the end of this turn."""

    def __init__(self) -> None:
        """Begin inside a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Transport, list[bytes]] = {}

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
