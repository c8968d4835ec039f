"""Raw: a request of the caller's own, whose answer is received as the caller likes, whatever its status."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamcodec.client.exchange import ClientExchange
from streamcodec.client.fields import Field
from streamcodec.client.lane.tensors import Lane
from streamcodec.engine.events import EndOfMessage
from streamcodec.engine.limits import Limits
from streamcodec.engine.message import Part
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.client import ClientConnection, WholeResponse
from streamcodec.http.heads.messages import ConnectionClosed, HttpEvent, RequestHead, ResponseHead
from streamcodec.http.requests import RequestForm

Receive = Callable[[ResponseHead, bool], Receiver]
"""Returns the receiver for the body of an answer. The second argument says whether to make a paced one."""

TakeWhole = Callable[[WholeResponse], bool]
"""Takes an answer that has come as a whole, or returns False to have it received. It keeps nothing of the memory."""


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
        take: TakeWhole | None = None,
        form: RequestForm | None = None,
        header_length: int | None = None,
    ) -> None:
        """Prepare a call; with a form, its head has no fields but those of the form and the lengths."""
        super().__init__(method, target, fields, None, limits, form=form, body=parts)
        self._header_length = header_length
        self._receive = receive
        self._take = take

    def forget(self) -> None:
        """Go back to before the first `start`, for another attempt."""
        super().forget()
        self.events: list[Event] = []

    def start(self, connection: ClientConnection, *, paced: bool = False, lane: Lane | None = None) -> list[Part]:
        """Begin on a connection; see `ClientExchange.start`."""
        if self._form is None:
            return super().start(connection, paced=paced, lane=lane)
        self._begin(connection, paced=paced)
        return [*connection.send_form(self._form, sum(map(len, self._body)), self._header_length, self._body)]

    def receive(self, connection: ClientConnection, event: HttpEvent) -> Event | None:
        """Take an event of the connection; return it if it is one of the receiver."""
        if isinstance(event, ResponseHead):
            self._head, self.status = event, event.status
            connection.receive_body(self._receive(event, self._paced))
            return None
        if isinstance(event, EndOfMessage):
            self.has_ended = True
        return None if isinstance(event, RequestHead | ConnectionClosed) else event

    def take_whole(self, connection: ClientConnection) -> bool:
        """Have the answer taken, if it has come as a whole and somebody takes it; return whether it was taken."""
        response = None if self._take is None else connection.whole_response()
        if response is None or self._take is None or not self._take(response):
            return False
        self.status = response.head.status
        connection.take_whole(response)
        self.has_ended = True
        return True

    def keep(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def check_status(self) -> None:
        """Do nothing: each status is an answer."""

    def refusal(self, error: Exception | None = None) -> None:
        """Return None: an answer that was cut short is no answer."""
