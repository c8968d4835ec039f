"""Session: the conversation of one connection with the service. Sans-IO.

A session is an event source like a connection, whose events are not what has come but what is to be done next: send,
have a model called, or close; `NEED_DATA` asks for bytes as ever. Every driver does as it is told, however it waits; so
what a request is answered, and in which order, stands here once. Time is the driver's: one that has waited long enough
says `give_up`.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Final

from streamcodec.core.encoder import Part
from streamcodec.core.errors import ErrorCode, RemoteProtocolError
from streamcodec.core.events import NEED_DATA, EndOfMessage, NeedData
from streamcodec.core.rows import Rows
from streamcodec.http.connection import State
from streamcodec.http.messages import ConnectionClosed, HttpEvent, RequestHead
from streamcodec.http.server import ServerConnection
from streamcodec.server.express import Express, response_head
from streamcodec.service import Inference, Reply, Service, error_reply, unavailable_reply

_SMALL_BYTES: Final = 64 << 10

logger = logging.getLogger(__name__)


class Step(Enum):
    """What a driver does next."""

    SEND = auto()
    """Send `outgoing`, all of it."""
    CALL = auto()
    """Have the model of `inference` called, and hand its reply to `answer`."""
    CLOSE = auto()
    """Close the connection."""


class Admission:
    """Which connections are served, and whether for much longer.

    Attributes:
        is_stopping: whether each connection ends with the request that is under way.
    """

    def __init__(self, max_connections: int) -> None:
        """Serve so many connections at once."""
        self._max_connections = max_connections
        self._served: set[Session] = set()
        self.is_stopping = False

    def admits(self, session: Session) -> bool:
        """Whether the connection is among those served; it stays so until it ends, whoever comes later."""
        if len(self._served) < self._max_connections:
            self._served.add(session)
        return session in self._served

    def keeps(self, session: Session) -> bool:
        """Whether the connection may bring another request."""
        return not self.is_stopping and self.admits(session)

    def forget(self, session: Session) -> None:
        """Give the place of a connection that has ended to others."""
        self._served.discard(session)


class Session:
    """One connection, from its first request to its last.

    Attributes:
        connection: where bytes go and come from.
        inference: waits for its model, after `Step.CALL`.
        outgoing: what is to be sent, after `Step.SEND`.
        is_small: whether that is all there and so little that it may be joined, after `answer_at_once`.
    """

    def __init__(self, service: Service, express: Express, admission: Admission) -> None:
        """Begin before the first request.

        Args:
            service: answers.
            express: answers what is small and known; of the same service.
            admission: is asked before each request whether this connection is served; if not, it is told so and closed.
        """
        self._service = service
        self._express = express
        self._admission = admission
        self._head: RequestHead | None = None
        self.connection = ServerConnection(service.limits)
        self.inference: Inference | None = None
        self.outgoing: list[Part] = []
        self.is_small = False
        self.get_buffer = self.connection.get_buffer
        self.get_buffers = self.connection.get_buffers
        self.buffer_updated = self.connection.buffer_updated
        self.receive_eof = self.connection.receive_eof
        self.pending_work = self.connection.pending_work

    @property
    def is_idle(self) -> bool:
        """Whether no request has begun."""
        incoming = self.connection.incoming
        return incoming.state is State.HEAD and not incoming.has_input

    def answer_at_once(self) -> bool:
        """Answer the next request, if all of it is there and nothing takes long; `outgoing` is the answer then.

        `next_event` does so, too; who is in a hurry saves the rest of it.

        Returns:
            Whether there was such a request.
        """
        incoming = self.connection.incoming
        if incoming.state is not State.HEAD or not incoming.has_input or not self._admission.keeps(self):
            return False
        answer = self._express.reply(incoming)
        if answer is None:
            return False
        head, reply = answer
        reply = self._finished(reply, head)
        self.outgoing = [response_head(reply.status, tuple(reply.headers), reply.body_length), *reply.buffers]
        self.is_small = reply.body_length <= _SMALL_BYTES and Rows not in map(type, reply.buffers)
        return True

    def next_event(self) -> Step | NeedData:
        """Go as far as is possible without waiting, and return what is to be done then."""
        if self.answer_at_once():
            return Step.SEND
        try:
            self.connection.end_response()
            while (event := self.connection.next_event()) is not NEED_DATA:
                if step := self._take(event):
                    return step
        except RemoteProtocolError as error:
            return self.answer(error_reply(error))
        return NEED_DATA

    def answer(self, reply: Reply) -> Step:
        """Answer the current request, whether all of it has been received or not."""
        reply = self._finished(reply, self._head)
        headers = reply.headers if self._admission.keeps(self) else [*reply.headers, ("Connection", "close")]
        self.outgoing = [*self.connection.send_response(reply.status, headers, reply.buffers)]
        self._head = self.inference = None
        return Step.SEND

    def give_up(self) -> Step:
        """Refuse a request that does not come to its end: the driver has waited long enough for more of it."""
        return self.answer(error_reply(self.too_slow()))

    def too_slow(self) -> RemoteProtocolError:
        """Return the error for such a request; the connection is of no further use."""
        part = "head" if self.connection.incoming.state is State.HEAD else "body"
        msg = f"the {part} of the request comes too slowly"
        error = RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408)
        self.connection.give_up(error)
        return error

    def _finished(self, reply: Reply, head: RequestHead | None) -> Reply:
        if reply.cause is not None:
            logger.error("a model failed", exc_info=reply.cause)
        return self._service.finish(reply, head)

    def _take(self, event: HttpEvent) -> Step | None:
        if isinstance(event, RequestHead):
            return self._begin(event)
        if isinstance(event, ConnectionClosed) or self.inference is None:
            return Step.CLOSE
        self.inference.receive(event)
        if self.inference.is_windowed:
            return Step.CALL
        if not isinstance(event, EndOfMessage):
            return None
        return self.answer(self.inference.run()) if self.inference.is_inline else Step.CALL

    def _begin(self, head: RequestHead) -> Step | None:
        self._head = head
        if not self._admission.admits(self):
            return self.answer(unavailable_reply("the server has as many connections as it may have", retry_after=1))
        outcome = self._service.begin(head)
        if isinstance(outcome, Reply):
            return self.answer(outcome)
        self.inference = outcome
        interim = self.connection.receive_body(outcome.decoder)
        if not interim:
            return None
        self.outgoing = [interim]
        return Step.SEND
