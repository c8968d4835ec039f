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

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from typing import Final, cast

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
from streamcodec.http.known import KnownBody
from streamcodec.http.messages import ConnectionClosed, Fields, RequestHead
from streamcodec.http.methods import BufferUpdated, Feed, GetBuffer, GetBuffers
from streamcodec.http.writing import NOT_HTTP, PartT, length_of, write_end, write_message, write_piece

_PHRASES: Final = {int(status): status.phrase.encode() for status in HTTPStatus}
_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_CONTINUE: Final = h11.InformationalResponse(status_code=100, headers=[], reason=_PHRASES[100])
_HEAD_METHOD: Final = b"HEAD "
_PLAIN_REQUEST: Final = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_FRAMING_FIELDS: Final = {"connection", "transfer-encoding"}
_MAX_RESPONSE_HEADS: Final = 512
"""Heads of responses in the cache: those of one second, whose date they have."""


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


class ServerConnection:
    r"""One connection, as many requests as the client sends.

    Attributes:
        get_buffer: memory for the next bytes; see `Incoming.get_buffer`.
        get_buffers: the same, with the memory that is known to follow; see `Incoming.get_buffers`.
        buffer_updated: report that bytes were written there; see `Incoming.buffer_updated`.
        feed: copy bytes that have arrived elsewhere; see `Incoming.feed`.
        receive_eof: report that no more bytes will come; see `Incoming.receive_eof`.
        work: do a piece of long work after `next_event` has returned `NEED_TURN`; see `Incoming.work`.
        incoming: the receiving half, with its counters.
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
        self._limits = limits
        self._known_h11: h11.Connection | None = None
        self._head: RequestHead | None = None
        self._plain_head: bytes | None = None
        self._failure: MessageError | None = None
        self._cycle = _RECEIVING
        self._is_in_pieces = False
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
        """Take the next head without parsing it: the effect is that of `next_event`.

        The caller has recognized the head in `Incoming.peek`. It is *plain*: its version is HTTP/1.1, its method is
        neither `HEAD` nor `CONNECT`, its body is not chunked, and it has neither `Expect` nor a `Connection` other than
        `keep-alive`.

        Args:
            head: what `next_event` would return.
            text: the head as received, up to and including the blank line.
        """
        self.incoming.take_head(len(text))
        self._head = head
        self._plain_head = text

    def fill(self, body: KnownBody) -> None:
        """Send the rest of the body of the head of `take_head` to memory; see `Incoming.fill`."""
        self.incoming.fill(body)

    def end_plain(self) -> bool:
        """Go on to the next request, if this one has a plain head (`take_head`) and its body has been read.

        The owner then sends a whole answer with the status 200, as `send_response` would return it.

        Returns:
            Whether that is so; else call `send_response`.
        """
        if self.incoming.state is not _DONE or self._failure is not None or not self._is_plain:
            return False
        self._head = self._plain_head = None
        self.incoming.next_cycle()
        return True

    @property
    def inflates(self) -> bool:
        """Whether the body at hand is compressed; see `Incoming.inflates`."""
        return self.incoming.inflates

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
        if has_begun or self._plain_head is not None:
            return b""
        if not (self._h11.they_are_waiting_for_100_continue and receiver.needs_data):
            return b""
        return self._h11.send(_CONTINUE) or b""

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
                HTTP allows no body.

        Returns:
            The head, then the body's parts unchanged, to be sent in this order by one of the `transports`. If sending
            fails, close the connection.

        Raises:
            LocalProtocolError: there is no request to answer, or the fields are not valid HTTP.
        """
        if self._cycle is _ANSWERING:
            msg = "the request is being answered; end_response() comes before the next response"
            raise LocalProtocolError(msg)
        remaining = self._unread()
        body = list(parts)
        length = length_of(body)
        fields = [*headers]
        named = {name.lower(): value for name, value in fields}
        if status not in _BODILESS and "content-length" not in named:
            fields.append(("Content-Length", str(length)))
        if remaining is None or remaining > self._limits.max_drain_bytes:
            fields.append(("Connection", "close"))
        elif remaining == 0 and self._is_plain and _has_plain_form(status, named, body, str(length)):
            beginning = plain_response_head(status, tuple(fields))
            self._go_on(remaining)
            return [beginning, *body]
        response = _response(status, fields)
        is_for_head = self._is_for_head
        if is_for_head and self._head is None:
            self._known_h11 = _asked_for_head()
        has_body = status not in _BODILESS and not is_for_head
        declared = [int(value) for name, value in response.headers if name == b"content-length"]
        if has_body and declared != [length]:  # h11 would report this when it is too late for another response
            msg = f"Content-Length is {declared[0]}, the body has {length} bytes"
            raise LocalProtocolError(msg)
        sent = write_message(self._h11, response, body if has_body else [])
        if Rows in map(type, sent):
            self._cycle = _ANSWERING
        else:
            self._go_on(remaining)
        return sent

    def begin_response(self, status: int, headers: Iterable[tuple[str, str] | tuple[bytes, bytes]] = ()) -> bytes:
        """Begin a response whose body follows in pieces: `response_piece` for each, then `end_response`.

        Args:
            status: 200 to 599.
            headers: fields. Without `Content-Length` the body is sent in chunks; to a client of HTTP/1.0 it ends with
                the connection. `Connection: close` is added if it is needed.

        Returns:
            The head, to be sent now. If the body cannot be sent to its end, close the connection.

        Raises:
            LocalProtocolError: there is no request to answer, or the fields are not valid HTTP.
        """
        if self._cycle is _ANSWERING or self._head is None:
            msg = "begin_response() answers a request, once"
            raise LocalProtocolError(msg)
        remaining = self._unread()
        fields = [*headers]
        if remaining is None or remaining > self._limits.max_drain_bytes:
            fields.append(("Connection", "close"))
        beginning = self._h11.send(_response(status, fields)) or b""
        self._cycle = _ANSWERING
        self._is_in_pieces = True
        return beginning

    def response_piece(self, part: PartT) -> list[bytes | PartT]:
        """Return the next piece of a body, framed as `begin_response` has announced it.

        Raises:
            LocalProtocolError: no response has begun, or the body is longer than its `Content-Length`.
        """
        return write_piece(self._h11, part)

    def end_response(self) -> bytes:
        """Report that a response with `Rows` has been sent, or all pieces; without effect after other responses.

        Returns:
            Bytes to send now: the end of a body in chunks, else nothing.

        Raises:
            LocalProtocolError: the pieces do not fill the `Content-Length`.
        """
        if self._cycle is not _ANSWERING:
            return b""
        end = write_end(self._h11) if self._is_in_pieces else b""
        self._is_in_pieces = False
        self._go_on(self._unread())
        return end

    def interim(self) -> bytes:
        """Return `100 Continue`, to be sent for the first time or again; nothing for a client of HTTP/1.0.

        Sending it shows whether the client is still there. It does no harm: a client that does not expect it may
        discard it (RFC 9110, section 15.2).

        Raises:
            LocalProtocolError: no request is waiting for its answer.
        """
        self._unread()
        if self._h11.their_http_version != b"1.1":
            return b""
        return self._h11.send(_CONTINUE) or b""

    def resumption_supported(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """Return `104 Upload Resumption Supported` (draft-ietf-httpbis-resumable-upload, section 5).

        Args:
            headers: its fields: `Location` and others.

        Returns:
            Bytes to be sent before the response; none for a client of HTTP/1.0.
        """
        if self._h11.their_http_version != b"1.1":
            return b""
        fields = cast("list[tuple[bytes, bytes]]", [*headers])  # h11 takes text, too
        interim = h11.InformationalResponse(status_code=104, headers=fields, reason=b"Upload Resumption Supported")
        return self._h11.send(interim) or b""

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
        try:
            head = self.incoming.read_head(skips_empty_line=True)
            if head is None:
                if not self.incoming.is_eof:
                    return NEED_DATA
                self.incoming.close()
                return ConnectionClosed()
            self._head = self._parse(head)
        except MessageError as failure:
            self._failure = copy(failure)
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
            if self._plain_head is not None:
                parse_request(self._known_h11, self._plain_head)
        return self._known_h11

    @property
    def _is_plain(self) -> bool:
        """Whether the head of the request is plain (`take_head`), and nothing has been sent since."""
        return self._plain_head is not None and self._known_h11 is None

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
        return None if length and self._h11.they_are_waiting_for_100_continue else length

    def _go_on(self, unread: int | None) -> None:
        """After a response: close, read and drop the rest of the request, or begin the next cycle."""
        must_close = not self._is_plain and self._h11.our_state is h11.MUST_CLOSE
        self._failure = self._head = self._plain_head = None
        self._cycle = _RECEIVING
        # An unknown rest cannot be skipped; neither can the rest of a request that was given up meanwhile.
        if must_close or unread is None:
            self.has_unread_body = unread != 0
            self.incoming.close()
            return
        self._known_h11 = None
        self.incoming.next_cycle()
        if unread:
            self.incoming.read_body(Collector(0), content_length=unread)
            self._cycle = _DRAINING


def _response(status: int, fields: Sequence[tuple[str, str] | tuple[bytes, bytes]]) -> h11.Response:
    """Return the head of a response.

    Raises:
        LocalProtocolError: the fields are not valid HTTP.
    """
    try:
        headers = cast("list[tuple[str, str]]", fields)  # h11 takes each in either form
        return h11.Response(status_code=status, headers=headers, reason=_PHRASES.get(status, b""))
    except NOT_HTTP as error:
        raise LocalProtocolError(str(error)) from None


def _has_plain_form(status: int, named: dict[str, str], body: list[PartT], length: str) -> bool:
    """Whether a response has a body that exists already, and no field that changes its end or the connection.

    Args:
        status: of the response.
        named: the fields of its owner, by their names in lower case.
        body: its parts.
        length: of the body, in bytes.
    """
    is_usual = _FRAMING_FIELDS.isdisjoint(named) and named.get("content-length", length) == length
    return is_usual and status not in _BODILESS and Rows not in map(type, body)


@lru_cache(maxsize=_MAX_RESPONSE_HEADS)
def plain_response_head(status: int, fields: tuple[tuple[str, str], ...]) -> bytes:
    """Return the head of a response to a plain request (`ServerConnection.take_head`), as h11 writes it.

    Args:
        status: with a body: neither 204 nor 304.
        fields: all of them, `Content-Length` included.

    Raises:
        LocalProtocolError: the fields are not valid HTTP.
    """
    connection = h11.Connection(h11.SERVER)
    parse_head(connection, _PLAIN_REQUEST)
    return connection.send(_response(status, [*fields])) or b""


def _asked_for_head() -> h11.Connection:
    """Return an h11 connection that has seen a `HEAD`, to answer a head that the real one may not have understood.

    Its request asks to close the connection, as every refusal of a head does.
    """
    connection = h11.Connection(h11.SERVER)
    parse_head(connection, b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return connection
