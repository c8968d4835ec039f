"""DisconnectWatcher: cancels a model on the event loop if its client has left.

Two cases look the same from here: a client that closes its connection, and a client that closes only its own direction
and still wants its answer. The system reports in both cases that nothing more will come. They differ when they receive
bytes: the second reads them, the system of the first resets the connection. So such a client is sent an interim
response, `100 Continue`, once. Clients ignore it (RFC 9110, section 15.2). A client of HTTP/1.0 must not be sent one,
and is noticed only if it has reset the connection.

One task checks all such calls, four times a second, and ends when there are none. If the connection has reported
the end already, the client is asked at once, and the next checks follow soon. A model in a thread cannot be stopped, so
its client is not checked; that of a request that waits for its batch is.
"""

from __future__ import annotations

from typing import Final

import anyio

from streamcodec.http.server import ServerConnection
from streamcodec.runtime.tasks import Tasks
from streamcodec.server.connection.channels import Channel

_LOOK_SECONDS: Final = 0.25
"""Interval between two checks. A shorter model is never cancelled, and 1,000 checks take a few milliseconds."""

_SOON_SECONDS: Final = (0.0, 0.001, 0.01, 0.1)
"""Intervals after which a client that was asked at once is checked: the answer of its system needs one round trip."""


class WatchedCall:
    """A call of a model whose client is checked.

    Attributes:
        scope: cancelled when the client has left.
        has_left: whether the client has left.
    """

    def __init__(
        self, calls: set[WatchedCall], channel: Channel, connection: ServerConnection, scope: anyio.CancelScope
    ) -> None:
        """Add this call to the calls whose clients are checked."""
        self._calls = calls
        calls.add(self)
        self._channel = channel
        self._connection = connection
        self._is_asked = False
        self.scope = scope
        self.has_left: bool = False

    def forget(self) -> None:
        """Report that the model has returned."""
        self._calls.discard(self)
        del self._channel, self._connection  # a task that sleeps before its next look keeps no memory of the request

    def look(self) -> None:
        """Check the client once."""
        if self._channel.has_left(0):
            self.has_left = True
            self.scope.cancel()
        elif not self._is_asked and self._channel.has_ended():
            self._is_asked = True
            if interim := self._connection.interim():
                self._channel.probe(interim)


class DisconnectWatcher:
    """Checks the clients of all running calls.

    Attributes:
        tasks: where the checking task runs, as long as the server serves.
    """

    def __init__(self) -> None:
        """Begin without calls."""
        self._calls: set[WatchedCall] = set()
        self._is_looking = False
        self.tasks: Tasks | None = None

    def watch(self, channel: Channel, connection: ServerConnection, scope: anyio.CancelScope) -> WatchedCall:
        """Check the client of a call until `forget`. The whole request must have been received."""
        call = WatchedCall(self._calls, channel, connection, scope)
        if self.tasks is not None and not self._is_looking:
            self._is_looking = True
            self.tasks.start_soon(self._look)
        if self.tasks is not None and connection.incoming.is_eof:
            self.tasks.start_soon(self._look_soon, call)
        return call

    async def _look_soon(self, call: WatchedCall) -> None:
        for seconds in _SOON_SECONDS:
            await anyio.sleep(seconds)
            if call not in self._calls or call.has_left:
                return
            call.look()

    async def _look(self) -> None:
        try:
            has_calls = True  # most calls end before this task begins; it must not begin again for each of them
            while has_calls:
                await anyio.sleep(_LOOK_SECONDS)
                for call in [*self._calls]:
                    call.look()
                has_calls = bool(self._calls)
        finally:
            self._is_looking = False
