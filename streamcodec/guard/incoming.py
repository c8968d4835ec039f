"""Incoming: the requests of one connection on the ordinary way. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable

from streamcodec.engine.events import NeedData, NeedTurn
from streamcodec.http.connection import State
from streamcodec.http.messages import HttpEvent
from streamcodec.http.methods import BufferUpdated, GetBuffer, GetBuffers
from streamcodec.http.server import ServerConnection
from streamcodec.server.express import is_urgent


class Incoming:
    """A `ServerConnection` as those see it who share out turns."""

    def __init__(self, connection: ServerConnection) -> None:
        """Begin with the first request."""
        self._connection = connection
        self.get_buffer: GetBuffer = connection.get_buffer
        self.get_buffers: GetBuffers = connection.get_buffers
        self.buffer_updated: BufferUpdated = connection.buffer_updated
        self.receive_eof: Callable[[], None] = connection.receive_eof
        self.work: Callable[[], bool] = connection.work

    @property
    def is_fresh(self) -> bool:
        """Whether the connection has nothing of the next request."""
        incoming = self._connection.incoming
        return incoming.state is State.HEAD and not incoming.kept

    @property
    def is_urgent(self) -> bool:
        """Whether a health check comes or is answered, before others have their turn."""
        return is_urgent(self._connection)

    @property
    def is_idle(self) -> bool:
        """Whether nothing has come of a next request."""
        incoming = self._connection.incoming
        return incoming.state is State.HEAD and not incoming.has_input

    def take(self, data: bytes) -> None:
        """Give bytes to the connection, which has none; nothing is the end of the input."""
        if data:
            self._connection.feed(data)
        else:
            self._connection.receive_eof()

    def next_event(self) -> HttpEvent | NeedData | NeedTurn:
        """Return the next event of the connection.

        Raises:
            RemoteProtocolError: the request is refused.
        """
        return self._connection.next_event()
