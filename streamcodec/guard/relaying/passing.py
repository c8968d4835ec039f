"""Passing: what a relay and the connection for which it works tell each other. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from streamcodec.guard.pieces import Pieces
from streamcodec.guard.relaying.pump import PUMP_BYTES
from streamcodec.guard.relaying.requests import PlainAnswer, PlainRequest
from streamcodec.guard.upstream import Held
from streamcodec.http.server import ServerConnection


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

    def comes(self) -> None:
        """Report that a part of a request has come."""
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
