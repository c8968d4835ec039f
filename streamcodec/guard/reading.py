"""Reading: a client's request as the guard asks for it, and how far it has come, under the limits of time.

It says whether the client is the reason that a request has ended. It knows nothing of the server behind. It is no part
of the link, because the limits refer to it, and the link to the limits. A link that referred to itself would keep its
last request until the garbage collector comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA, NeedData, NeedTurn, WindowReceived
from streamcodec.engine.limits import Limits
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.passing import Passed
from streamcodec.guard.rules.crossing import Crossing
from streamcodec.http.connection import Incoming
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.runtime.observation import MODEL, SENDING, Observation, Observe
from streamcodec.server.connection.source import RequestSource
from streamcodec.server.connection.waits import ClientWaits
from streamcodec.service.replies import Reply
from streamcodec.service.routes import find_route


class Recording:
    """The record of the current request, if there are observers."""

    def __init__(self, observe: Observe | None, incoming: Incoming) -> None:
        """Begin before the first request.

        Args:
            observe: begins a record; None without observers.
            incoming: counts the bytes that have come.
        """
        self._observe = observe
        self._incoming = incoming
        self._observation: Observation | None = None
        self._counted_in = self._counted_out = 0

    def comes(self) -> Observation | None:
        """Return the record of the current request, whose first bytes have come; begin it if there is none."""
        if self._observation is None and self._observe is not None:
            self._observation = self._observe(0)
        return self._observation

    def begin(self, head: RequestHead) -> None:
        """Report the head of the current request."""
        if (observation := self.comes()) is not None:
            observation.begin(head)
            with suppress(MessageError):  # of another protocol
                route = find_route(head.target)
                observation.model, observation.version = route.model or None, route.version

    def replies(self, reply: Reply) -> None:
        """Report that the guard answers by itself; there is no head if that was refused."""
        if (observation := self.comes()) is not None:
            observation.answered(reply)

    def asks(self) -> None:
        """Report that the server behind is asked."""
        if self._observation is not None:
            self._observation.enter(MODEL)

    def answers(self, status: int) -> None:
        """Report that its answer has begun."""
        if self._observation is not None:
            self._observation.status = status
            self._observation.enter(SENDING)

    def end(self, given: int, error: BaseException | None = None) -> None:
        """Report that the request is over.

        Args:
            given: bytes that the connection has sent so far, for all requests.
            error: that has ended it early.
        """
        observation, self._observation = self._observation, None
        if observation is None:
            return
        kept = self._incoming.kept
        if not (observation.has_begun or observation.status or kept):
            return  # no byte of a request has come: an empty line may come before it
        end = self._incoming.received - (kept if observation.has_begun else 0)
        observation.bytes_in, self._counted_in = end - self._counted_in, end
        observation.bytes_out, self._counted_out = given - self._counted_out, given
        if error is None and observation.status is not None:
            observation.end()
        else:
            observation.break_off(error)


class ClientRequests(RequestSource):
    """The requests of one client.

    Attributes:
        crossing: the current request, from its head to its end.
        recording: its record, from its first byte to the end of its answer.
    """

    def __init__(self, limits: Limits, observe: Observe | None) -> None:
        """Begin before the first request of a connection; `observe` begins a record, if there are observers."""
        super().__init__(limits)
        self.crossing: Crossing | Passed | None = None
        self.recording: Recording = Recording(observe, self.incoming)

    @property
    def has_header(self) -> bool:
        """Whether tensors are awaited, or anything else that has no time limit of its own."""
        return self.crossing is None or self.crossing.has_header

    def next_event(self) -> HttpEvent | NeedData | NeedTurn:
        """Return the next event of the connection.

        Raises:
            RemoteProtocolError: the request is refused.
        """
        event = self.connection.next_event()
        if isinstance(event, RequestHead):
            self.recording.begin(event)
        elif event is NEED_DATA and self.crossing is None and self.incoming.kept:
            self.recording.comes()
        return event


class BodyReader:
    """Reads the bodies of one connection, and knows whose fault it is if one does not come.

    Attributes:
        failure: the client's, if it has ended the current request: its body breaks a rule, or it has left.
    """

    def __init__(self, waits: ClientWaits) -> None:
        """Read the bodies of requests that are waited for in this way."""
        self._waits = waits
        self.failure: OSError | MessageError | None = None

    async def pieces(self, channel: PieceChannel) -> AsyncGenerator[np.ndarray[Any, Any], None]:
        """Yield the bytes of the tensors; the generator ends when the whole body was accepted."""
        with self._noted():
            while isinstance(event := await self._waits.body_event(channel.next_piece), WindowReceived):
                yield event.array

    async def end(self, channel: PieceChannel) -> None:
        """Wait for the end of a body without tensors: only then it was accepted as a whole."""
        with self._noted():
            await self._waits.body_event(channel.next_event)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except (OSError, MessageError) as error:
            self.failure = error
            raise
