"""ServerConnection: HTTP/1.1 from the server's end. Sans-IO.

The owner alternates: `next_event()` until it has a whole request (each `NEED_DATA` asks the transport for bytes), then
`send_response()`. On a `RequestHead` it decides, before a byte of the body is read: `receive_body(decoder)` lets it in,
or a response refuses it. A refusal leaves the connection in a sane state by itself: a short rest of the body is read
and dropped, a long one closes the connection after the response.

States (`Cycle`), beside those of the receiving half (`connection.State`)::

                 send_response() with Rows
    RECEIVING ----------------------------> ANSWERING     events of the same request still come
     ^  |                                    |
     |  | send_response()                    | end_response()
     |  +------------------+-----------------+
     |                     |
     +-- all was read -----+---- a short rest is unread ---> DRAINING
     |                     |                                  |
     |                     +---- a long one, or unknown: the receiving half is CLOSED
     |                                                        |
     +----------------- the rest has come --------------------+

A request that is refused, by what has come or by `give_up`, stays in its state until it is answered: `next_event` says
why it was refused, and after the answer the connection is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

import h11

from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.events import NEED_DATA, NeedData, NeedTurn
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.rows import Rows
from streamcodec.formats.v2.model import Event
from streamcodec.http.body import Receiver
from streamcodec.http.collector import Collector
from streamcodec.http.connection import Incoming, State
from streamcodec.http.heads import parse_head, parse_request, request_head
from streamcodec.http.messages import ConnectionClosed, Fields, RequestHead
from streamcodec.http.methods import BufferUpdated, Feed, GetBuffer, GetBuffers
from streamcodec.http.writing import NOT_HTTP, PartT, length_of, write_message

_PHRASES: Final = {int(status): status.phrase.encode() for status in HTTPStatus}
_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_CONTINUE: Final = h11.InformationalResponse(status_code=100, headers=[], reason=_PHRASES[100])
_HEAD_METHOD: Final = b"HEAD "


class Cycle(Enum):
    """Where a connection is between one request and the next."""

    RECEIVING = auto()
    """Before a request, or within one that has no answer yet."""
    ANSWERING = auto()
    """A response is being sent of which parts are made meanwhile."""
    DRAINING = auto()
    """The request has been answered; the short rest of its body is read and dropped."""


_RECEIVING: Final = Cycle.RECEIVING
_ANSWERING: Final = Cycle.ANSWERING
_DRAINING: Final = Cycle.DRAINING
_HEAD: Final = State.HEAD
_DECIDE: Final = State.DECIDE
_DONE: Final = State.DONE
_FILLING: Final = State.FILLING
_CLOSED: Final = State.CLOSED
"""To look a member up in its class takes as long as three calls, and these are looked up with every event."""


class ServerConnection:
    r"""One connection, as many requests as the client sends.

    Attributes:
        get_buffer: memory for the next bytes, see `Incoming.get_buffer`.
        get_buffers: the same, and what is known to follow it, see `Incoming.get_buffers`.
        buffer_updated: tell that they are there, see `Incoming.buffer_updated`.
        feed: the push face, see `Incoming.feed`.
        receive_eof: tell that no more bytes will come, see `Incoming.receive_eof`.
        work: do a piece of what takes long, when `next_event` has returned `NEED_TURN`, see `Incoming.work`.
        incoming: the receiving half, with its counters.
        has_unread_body: whether the connection is to be closed although the client may still be sending; closing at
            once would then reset it, and the response could be lost on the way.

    Example:
        >>> connection = ServerConnection()
        >>> connection.feed(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        41
        >>> connection.next_event().target
        '/v2/health/live'
        >>> b"".join(connection.send_response(200))
        b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'
        >>> connection.next_event()
        NEED_DATA
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, paced: bool = False) -> None:
        """Begin with the first request.

        Args:
            limits: bound heads, and what is dropped after a refusal.
            paced: whether `next_event` asks for turns, by `NEED_TURN`, instead of doing at once what takes long: for an
                event loop, where others wait meanwhile.
        """
        self._limits = limits
        self._known_h11: h11.Connection | None = None
        self._head: RequestHead | None = None
        self._failure: MessageError | None = None
        self._cycle = _RECEIVING
        self.has_unread_body: bool = False
        self.incoming: Incoming = Incoming(limits, paced=paced)
        self.get_buffer: GetBuffer = self.incoming.get_buffer
        self.get_buffers: GetBuffers = self.incoming.get_buffers
        self.buffer_updated: BufferUpdated = self.incoming.buffer_updated
        self.feed: Feed = self.incoming.feed
        self.receive_eof: Callable[[], None] = self.incoming.receive_eof
        self.work: Callable[[], bool] = self.incoming.work

    def next_event(self) -> RequestHead | ConnectionClosed | Event | NeedData | NeedTurn:
        """Return the next event: a `RequestHead`, then the events of its body's receiver, and so on.

        Raises:
            RemoteProtocolError: the request is refused; `send_response` with its `status_hint` is due.
            LocalProtocolError: the request that has come needs `receive_body` or `send_response` first.
        """
        if self._failure is not None:
            raise self._failure
        if self.incoming.state is _FILLING:
            return NEED_DATA
        if self._cycle is _DRAINING:
            if self.incoming.remaining:
                return NEED_DATA
            self._cycle = _RECEIVING
            self.incoming.next_cycle()
        state = self.incoming.state
        if state is _HEAD:
            return self._next_head()
        if state is _CLOSED:
            return ConnectionClosed()
        if state is _DECIDE or state is _DONE:
            msg = "a request is waiting: receive_body() if it has a body to be read, else send_response()"
            raise LocalProtocolError(msg)
        return self.incoming.next_body_event()

    @property
    def inflates(self) -> bool:
        """Whether the body at hand is compressed; see `Incoming.inflates`."""
        return self.incoming.inflates

    @property
    def missing(self) -> int | None:
        """Bytes of the current request that have not come; None if that is unknown.

        Raises:
            LocalProtocolError: there is none.
        """
        unread = self._unread()
        return None if unread is None else max(0, unread - self.incoming.kept)

    def receive_body(self, receiver: Receiver) -> bytes:
        """Let the body of the request go to a receiver.

        Args:
            receiver: a `Decoder`, or a `Collector`.

        Returns:
            Bytes to be sent now: `100 Continue` if the client waits for it, usually nothing.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
            LocalProtocolError: no `RequestHead` is waiting.
        """
        has_begun = self.incoming.has_input
        self.incoming.receive_body(receiver, self._head)
        if has_begun or not (self._h11.they_are_waiting_for_100_continue and receiver.needs_data):
            return b""
        return self._h11.send(_CONTINUE) or b""

    def send_response(
        self,
        status: int,
        headers: Iterable[tuple[str, str]] = (),
        parts: Iterable[PartT] = (),
    ) -> list[bytes | PartT]:
        """Answer the request, wholly received or not.

        Where a part of the body is made while it is sent, and perhaps of what is still received, the request goes on:
        its events come as before, until `end_response` is called.

        Args:
            status: 200 to 599.
            headers: fields; `Content-Length` is added if it is missing, `Connection: close` if it is needed.
            parts: the body: byte views or bytes, and `Rows`, which are made while they are sent; left out by itself
                where HTTP allows none.

        Returns:
            The head, then the body's parts as they are, to be sent in this order by one of the `transports`. If that
            fails, the connection is to be closed.

        Raises:
            LocalProtocolError: there is no request to be answered, or the fields are not HTTP.
        """
        if self._cycle is _ANSWERING:
            msg = "the request is being answered; end_response() comes before the next response"
            raise LocalProtocolError(msg)
        remaining = self._unread()
        body = list(parts)
        length = length_of(body)
        fields = [*headers]
        if status not in _BODILESS and not any(name.lower() == "content-length" for name, _ in fields):
            fields.append(("Content-Length", str(length)))
        if remaining is None or remaining > self._limits.max_drain_bytes:
            fields.append(("Connection", "close"))
        try:
            response = h11.Response(status_code=status, headers=fields, reason=_PHRASES.get(status, b""))
        except NOT_HTTP as error:
            raise LocalProtocolError(str(error)) from None
        is_for_head = self._is_for_head
        if is_for_head and self._head is None:
            self._known_h11 = _asked_for_head()
        has_body = status not in _BODILESS and not is_for_head
        declared = [int(value) for name, value in response.headers if name == b"content-length"]
        if has_body and declared != [length]:  # h11 would say so too late to be of use for another response
            msg = f"Content-Length is {declared[0]}, the body has {length} bytes"
            raise LocalProtocolError(msg)
        sent = write_message(self._h11, response, body if has_body else [])
        if Rows in map(type, sent):
            self._cycle = _ANSWERING
        else:
            self._go_on(remaining)
        return sent

    def end_response(self) -> None:
        """Tell that a response has been sent of which parts were made meanwhile; without effect on others."""
        if self._cycle is _ANSWERING:
            self._go_on(self._unread())

    def interim(self) -> bytes:
        """Return `100 Continue`, to be sent once more or for the first time; nothing to a client of HTTP/1.0.

        Whoever sends it learns whether the client is still there. It says nothing that a client would have to mind (RFC
        9110, section 15.2: who does not expect it may discard it).

        Raises:
            LocalProtocolError: no request is waiting for its answer.
        """
        self._unread()
        if self._h11.their_http_version != b"1.1":
            return b""
        return self._h11.send(_CONTINUE) or b""

    def give_up(self, failure: MessageError) -> None:
        """Refuse the request for a reason of the owner's, such as time; `send_response` then closes the connection."""
        self._failure = failure

    def _next_head(self) -> RequestHead | ConnectionClosed | NeedData:
        try:
            head = self.incoming.read_head(skips_empty_line=True)
            if head is None:
                if not self.incoming.is_eof:
                    return NEED_DATA
                self.incoming.close()
                return ConnectionClosed()
            self._head = self._parse(head)
        except MessageError as failure:
            self._failure = failure
            raise
        return self._head

    def _parse(self, head: bytes) -> RequestHead:
        request = parse_request(self._h11, head)
        return request_head(
            request.method.decode("ascii"),
            request.target.decode("ascii"),
            Fields(tuple(request.headers)),
            request.http_version.decode("ascii"),
            default=0,
        )

    @property
    def _h11(self) -> h11.Connection:
        """The connection of this cycle, made when it is first wanted: requests that are answered at once need none."""
        if self._known_h11 is None:
            self._known_h11 = h11.Connection(h11.SERVER)
        return self._known_h11

    @property
    def _is_for_head(self) -> bool:
        """Whether it is a `HEAD`, or would have been if it had not been refused: its answer has no body."""
        if self._head is not None:
            return self._head.method == "HEAD"
        return self.incoming.begun(len(_HEAD_METHOD)) == _HEAD_METHOD

    def _unread(self) -> int | None:
        """Return how much of the request has not been read; None if that is unknown."""
        if self._failure is not None:
            return None
        if self._head is None:
            msg = "there is no request to be answered"
            raise LocalProtocolError(msg)
        is_undecided = self.incoming.state is _DECIDE
        length = self._head.content_length if is_undecided else self.incoming.remaining
        if self._head.content_length is None and self.incoming.state is not _DONE:
            return None  # though the last chunk may have come: what follows must not depend on the cut
        # A client that waits for 100 Continue may see the refusal and then not send the body; nobody can tell.
        return None if length and self._h11.they_are_waiting_for_100_continue else length

    def _go_on(self, unread: int | None) -> None:
        """After a response: close, read and drop what is left of the request, or begin the next cycle."""
        self._failure = self._head = None
        self._cycle = _RECEIVING
        # What is unknown because the request was given up meanwhile cannot be skipped either.
        if self._h11.our_state is h11.MUST_CLOSE or unread is None:
            self.has_unread_body = unread != 0
            self.incoming.close()
            return
        self._known_h11 = None
        self.incoming.next_cycle()
        if unread:
            self.incoming.read_body(Collector(0), content_length=unread)
            self._cycle = _DRAINING


def _asked_for_head() -> h11.Connection:
    """Return an h11 connection that knows of a `HEAD`, for a refusal: of the real one it may not have understood that.

    It asks for the connection to be closed, as every refusal of a head does.
    """
    connection = h11.Connection(h11.SERVER)
    parse_head(connection, b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return connection
