"""Preparing: what comes before the first request of a connection, such as a handshake, and when it has to end.

It ends at once if others need the place, because no request can be lost. If the server stops, a request may be on its
way: a client that has said nothing has a moment after it has connected, as without TLS, and one that has begun has the
time of a handshake over a slow link. This file knows nothing of what is prepared.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from streamcodec.runtime import timeouts

_LAST_HANDSHAKE_SECONDS: Final = 2.0
"""For what has begun when the server stops: several times around the world, and the work of a small device."""

_LAST_LOOK_SECONDS: Final = 0.01
"""For a loop that was held up: it finds its timers due before it looks for bytes, and a handshake may be there."""

_PreparedT = TypeVar("_PreparedT")


class Preparing:
    """What comes before the first request of one connection."""

    def __init__(self) -> None:
        """Prepare; nothing is awaited."""
        self._scope: anyio.CancelScope | None = None
        self._is_leaving = False
        self._began = 0.0
        self._stopped = math.inf
        self._has_begun = False

    async def wait(self, prepare: Callable[[], Awaitable[_PreparedT]]) -> _PreparedT:
        """Wait for it; in the meantime the other methods are called.

        Raises:
            ConnectionAbortedError: it has to end before it is done.
        """
        with anyio.CancelScope() as scope:
            self._scope, self._began = scope, anyio.current_time()
            self._bound()
            prepared = await prepare()
            self._scope = None
            return prepared
        msg = "the server has ended the connection before its first request"
        raise ConnectionAbortedError(msg)

    def begun(self) -> None:
        """Report that the client has begun with it."""
        self._has_begun = True
        self._bound()

    def stop(self) -> None:
        """Wait only so long as a request may be on its way."""
        self._stopped = min(self._stopped, anyio.current_time())
        self._bound()

    def leave(self) -> None:
        """Wait no longer."""
        self._is_leaving = True
        self._bound()

    def _bound(self) -> None:
        if self._scope is None:
            return
        if self._is_leaving:
            self._scope.cancel()
        elif self._has_begun:
            self._scope.deadline = self._stopped + _LAST_HANDSHAKE_SECONDS
        elif self._stopped < math.inf:
            self._scope.deadline = max(self._began + timeouts.LAST_REQUEST_SECONDS, self._stopped + _LAST_LOOK_SECONDS)
