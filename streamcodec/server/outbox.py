"""Outbox: small answers that are sent together, when all requests of a turn of the event loop have been seen to.

Each answer that is sent may wake the client, which costs more than the sending. Sent back to back, most of them find it
awake; and several answers for one client are one.
"""

from __future__ import annotations

import asyncio


class Outbox:
    """What one event loop has to send in this turn."""

    def __init__(self) -> None:
        """Begin inside a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Transport, list[bytes]] = {}

    def put(self, transport: asyncio.Transport, data: bytes) -> None:
        """Send data at the end of this turn."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.setdefault(transport, []).append(data)

    def flush(self) -> None:
        """Send everything now."""
        waiting, self._waiting = self._waiting, {}
        for transport, parts in waiting.items():
            transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
