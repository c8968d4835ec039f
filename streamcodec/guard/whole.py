"""Whole: short cuts for small requests that have come whole, and for small answers. Sans-IO.

Clients repeat themselves. What h11 makes of a head depends only on its bytes, so it is computed once, and cached by
these exact bytes. The same holds for the JSON header of a request, and for the head of an answer. Everything is checked
as on the ordinary way, by the same functions; only results that are known already are not computed again. The tensors
are checked each time.

A request is *whole* if its head is plain (`ServerConnection.take_head`), if it is an inference with a JSON header, and
if all of it has come and is correct. Everything else goes the ordinary way: longer requests, other heads, and what is
refused. So the ordinary way makes all refusals. The same holds for an answer that is long, in chunks, or the last one
of its connection.

Most clients send head and body by two calls. So after a head that is known, one more read is awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, cast

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, HeaderReceived, NeedData, NeedTurn
from streamcodec.engine.limits import Limits
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.guard.contents import Contents
from streamcodec.guard.crossing import Crossing
from streamcodec.guard.fields import RawFields, request_fields, response_fields
from streamcodec.guard.routing import origin_form
from streamcodec.http.client import ClientConnection
from streamcodec.http.collector import Collector
from streamcodec.http.messages import ConnectionClosed, HttpEvent, RequestHead, ResponseHead
from streamcodec.http.methods import BufferUpdated, GetBuffer, GetBuffers
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.http.server import ServerConnection
from streamcodec.server.express import plain_head

_HEAD_END: Final = b"\r\n\r\n"
_POST: Final = b"POST "
_MAX_ENTRIES: Final = 256
_MAX_KEY_BYTES: Final = 2 << 10
_MAX_HEADER_BYTES: Final = 4 << 10
"""Most bytes of a JSON header on this way. A longer one takes too long to read in one turn of the event loop."""

_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class Whole:
    """A small request that has come whole, and was accepted; it takes the place of a `Crossing`.

    Attributes:
        head: of the request.
        text: its bytes.
        beginning: its body.
        outgoing: the request as it is sent to the server behind.
    """

    __slots__ = ("beginning", "head", "outgoing", "text")

    has_header: Final = True
    rest_bytes: Final = 0

    def __init__(self, head: RequestHead, text: bytes, outgoing: bytes, body: bytes) -> None:
        """Store the parts."""
        self.head: RequestHead = head
        self.text: bytes = text
        self.beginning: bytes = body
        self.outgoing: bytes = outgoing + body

    def fields(self, host: str, client: str) -> RawFields:
        """Return the fields for the server behind; see `request_fields`."""
        return request_fields(self.head, host=host, client=client, length=len(self.beginning))


class _Known:
    """A head that is known: what it means, and how it begins on its way to the server behind."""

    __slots__ = ("head", "length", "outgoing")

    def __init__(self, head: RequestHead, length: int, outgoing: bytes) -> None:
        self.head = head
        self.length = length
        self.outgoing = outgoing


class Requests:
    """Recognizes whole requests; one for all connections of a guard."""

    def __init__(self, limits: Limits, authority: str, prefix: str) -> None:
        """Begin with empty caches.

        Args:
            limits: of requests.
            authority: of the server behind.
            prefix: of the paths in the URL of the server behind.
        """
        self._limits = limits
        self._authority = authority
        self._prefix = prefix
        self._heads: Cache[_Known] = Cache(_MAX_ENTRIES, _MAX_KEY_BYTES)
        self._headers: Cache[Sequence[TensorSpec]] = Cache(_MAX_ENTRIES, _MAX_HEADER_BYTES + 64)

    def find(self, data: bytes, client: str) -> Whole | NeedData | None:
        """Recognize the request at the start of what has come.

        Args:
            data: what has come.
            client: address of the client.

        Returns:
            `NEED_DATA` if the head is known, and the rest has not come; None if this request goes the ordinary way.
        """
        if not data.startswith(_POST) or (end := data.find(_HEAD_END) + len(_HEAD_END)) < len(_HEAD_END):
            return None
        text = data[:end]
        key = b"%b\n%b" % (client.encode(), text)
        known = self._heads.get(key) or self._learn(key, text, client)
        if known is None:
            return None
        body = data[end : end + known.length]
        if len(body) < known.length:
            return NEED_DATA
        return Whole(known.head, text, known.outgoing, body) if self._accepts(known.head, body) else None

    def _learn(self, key: bytes, text: bytes, client: str) -> _Known | None:
        """Read a head, and remember it if its requests may be whole."""
        head = plain_head(text, self._limits)
        if head is None:
            return None
        length = head.content_length or 0
        try:
            if not Crossing(head, self._limits).is_screened or not 0 < length <= SCRATCH_BYTES - len(text):
                return None
        except MessageError:
            return None
        fields = request_fields(head, host=self._authority, client=client, length=length)
        target = origin_form(head.target, self._prefix)
        outgoing = bytes(ClientConnection().send_request(head.method, target, fields, [bytes(length)])[0])
        known = _Known(head, length, outgoing)
        self._heads.put(key, known)
        return known

    def _accepts(self, head: RequestHead, body: bytes) -> bool:
        """Whether a body is correct."""
        header_length = head.fields.header_length
        text = body if header_length is None else body[:header_length]
        if len(text) > _MAX_HEADER_BYTES:
            return False
        key = b"%d %d %b" % (-1 if header_length is None else header_length, len(body), text)
        try:
            tensors = self._headers.get(key)
            if tensors is None:
                tensors = self._read(head, body)
                self._headers.put(key, tensors)
            contents, rest = Contents(tensors, len(text), self._limits), memoryview(body)[len(text) :]
            contents.check(rest)
        except MessageError:
            return False
        return contents.nbytes == len(rest)

    def _read(self, head: RequestHead, body: bytes) -> Sequence[TensorSpec]:
        """Read a JSON header.

        Raises:
            MessageError: it is refused.
        """
        decoder = request_decoder(
            header_length=head.fields.header_length,
            body_length=len(body),
            limits=self._limits,
            pause_after_header=True,
        )
        decoder.feed(body)
        event = cast("HeaderReceived[RequestHeader]", decoder.next_event())  # the first event, because it is whole
        return event.header.tensors


class Incoming:
    """The requests of one connection: whole ones, and all others. It takes the place of a `ServerConnection`.

    Attributes:
        awaits_rest: whether the head of a request has come, and its body is awaited.
    """

    def __init__(self, connection: ServerConnection, requests: Requests, client: str) -> None:
        """Begin with the first request."""
        self._connection = connection
        self._requests = requests
        self._client = client
        self.awaits_rest: bool = False
        self.get_buffer: GetBuffer = connection.get_buffer
        self.get_buffers: GetBuffers = connection.get_buffers
        self.buffer_updated: BufferUpdated = connection.buffer_updated
        self.receive_eof: Callable[[], None] = connection.receive_eof
        self.work: Callable[[], bool] = connection.work

    def next_event(self) -> Whole | HttpEvent | NeedData | NeedTurn:
        """Return a whole request, or the next event of the connection.

        Raises:
            RemoteProtocolError: the request is refused.
        """
        incoming = self._connection.incoming
        found = self._requests.find(incoming.peek(), self._client)
        if found is NEED_DATA and not self.awaits_rest and not incoming.is_eof:
            self.awaits_rest = True
            return NEED_DATA
        self.awaits_rest = False
        if not isinstance(found, Whole):
            return self._connection.next_event()
        self._connection.take_head(found.head, found.text)
        self._connection.receive_body(Collector(len(found.beginning)))
        self._connection.next_event()
        return found


class Answer:
    """A small answer that has come whole.

    Attributes:
        status: of the answer.
        fields: those that are passed on.
        body: its bytes.
    """

    __slots__ = ("body", "fields", "status")

    def __init__(self, status: int, fields: list[tuple[str, str]], body: bytes) -> None:
        """Store the parts."""
        self.status: int = status
        self.fields: list[tuple[str, str]] = fields
        self.body: bytes = body


class Answers:
    """Recognizes small answers; one for all connections of a guard."""

    def __init__(self, limits: Limits) -> None:
        """Begin with an empty cache; the limits bound heads."""
        self._limits = limits
        self._heads: Cache[tuple[int, list[tuple[str, str]], int]] = Cache(_MAX_ENTRIES, _MAX_KEY_BYTES)

    def find(self, data: bytes) -> Answer | NeedData | None:
        """Recognize an answer in what has come; None if it goes the ordinary way."""
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end < len(_HEAD_END):
            return NEED_DATA if not data else None
        text = data[:end]
        known = self._heads.get(text) or self._learn(text)
        if known is None:
            return None
        status, fields, length = known
        if len(data) < end + length:
            return NEED_DATA
        return Answer(status, fields, data[end:]) if len(data) == end + length else None

    def _learn(self, text: bytes) -> tuple[int, list[tuple[str, str]], int] | None:
        """Read a head, and remember it if it has a short body and another answer may follow."""
        http = ClientConnection(self._limits)
        http.send_request("POST", "/", [("Host", "x"), ("Content-Length", "0")])
        if http.feed(text) < len(text):
            return None
        try:
            head = http.next_event()
            length = head.content_length if isinstance(head, ResponseHead) else None
            if not isinstance(head, ResponseHead) or length is None or head.status in _BODILESS:
                return None
            if length > SCRATCH_BYTES - len(text):
                return None
            http.incoming.read_body(Collector(0), content_length=length)
            http.feed(bytes(length))
            fields = [(name.decode(), value.decode("ascii")) for name, value in response_fields(head, is_last=False)]
            if not isinstance(http.next_event(), EndOfMessage) or not http.is_reusable:
                return None
        except (MessageError, UnicodeDecodeError):
            return None
        known = head.status, fields, length
        self._heads.put(text, known)
        return known


class Asked:
    """The answer to a whole request, as a source of one event.

    The event is an `Answer`; or `ConnectionClosed` if the answer goes the ordinary way, which begins at its first byte.
    """

    def __init__(self, http: ClientConnection, answers: Answers) -> None:
        """Begin before the answer."""
        self._incoming = http.incoming
        self._answers = answers
        self.get_buffer: GetBuffer = http.get_buffer
        self.get_buffers: GetBuffers = http.get_buffers
        self.buffer_updated: BufferUpdated = http.buffer_updated
        self.receive_eof: Callable[[], None] = http.receive_eof
        self.work: Callable[[], bool] = http.work

    def next_event(self) -> Answer | ConnectionClosed | NeedData:
        """Return the event."""
        incoming = self._incoming
        data = incoming.peek()
        found = None if incoming.is_eof else self._answers.find(data)
        if found is NEED_DATA:
            return NEED_DATA
        if not isinstance(found, Answer):
            return ConnectionClosed()
        incoming.skip(len(data))
        return found
