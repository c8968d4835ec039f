"""Departures: clients that leave while a model runs on the event loop, which is then cancelled.

A client that closes its connection and one that only ends its own direction of it, and still wants its answer, look the
same from here: the system tells that nothing more will come. They differ in what they do with bytes that are sent: one
reads them, the system of the other resets the connection. So a client that has ended is sent an interim response, `100
Continue`, once. Clients skip that (RFC 9110, section 15.2). Who has asked in HTTP/1.0 may not be sent one, and is
noticed only where it has reset the connection.

One task looks at all such calls, four times a second, and ends when there are none. A model in a thread cannot be
ended, so nobody looks whether its client has left.
"""

from __future__ import annotations

from typing import Final

import anyio

from streamcodec.http.server import ServerConnection
from streamcodec.server.channels import Channel
from streamcodec.server.tasks import Tasks

_LOOK_SECONDS: Final = 0.25
"""So often clients are looked at: a model that takes less does not notice, and 1,000 looks take a few milliseconds."""


class Call:
    """A call of a model whose client is looked at.

    Attributes:
        scope: cancelled when the client has left.
        has_left: whether that has happened.
    """

    def __init__(
        self, calls: set[Call], channel: Channel, connection: ServerConnection, scope: anyio.CancelScope
    ) -> None:
        """Begin with a client that is there; it is looked at while it is among the calls."""
        self._calls = calls
        calls.add(self)
        self._channel = channel
        self._connection = connection
        self._is_asked = False
        self.scope = scope
        self.has_left: bool = False

    def forget(self) -> None:
        """Tell that the model has returned."""
        self._calls.discard(self)

    def look(self) -> None:
        """Look at the client once."""
        if self._channel.has_left(0):
            self.has_left = True
            self.scope.cancel()
        elif not self._is_asked and self._channel.has_ended():
            self._is_asked = True
            if interim := self._connection.interim():
                self._channel.probe(interim)


class Departures:
    """Looks at the clients of all calls that go on.

    Attributes:
        tasks: where somebody looks, as long as the server serves.
    """

    def __init__(self) -> None:
        """Look at nobody yet."""
        self._calls: set[Call] = set()
        self._is_looking = False
        self.tasks: Tasks | None = None

    def watch(self, channel: Channel, connection: ServerConnection, scope: anyio.CancelScope) -> Call:
        """Look at the client of a call, whose whole request has come, until `forget`."""
        call = Call(self._calls, channel, connection, scope)
        if not self._is_looking and self.tasks is not None:
            self._is_looking = True
            self.tasks.start_soon(self._look)
        return call

    async def _look(self) -> None:
        try:
            while self._calls:
                await anyio.sleep(_LOOK_SECONDS)
                for call in [*self._calls]:
                    call.look()
        finally:
            self._is_looking = False
