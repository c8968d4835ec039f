"""ClientWaits: the waits of one connection for its client, and how they end early.

A connection waits for what comes before its first request, such as a handshake; for its requests; and at its end, for
the client to read its last answer. The limits of time bound each wait. It ends at once if others need the place of the
connection, because no request can be lost.

If the server stops, a request may be on its way, so a client has a moment for it. Before the first one, a client that
has said nothing has this moment after it has connected, with TLS as without; and one that has begun has the time of a
handshake over a slow link. A server and a guard wait for different things in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import anyio

from streamcodec.http.heads.messages import HttpEvent
from streamcodec.runtime import timeouts
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import Look, ReadTimeout, WriteTimeout
from streamcodec.server.connection.channels import Channel
from streamcodec.server.connection.lingering import UnreadRest
from streamcodec.server.connection.source import RequestSource
from streamcodec.transports.source import EventSource

_LAST_HANDSHAKE_SECONDS: Final = 2.0
"""For what has begun when the server stops: several times around the world, and the work of a small device."""

_LAST_LOOK_SECONDS: Final = 0.01
"""For one more turn of the event loop before a connection is closed because the server stops. A loop that was held up
finds its timers due before it looks for bytes, and a request or a handshake may be there."""

_PreparedT = TypeVar("_PreparedT")


class Wakeable(Protocol):
    """A channel, or another object that waits in its place."""

    def look_again(self) -> None:
        """Look at the time at once."""
        ...


class ClientWaits:
    """The waits of one connection.

    Attributes:
        reading: says how long the client may take to send.
        taking: says how long it may take to read.
        is_waiting: whether another request is awaited, or the rest of one that has been answered.
        is_leaving: whether the connection has to end, because others need its place.
        waiting: what waits then; None before, and afterwards: it may refer to this object.
    """

    def __init__(self, options: ServerOptions, requests: RequestSource) -> None:
        """Begin before the first request; the options limit the time."""
        self._requests = requests
        self._linger_timeout = options.linger_timeout
        self._lingering: anyio.CancelScope | None = None
        self._preparing: anyio.CancelScope | None = None
        self._began = 0.0
        self._has_begun = False
        self._stopped = math.inf
        self._has_looked_again = False
        self.reading: ReadTimeout = ReadTimeout(options, requests)
        self.taking: WriteTimeout = WriteTimeout(options)
        self.is_waiting: bool = True
        self.is_leaving: bool = False
        self.waiting: Wakeable | None = None

    def stop(self) -> None:
        """Wait only a moment for another request."""
        self._stopped = min(self._stopped, anyio.current_time())
        self.reading.hurry()
        self._look_again()

    def leave(self) -> None:
        """Stop waiting, and have the connection closed."""
        self.is_leaving = True
        if self._lingering is not None:  # it may wait for a turn, behind others who do the same
            self._lingering.cancel()
        self._look_again()

    async def prepare(self, prepare: Callable[[], Awaitable[_PreparedT]]) -> _PreparedT:
        """Wait for what comes before the first request.

        Raises:
            ConnectionAbortedError: it has to end before it is done.
        """
        with anyio.CancelScope() as scope:
            self._preparing, self._began = scope, anyio.current_time()
            self._bound()
            prepared = await prepare()
            self._preparing = None
            return prepared
        msg = "the server has ended the connection before its first request"
        raise ConnectionAbortedError(msg)

    def begun(self) -> None:
        """Report that the client has begun with what comes before its first request."""
        self._has_begun = True
        self._bound()

    def look(self, now: float) -> float:
        """Look whether the client still has time for its next request; see `ReadTimeout.look`."""
        if self.is_leaving:
            raise TimeoutError
        try:
            return self.reading.look(now)
        except TimeoutError:
            if self._stopped < math.inf and not self._has_looked_again:
                self._has_looked_again = True
                return _LAST_LOOK_SECONDS
            raise

    async def body_event(self, wait: Callable[[EventSource[HttpEvent], Look], Awaitable[HttpEvent]]) -> HttpEvent:
        """Wait for the next event of the body of a request, as whoever uses the body wants to wait.

        Raises:
            RemoteProtocolError: the body breaks a rule, or comes too slowly.
            OSError: the client has left.
        """
        self.reading.resume()
        try:
            return await wait(self._requests.connection, self.reading.look)
        except TimeoutError:
            raise self._requests.too_slow() from None
        finally:
            self.reading.pause(anyio.current_time())

    async def linger(self, channel: Channel) -> None:
        """Let the client read its answer before the connection is closed, although it is still sending."""
        channel.end()
        self.is_waiting = True
        with suppress(TimeoutError), anyio.move_on_after(self._linger_timeout) as self._lingering:
            await channel.next_event(UnreadRest(), self._look_at_rest)

    def _look_at_rest(self, _: float) -> float:
        if self.is_leaving:
            raise TimeoutError
        return math.inf

    def _look_again(self) -> None:
        self._bound()
        if self.waiting is not None and self.is_waiting:
            self.waiting.look_again()

    def _bound(self) -> None:
        """Bound the wait for what comes before the first request, if that is awaited now."""
        if self._preparing is None:
            return
        if self.is_leaving:
            self._preparing.cancel()
        elif self._has_begun:
            self._preparing.deadline = self._stopped + _LAST_HANDSHAKE_SECONDS
        elif self._stopped < math.inf:
            last = self._began + timeouts.LAST_REQUEST_SECONDS
            self._preparing.deadline = max(last, self._stopped + _LAST_LOOK_SECONDS)
