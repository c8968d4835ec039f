"""Recording: what the observers of a guard are told about the requests of one connection. Sans-IO."""

from __future__ import annotations

from contextlib import suppress

from streamcodec.engine.errors import MessageError
from streamcodec.http.connection import Incoming
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.observation import MODEL, SENDING, Observation, Observe
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

    def begin(self, head: RequestHead | None) -> Observation | None:
        """Return the record of the current request, and begin it if there is none; without a head if it was refused."""
        if self._observation is None and self._observe is not None:
            self._observation = self._observe(0)
            if head is not None:
                self._observation.begin(head)
                with suppress(MessageError):  # of another protocol
                    route = find_route(head.target)
                    self._observation.model, self._observation.version = route.model or None, route.version
        return self._observation

    def replies(self, reply: Reply) -> None:
        """Report that the guard answers by itself."""
        if (observation := self.begin(None)) is not None:
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
        end = self._incoming.received - self._incoming.kept
        observation.bytes_in, self._counted_in = end - self._counted_in, end
        observation.bytes_out, self._counted_out = given - self._counted_out, given
        if error is None:
            observation.end()
        else:
            observation.break_off(error)
