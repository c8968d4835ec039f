"""ClientConnection: HTTP/1.1 from the client's end. Sans-IO.

The owner calls `send_request()`, then `next_event()` until the response has ended. After a `ResponseHead` the owner
says where the body goes, with `receive_body`: an inference response goes to a decoder, everything else to a collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from http import HTTPStatus
from typing import Final, cast

import h11

from streamcodec.engine.errors import (
    FINAL_STATUSES,
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    MessageError,
    RemoteProtocolError,
)
from streamcodec.engine.events import NEED_DATA, NEED_TURN, EndOfMessage, Event, NeedData, NeedTurn
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.connection import Incoming, State
from streamcodec.http.heads.messages import Fields, ResponseHead
from streamcodec.http.heads.parsed import check_head, framing_length, invalid_http, parse_head
from streamcodec.http.heads.plain import read_plain_response
from streamcodec.http.heads.statuses import Field, ends_with_head
from streamcodec.http.methods import BufferUpdated, Feed, GetBuffer, GetBuffers
from streamcodec.http.requests import write_request
from streamcodec.http.writing import PartT

_HEAD: Final = State.HEAD
_DECIDE: Final = State.DECIDE


class ClientConnection:
    """One connection, with one request after the other.

    Attributes:
        get_buffer: memory for the next bytes; see `Incoming.get_buffer`.
        get_buffers: the same, with the memory that is known to follow; see `Incoming.get_buffers`.
        buffer_updated: report that bytes were written there; see `Incoming.buffer_updated`.
        feed: copy bytes that have arrived elsewhere; see `Incoming.feed`.
        receive_eof: report that no more bytes will come; see `Incoming.receive_eof`.
        work: do a piece of long work after `next_event` has returned `NEED_TURN`; see `Incoming.work`.
        incoming: the receiving half, with its counters.
        is_urgent: whether its owner asks for what goes on before others do, as for a health check. The owner sets it.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, paced: bool = False) -> None:
        """Begin before the first request.

        Args:
            limits: bound the heads of responses.
            paced: whether `next_event` asks for turns (`NEED_TURN`) instead of doing long work at once. An event loop
                needs this, because other connections wait meanwhile.
        """
        self._limits = limits
        self._known_h11: h11.Connection | None = None
        self._request: tuple[str, str, list[Field]] = "", "", []
        self._is_kept = True
        self._method: str | None = None
        self._interim_bytes = 0
        self._head: ResponseHead | None = None
        self._failure: MessageError | None = None
        self._is_paced = paced
        self.is_urgent: bool = False
        self.incoming: Incoming = Incoming(limits, paced=paced)
        self.get_buffer: GetBuffer = self.incoming.get_buffer
        self.get_buffers: GetBuffers = self.incoming.get_buffers
        self.buffer_updated: BufferUpdated = self.incoming.buffer_updated
        self.feed: Feed = self.incoming.feed
        self.receive_eof: Callable[[], None] = self.incoming.receive_eof
        self.work: Callable[[], bool] = self.incoming.work

    def send_request(
        self,
        method: str,
        target: str,
        headers: Iterable[Field],
        parts: Iterable[PartT] = (),
    ) -> list[bytes | PartT]:
        """Begin a request.

        Args:
            method: upper case, as `POST`.
            target: path and query, percent-encoded.
            headers: fields; `Host` is required, and `Content-Length` if there is a body.
            parts: the body: byte views, bytes, and `Rows`, which are made while they are sent.

        Returns:
            The head, then the body's parts unchanged, to be sent in this order by one of the `transports`. If sending
            fails, close the connection.

        Raises:
            LocalProtocolError: the last response has not been read to its end, the connection cannot be used again, the
                fields are not valid HTTP, or the method is `CONNECT`.
        """
        if not self.is_reusable:
            msg = "the connection cannot take a request now: read the last response to its end, or open another"
            raise LocalProtocolError(msg)
        return self.resume(method, target, headers, parts)

    def resume(
        self,
        method: str,
        target: str,
        headers: Iterable[Field],
        parts: Iterable[PartT] = (),
    ) -> list[bytes | PartT]:
        """Begin a request that the owner has sent without this connection, and whose answer may have arrived.

        Arguments, result and errors are those of `send_request`; the result has been sent already.
        """
        if method == "CONNECT":
            msg = "CONNECT is not supported: it opens a tunnel, and this connection reads only HTTP"
            raise LocalProtocolError(msg)
        fields = [*headers]
        sent, self._is_kept = write_request(method, target, fields, parts)
        self._request = method, target, fields
        self._known_h11 = None
        self._method = method
        self._interim_bytes = 0
        return sent

    def next_event(self) -> ResponseHead | Event | NeedData | NeedTurn:
        """Return the next event: a `ResponseHead`, then the events of its body's receiver.

        Raises:
            RemoteProtocolError: the response is refused; the connection cannot be used any more.
            LocalProtocolError: no request has been sent, or the response's head needs `receive_body` first.
        """
        if self._failure is not None:
            raise copy(self._failure)
        if self.incoming.is_filling:
            return NEED_DATA
        state = self.incoming.state
        if self._method is None or state is _DECIDE:
            msg = "send_request() comes before next_event(), and receive_body() after a ResponseHead"
            raise LocalProtocolError(msg)
        if state is not _HEAD:
            event = self.incoming.next_body_event()
            if isinstance(event, EndOfMessage):
                self._method = None
                self.incoming.next_cycle()
            return event
        try:
            return self._next_head()
        except MessageError as failure:
            self._failure = copy(failure)
            raise

    def receive_body(self, receiver: Receiver) -> None:
        """Send the body of the response to a receiver.

        Args:
            receiver: a `Decoder`, or a `Collector`.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
            LocalProtocolError: no `ResponseHead` is waiting.
        """
        self.incoming.receive_body(receiver, self._head)

    @property
    def inflates(self) -> bool:
        """Whether many compressed bytes wait; see `Incoming.inflates`."""
        return self.incoming.inflates

    @property
    def is_reusable(self) -> bool:
        """Whether the next request can be sent here; False if unexpected bytes have arrived since the last response."""
        return self._method is None and self._failure is None and self._is_kept and not self.incoming.has_input

    def _next_head(self) -> ResponseHead | NeedData | NeedTurn:
        while (text := self.incoming.find_head()) is not None:
            head = read_plain_response(text, self._limits, is_for_head=self._method == "HEAD")
            if head is not None:
                self.incoming.take_head(len(text))
                return self._begin(head, "1.1")
            check_head(text, self._limits)
            self.incoming.take_head(len(text))
            self._interim_bytes += len(text)
            event = cast("h11.Response | h11.InformationalResponse", parse_head(self._h11, text))
            if isinstance(event, h11.Response):
                return self._begin(self._describe(event), event.http_version.decode("ascii"))
            if event.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
                msg = "the server switches protocols without having been asked"
                raise invalid_http(msg)
            if self._interim_bytes > self._limits.max_head_bytes:
                msg = f"the interim responses have more than {self._limits.max_head_bytes} bytes"
                raise LimitExceededError(msg, limit="max_head_bytes")
            self.incoming.next_cycle()
            if self._is_paced:  # one read may have brought a thousand interim responses
                return NEED_TURN
        if self.incoming.is_eof:
            msg = "the server closed the connection without an answer"
            raise RemoteProtocolError(msg, code=ErrorCode.CONNECTION_CLOSED)
        return NEED_DATA

    def _begin(self, head: ResponseHead, version: str) -> ResponseHead:
        """Begin with a head that has been accepted."""
        self._head = head
        self._is_kept = self._is_kept and version >= "1.1" and not head.fields.closes
        return head

    @property
    def _h11(self) -> h11.Connection:
        """The judge of the responses to the current request whose heads are not plain, made when it is first wanted."""
        if self._known_h11 is None:
            self._known_h11 = h11.Connection(h11.CLIENT)
            method, target, fields = self._request
            named = cast("list[tuple[str, str]]", fields)  # h11 takes each in either form
            self._known_h11.send(h11.Request(method=method, target=target, headers=named))
        return self._known_h11

    def _describe(self, response: h11.Response) -> ResponseHead:
        if response.status_code not in FINAL_STATUSES:
            msg = "the status of the response is not in the range 100 to 599"
            raise invalid_http(msg)
        fields = Fields(tuple(response.headers))
        if self._method == "HEAD" or ends_with_head(response.status_code):
            length: int | None = 0
        else:
            length = framing_length(fields, response.http_version.decode("ascii"), default=None)
        return ResponseHead(status=response.status_code, fields=fields, content_length=length)
