"""Passing: what a relay and the connection for which it works tell each other. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from streamcodec.engine.events import NeedData, NeedTurn
from streamcodec.guard.pieces import Pieces
from streamcodec.guard.relaying.answers import PlainAnswer
from streamcodec.guard.relaying.pump import PUMP_BYTES
from streamcodec.guard.relaying.requests import PlainRequest
from streamcodec.guard.upstream import Held
from streamcodec.http.connection import State
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.http.methods import BufferUpdated, GetBuffer, GetBuffers
from streamcodec.http.server import ServerConnection
from streamcodec.server.connection.requestcache import is_urgent


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A request that a relay has begun to pass on; the task goes on, at these bytes."""

    request: PlainRequest
    """Its head and its JSON header have been sent, or are the first of the `unsent`."""
    held: Held | None
    """The connection on which it was sent; None if the request was refused, or its client has gone."""
    unsent: list[memoryview]
    """Bytes of the request that have come and were not sent."""
    left: int
    """Bytes of its body that have not come."""
    come: bytes
    """Of the answer: what has come, or its head if the relay has begun to pass it back."""
    answer: PlainAnswer | None
    """What has been passed back in part; then the next two matter."""
    answer_unsent: list[memoryview]
    """Bytes of the answer that have come and were not sent."""
    answer_left: int
    """Bytes of its body that have not come."""
    failure: Exception | None
    """Why there is no `held`."""

    has_header: ClassVar[bool] = True


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
    def is_light(self) -> bool:
        """Whether the next event takes no time."""
        return self._connection.incoming.is_light

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


class Passage(Protocol):
    """The connection for which a relay works."""

    def may_begin(self) -> bool:
        """Whether a request may be passed on now, and another one after it."""
        ...

    def may_go_on(self) -> bool:
        """Whether another request may follow the current one."""
        ...

    def has_room(self, nbytes: int) -> bool:
        """Whether the current request may take so much memory in all."""
        ...

    def begins(self, request: PlainRequest) -> None:
        """Report that a request is passed on."""
        ...

    def answers(self, status: int) -> None:
        """Report that an answer is sent."""
        ...

    def ends(self, request: PlainRequest) -> None:
        """Report that the answer has been sent."""
        ...


def catch_up(connection: ServerConnection, passed: Passed) -> None:
    """Have the HTTP connection know of a request that has passed it by.

    Raises:
        MessageError: the request is refused.
        OSError: the client has left.
    """
    request, left = passed.request, passed.left
    length = request.known.length
    connection.feed(request.text)
    connection.take_head(request.known.head, request.text)
    connection.incoming.received += length - left
    rest = Pieces(left, start=length - left, check=request.check, piece_bytes=PUMP_BYTES)
    connection.incoming.read_body(rest, content_length=left)
    if passed.failure is not None:
        raise passed.failure
