"""ServerConnection: HTTP/1.1 from the server's end. Sans-IO.

The owner calls `next_event()` until it has a whole request; each `NEED_DATA` asks the transport for bytes. Then it
calls `send_response()`. After a `RequestHead` the owner decides, before a byte of the body is read:
`receive_body(decoder)` accepts the body, and a response refuses it. After a refusal the connection handles the unread
body by itself: it reads and drops a short rest, and closes the connection after the response if the rest is long.

States (`Cycle`), beside those of the receiving half (`connection.State`)::

                 send_response() with Rows, begin_response()
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

A request may be refused because of its bytes, or by `give_up`. It then stays in its state until it is answered.
`next_event` raises the reason again, and the connection is closed after the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from enum import Enum, auto
from typing import Final

import h11

from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.receiving import NEED_DATA, NeedData, NeedTurn
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.connection import Incoming, State
from streamcodec.http.heads.messages import ConnectionClosed, Event, Fields, RequestHead
from streamcodec.http.heads.parsed import check_head, parse_request, request_head
from streamcodec.http.heads.plain import read_plain_head
from streamcodec.http.heads.statuses import Field, ends_with_head, fields_for, has_content
from streamcodec.http.methods import Receives
from streamcodec.http.responses import CONTINUE, Response
from streamcodec.http.writing import Framing, PartT, encoded_fields, is_made_while_sent, length_of

_HEAD_METHOD: Final = b"HEAD "
_RESUMPTION: Final = b"HTTP/1.1 104 Upload Resumption Supported\r\n%b\r\n"


class Cycle(Enum):
    """Where a connection is between one request and the next."""

    RECEIVING = auto()
    """Before a request, or within one that has no answer yet."""
    ANSWERING = auto()
    """A response is being sent, and parts of it are still being made."""
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
"""Module constants, because every event uses them: looking a member up in its class takes as long as three calls."""


class ServerConnection(Receives):
    r"""One connection, as many requests as the client sends.

    Attributes:
        get_buffer: memory for the next bytes; see `Incoming.get_buffer`.
        get_buffers: the same, with the memory that is known to follow; see `Incoming.get_buffers`.
        buffer_updated: report that bytes were written there; see `Incoming.buffer_updated`.
        feed: copy bytes that have arrived elsewhere; see `Incoming.feed`.
        receive_eof: report that no more bytes will come; see `Incoming.receive_eof`.
        work: do a piece of long work after `next_event` has returned `NEED_TURN`; see `Incoming.work`.
        incoming: the receiving half, with its counters.
        is_urgent: whether its owner asks for what goes on before others do, as for a health check. The owner sets it.
        has_unread_body: whether the connection is to be closed although the client may still be sending. Closing it at
            once would reset it, and the response could be lost.

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
            limits: bound heads, and the bytes that are dropped after a refusal.
            paced: whether `next_event` asks for turns (`NEED_TURN`) instead of doing long work at once. An event loop
                needs this, because other connections wait meanwhile.
        """
        super().__init__(Incoming(limits, paced=paced))
        self._limits = limits
        self._head: RequestHead | None = None
        self._version = ""
        self._is_asked_to_close = False
        self._is_awaited = False
        self._failure: MessageError | None = None
        self._cycle = _RECEIVING
        self._framing: Framing | None = None
        self._is_last = False
        self._has_content = True
        self.is_urgent: bool = False
        self.has_unread_body: bool = False

    def next_event(self) -> RequestHead | ConnectionClosed | Event | NeedData | NeedTurn:
        """Return the next event: a `RequestHead`, then the events of its body's receiver, and so on.

        Raises:
            RemoteProtocolError: the request is refused; call `send_response` with its `status_hint`.
            LocalProtocolError: the request that has arrived needs `receive_body` or `send_response` first.
        """
        if self._failure is not None:
            raise copy(self._failure)
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

    def take_head(self, head: RequestHead, text: bytes) -> None:
        """Take the next head, which the caller has found with `Incoming.peek` and read. It is as if it were an event.

        Args:
            head: what `read_plain_head` returns.
            text: the head as received, up to and including the blank line.
        """
        self.incoming.take_head(len(text))
        self._begin(head, "1.1")

    def end_plain(self) -> bool:
        """Go on to the next request, if this one has been read, is no `HEAD`, and lets the connection be kept.

        The owner then sends a whole response, as `send_response` would return it.

        Returns:
            Whether that is so; else call `send_response`.
        """
        head = self._head
        if self.incoming.state is not _DONE or self._failure is not None or head is None:
            return False
        if self._is_asked_to_close or head.method == "HEAD":
            return False
        self._go_on(0, is_last=False)
        return True

    @property
    def missing(self) -> int | None:
        """Bytes of the current request that have not arrived; None if that is unknown.

        Raises:
            LocalProtocolError: there is no current request.
        """
        unread = self._unread()
        return None if unread is None else max(0, unread - self.incoming.kept)

    def receive_body(self, receiver: Receiver) -> bytes:
        """Send the body of the request to a receiver.

        Args:
            receiver: a `Decoder`, or a `Collector`.

        Returns:
            Bytes to send now: `100 Continue` if the client waits for it, usually nothing.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
            LocalProtocolError: no `RequestHead` is waiting.
        """
        has_begun = self.incoming.has_input
        self.incoming.receive_body(receiver, self._head)
        if has_begun or not self._is_awaited or not receiver.needs_data:
            return b""
        self._is_awaited = False
        return CONTINUE

    def send_response(
        self,
        status: int,
        headers: Iterable[tuple[str, str]] = (),
        parts: Iterable[PartT] = (),
    ) -> list[bytes | PartT]:
        """Answer the request, even if it has not been received completely.

        If `parts` contain `Rows`, the request goes on while they are made and sent: its events come as before, until
        `end_response` is called.

        Args:
            status: 200 to 599.
            headers: fields; `Content-Length` is added if it is missing, `Connection: close` if it is needed.
            parts: the body: byte views, bytes, and `Rows`, which are made while they are sent. They are left out if
                HTTP allows no content, and so are the fields about it.

        Returns:
            The head, then the body's parts unchanged, to be sent in this order by one of the `transports`. If sending
            fails, close the connection.

        Raises:
            LocalProtocolError: there is no request to answer, or status or fields are not valid HTTP.
        """
        if self._cycle is _ANSWERING:
            msg = "the request is being answered; end_response() comes before the next response"
            raise LocalProtocolError(msg)
        remaining = self._unread()
        body = list(parts) if has_content(status) else []
        length = length_of(body)
        response = self._written(status, headers, length, remaining)
        if ends_with_head(status) or self._is_for_head:
            body, length = [], 0
        elif response.declared != length:
            msg = f"Content-Length is {response.declared}, the body has {length} bytes"
            raise LocalProtocolError(msg)
        framing = response.framing()
        sent = [response.head, *framing.whole(body, length)]
        if is_made_while_sent(body):
            self._framing, self._is_last = framing, response.is_last
            self._cycle = _ANSWERING
        else:
            self._go_on(remaining, is_last=response.is_last)
        return sent

    def begin_response(self, status: int, headers: Iterable[tuple[str, str] | tuple[bytes, bytes]] = ()) -> bytes:
        """Begin a response whose body follows in pieces: `response_piece` for each, then `end_response`.

        Args:
            status: 200 to 599.
            headers: fields. Without `Content-Length` the body is sent in chunks; to a client of HTTP/1.0 it ends with
                the connection. `Connection: close` is added if it is needed. If HTTP allows no content, the fields
                about it are left out, and later all pieces.

        Returns:
            The head, to be sent now. If the body cannot be sent to its end, close the connection.

        Raises:
            LocalProtocolError: there is no request to answer, or status or fields are not valid HTTP.
        """
        if self._cycle is _ANSWERING or self._head is None:
            msg = "begin_response() answers a request, once"
            raise LocalProtocolError(msg)
        self._has_content = has_content(status)
        response = self._written(status, headers, None, self._unread())
        self._framing, self._is_last = response.framing(), response.is_last
        self._cycle = _ANSWERING
        return response.head

    def response_piece(self, part: PartT) -> list[bytes | PartT]:
        """Return the next piece of a body, framed as `begin_response` has announced it.

        Raises:
            LocalProtocolError: no response has begun, or the body is longer than its `Content-Length`.
        """
        if self._framing is None:
            msg = "response_piece() follows begin_response()"
            raise LocalProtocolError(msg)
        return self._framing.piece(part) if self._has_content else []

    def end_response(self) -> bytes:
        """Report that a response with `Rows` has been sent, or all pieces; without effect after other responses.

        Returns:
            Bytes to send now: the end of a body in chunks, else nothing.

        Raises:
            LocalProtocolError: the pieces do not fill the `Content-Length`.
        """
        if self._framing is None:
            return b""
        end = self._framing.end()
        self._is_awaited = False
        self._go_on(self._unread(), is_last=self._is_last)
        return end

    def interim(self) -> bytes:
        """Return `100 Continue`, to be sent for the first time or again; nothing for a client of HTTP/1.0.

        Sending it shows whether the client is still there. It does no harm: a client that does not expect it may
        discard it (RFC 9110, section 15.2).

        Raises:
            LocalProtocolError: no request is waiting for its answer.
        """
        self._unread()
        if self._version != "1.1":
            return b""
        if self._framing is not None:
            msg = "the request is being answered; an interim response comes before that"
            raise LocalProtocolError(msg)
        self._is_awaited = False
        return CONTINUE

    def resumption_supported(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """Return `104 Upload Resumption Supported` (draft-ietf-httpbis-resumable-upload, section 5).

        Args:
            headers: its fields: `Location` and others.

        Returns:
            Bytes to be sent before the response; none for a client of HTTP/1.0.
        """
        return _RESUMPTION % encoded_fields(headers) if self._version == "1.1" else b""

    def drop_body(self) -> None:
        """Drop the rest of the request's body from now on: its receiver goes on with another connection.

        All bytes that have arrived have been reported to the receiver before. The request has no answer.

        Raises:
            LocalProtocolError: there is no current request, or the callbacks of the receiver are running.
        """
        unread = self._unread()
        self.incoming.next_cycle()
        self.incoming.read_body(Collector(0), content_length=unread)

    def give_up(self, failure: MessageError) -> None:
        """Refuse the request for the owner's reason, such as a timeout; `send_response` then closes the connection."""
        self._failure = copy(failure)  # whose traceback, when it is raised, would refer to this object

    def _next_head(self) -> RequestHead | ConnectionClosed | NeedData:
        incoming = self.incoming
        try:
            text = incoming.find_head(skips_empty_line=True)
            if text is None:
                if not incoming.is_eof:
                    return NEED_DATA
                incoming.close()
                return ConnectionClosed()
            head = read_plain_head(text, self._limits)
            if head is None:
                return self._parse(text)
        except MessageError as failure:
            self._failure = copy(failure)
            raise
        self.take_head(head, text)
        return head

    def _parse(self, text: bytes) -> RequestHead:
        """Take a head that is not plain."""
        check_head(text, self._limits)
        self.incoming.take_head(len(text))
        request = parse_request(h11.Connection(h11.SERVER), text)
        version, fields = request.http_version.decode("ascii"), Fields(tuple(request.headers))
        method, target = request.method.decode("ascii"), request.target.decode("ascii")
        head = request_head(method, target, fields, version, default=0)
        self._begin(head, version)
        return head

    def _begin(self, head: RequestHead, version: str) -> None:
        """Begin with a head that has been accepted."""
        self._head = head
        self._version = version
        is_old = version < "1.1"
        self._is_asked_to_close = is_old or head.fields.closes
        self._is_awaited = not is_old and bool(head.fields.values(b"expect"))

    def _written(self, status: int, headers: Iterable[Field], length: int | None, unread: int | None) -> Response:
        """Return a response to the current request, of which so much is unread, even if its head was refused.

        Raises:
            LocalProtocolError: the status or the fields are not valid HTTP.
        """
        fields = headers if has_content(status) else fields_for(status, headers, length)
        return Response(
            status,
            fields,
            length,
            version=self._version,
            is_for_head=self._is_for_head,
            is_asked_to_close=self._is_asked_to_close,
            is_last=unread is None or unread > self._limits.max_drain_bytes,
        )

    @property
    def _is_for_head(self) -> bool:
        """Whether the request is a `HEAD`, even if its head was refused: its answer has no body."""
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
            return None  # though the last chunk may have arrived: the result must not depend on how the bytes were cut
        # A client that waits for 100 Continue may see the refusal and then not send the body. Nobody can know.
        return None if length and self._is_awaited else length

    def _go_on(self, unread: int | None, *, is_last: bool) -> None:
        """After a response: close, read and drop the rest of the request, or begin the next cycle."""
        self._failure = self._head = self._framing = None
        self._version = ""
        self._cycle = _RECEIVING
        # An unknown rest cannot be skipped; neither can the rest of a request that was given up meanwhile.
        if is_last or unread is None:
            self.has_unread_body = unread != 0
            self.incoming.close()
            return
        self.incoming.next_cycle()
        if unread:
            self.incoming.read_body(Collector(0), content_length=unread)
            self._cycle = _DRAINING
