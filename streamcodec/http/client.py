"""ClientConnection: HTTP/1.1 from the client's end. Sans-IO.

The owner calls `send_request()`, then `next_event()` until the response has ended. After a `ResponseHead` the owner
says where the body goes, with `receive_body`: an inference response goes to a decoder, everything else to a collector.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.receiving import NEED_DATA, NEED_TURN, EndOfMessage, NeedData, NeedTurn
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.connection import Incoming, State
from streamcodec.http.heads.messages import Event, Fields, ResponseHead
from streamcodec.http.heads.parsed import check_head, framing_length, invalid_http, parse_head
from streamcodec.http.heads.plain import (
    CHUNKED,
    CODING,
    HEADER_LENGTH,
    LENGTH,
    MEDIA_TYPE,
    OPTION,
    OTHER,
    STATUS,
    match_plain_response,
    read_plain_response,
)
from streamcodec.http.heads.statuses import Field, ends_with_head
from streamcodec.http.methods import Receives
from streamcodec.http.requests import RequestForm, write_request
from streamcodec.http.writing import PartT

_HEAD: Final = State.HEAD
_DECIDE: Final = State.DECIDE

_NO_BODY: Final = {None, "HEAD"}
"""What has been asked when there is no response with a body to come."""

_MOST_HEAD_BYTES: Final = 2 << 10
"""The longest head of a response that is taken as a whole, or kept for the next one."""


class PlainHead:
    """The head of a final response, as far as it matters when the body has come, too. Equal texts mean the same.

    Attributes:
        text: the head, up to and including the blank line.
        status: of the response.
        length: bytes of the body; None if this is not how it ends.
        header_lengths: values of `Inference-Header-Content-Length`, at most one.
        media_types: values of `Content-Type`, at most one.
        is_last: whether the server closes the connection.
        form: what a reader has made of `header_lengths` and `media_types`, for the next response with this head.
    """

    __slots__ = ("form", "header_lengths", "is_last", "length", "media_types", "status", "text")

    def __init__(self, found: re.Match[bytes]) -> None:
        """Take the result of the expression for plain heads."""
        self.text: bytes = found[0]
        status, length, header_length, media_type, option = found.group(
            STATUS, LENGTH, HEADER_LENGTH, MEDIA_TYPE, OPTION
        )
        self.status: int = int(status)
        is_elsewhere = found[OTHER] or found[CHUNKED] or found[CODING] or ends_with_head(self.status)
        self.length: int | None = None if length is None or is_elsewhere else int(length)
        self.header_lengths: list[bytes] = [] if header_length is None else [header_length]
        self.media_types: list[bytes] = [] if media_type is None else [media_type]
        self.form: tuple[int | None, str | None] | None = None
        self.is_last: bool = option is not None and len(option) == len(b"close")


class WholeResponse:
    """A plain response that has come as a whole: one final head, and a body whose length it tells.

    Attributes:
        head: of the response.
        body: all of it, in memory that changes with the next read.
    """

    __slots__ = ("body", "head")

    def __init__(self, head: PlainHead, body: memoryview) -> None:
        """Put it together."""
        self.head: PlainHead = head
        self.body: memoryview = body

    @property
    def described(self) -> ResponseHead:
        """The head, with all of its fields."""
        fields = Fields.of_accepted(self.head.text)
        return ResponseHead(status=self.head.status, fields=fields, content_length=len(self.body))


class ClientConnection(Receives):
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
        super().__init__(Incoming(limits, paced=paced))
        self._limits = limits
        self._known_h11: h11.Connection | None = None
        self._request: tuple[str, str, Sequence[Field]] = "", "", ()
        self._is_kept = True
        self._method: str | None = None
        self._interim_bytes = 0
        self._head: ResponseHead | None = None
        self._last: PlainHead | None = None
        self._read: tuple[bytes, bool] | None = None
        self._read_head: ResponseHead | None = None
        self._failure: MessageError | None = None
        self._is_paced = paced
        self.is_urgent: bool = False

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
        self._check_reusable()
        return self.resume(method, target, headers, parts)

    def send_form(
        self, form: RequestForm, length: int, header_length: int | None, parts: Iterable[PartT]
    ) -> list[bytes | PartT]:
        """Begin a request of a form; the result and errors are those of `send_request`.

        Args:
            form: what its head has in common with others.
            length: bytes of the body.
            header_length: as for `RequestForm.head`.
            parts: the body, which has so many bytes.
        """
        self._check_reusable()
        self._begin_cycle("POST", form.target, form.fields)
        self._is_kept = True
        return [form.head(length, header_length), *parts]

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
        self._begin_cycle(method, target, fields)
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

    def whole_response(self) -> WholeResponse | None:
        """Return the response to the request, if it has come as a whole, is plain, and nothing else has come.

        Nothing changes: `take_whole` comes next, or `next_event`, which reads it from the beginning.

        Returns:
            None if `next_event` has to decide: the head is not plain, or some bytes are missing; the body is compressed
            or has no known length; or it is a response to `HEAD`.
        """
        incoming = self.incoming
        if incoming.state is not _HEAD or self._interim_bytes or self._method in _NO_BODY:
            return None
        text = incoming.peek(_MOST_HEAD_BYTES)
        head = self._last
        if head is None or not text.startswith(head.text):  # else the same bytes up to the blank line: the same head
            found = match_plain_response(text, self._limits)
            if found is None:
                return None
            head = self._last = PlainHead(found)
        start, length = len(head.text), head.length
        if length is None or incoming.kept != start + length or start > self._limits.max_field_bytes or incoming.is_eof:
            return None
        return WholeResponse(head, incoming.peek_from(start, start + length))

    def take_whole(self, response: WholeResponse) -> None:
        """Take the response that `whole_response` has returned; its body has been copied."""
        nbytes = len(response.body)
        self.incoming.received_copied += nbytes
        self.incoming.skip(len(response.head.text) + nbytes)
        self._method = None
        self._is_kept = self._is_kept and not response.head.is_last

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
    def is_reusable(self) -> bool:
        """Whether the next request can be sent here; False if unexpected bytes have arrived since the last response."""
        return self._method is None and self._failure is None and self._is_kept and not self.incoming.has_input

    def _check_reusable(self) -> None:
        if not self.is_reusable:
            msg = "the connection cannot take a request now: read the last response to its end, or open another"
            raise LocalProtocolError(msg)

    def _begin_cycle(self, method: str, target: str, fields: Sequence[Field]) -> None:
        self._request = method, target, fields
        self._known_h11 = None
        self._method = method
        self._interim_bytes = 0

    def _next_head(self) -> ResponseHead | NeedData | NeedTurn:
        while (text := self.incoming.find_head()) is not None:
            head = self._plain_head(text)
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

    def _plain_head(self, text: bytes) -> ResponseHead | None:
        """Return a plain head; the same bytes are not read twice in a row, if they answer the same kind of request."""
        is_for_head = self._method == "HEAD"
        if (text, is_for_head) == self._read:
            return self._read_head
        head = read_plain_response(text, self._limits, is_for_head=is_for_head)
        if head is not None and len(text) <= _MOST_HEAD_BYTES:
            self._read, self._read_head = (text, is_for_head), head
        return head

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
