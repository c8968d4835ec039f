"""Raw: a request of the caller's own, whose answer is received as the caller likes, whatever its status."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamcodec.client.exchange import ClientExchange
from streamcodec.client.fields import Field
from streamcodec.engine.events import EndOfMessage
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.client import ClientConnection
from streamcodec.http.heads.messages import ConnectionClosed, HttpEvent, RequestHead, ResponseHead

Receive = Callable[[ResponseHead, bool], Receiver]
"""Returns the receiver for the body of an answer. The second argument says whether to make a paced one."""


class RawExchange(ClientExchange):
    """One such request and its answer.

    Attributes:
        events: what the receiver has reported.
    """

    def __init__(
        self,
        method: str,
        target: str,
        fields: Sequence[Field],
        *,
        parts: Sequence[bytes | memoryview],
        limits: Limits,
        receive: Receive,
    ) -> None:
        """Prepare a call."""
        super().__init__(method, target, fields, None, limits, body=parts)
        self._receive = receive
        self.events: list[Event] = []

    def receive(self, connection: ClientConnection, event: HttpEvent) -> Event | None:
        """Take an event of the connection; return it if it is one of the receiver."""
        if isinstance(event, ResponseHead):
            self._head, self.status = event, event.status
            connection.receive_body(self._receive(event, self._paced))
            return None
        if isinstance(event, EndOfMessage):
            self.has_ended = True
        return None if isinstance(event, RequestHead | ConnectionClosed) else event

    def take_whole(self, connection: ClientConnection) -> bool:  # noqa: ARG002 - as its base
        """Return False: the receiver takes the answer in its own way."""
        return False

    def keep(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def check_status(self) -> None:
        """Do nothing: each status is an answer."""

    def refusal(self, error: Exception | None = None) -> None:
        """Return None: an answer that was cut short is no answer."""
