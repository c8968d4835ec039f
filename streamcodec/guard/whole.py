"""Whole: short cuts for requests of up to 256 KiB, and for answers of that size. Sans-IO.

Clients repeat themselves. What h11 makes of a head depends only on its bytes, so it is computed once, and cached by
these exact bytes. The same holds for the JSON header of a request, and for the head of an answer. Everything is checked
as on the ordinary way, by the same functions; only results that are known already are not computed again. The tensors
are checked each time.

A request is *whole* if its head is plain (`ServerConnection.take_head`), if it is an inference with a JSON header, and
if this header has come and is correct. Then its tensors are received into memory, checked, and sent with one call. A
GET without a body is whole too; health checks are. Everything else goes the ordinary way: longer requests, other heads,
and what is refused for its head or its JSON header. So the ordinary way makes these refusals. The same holds for an
answer that is long, in chunks, or the last one of its connection.

Most clients send head and body by two calls. So after a head that is known, one more read is awaited.

A field without a meaning for a proxy may have a new value in each request, as a trace id has. Such fields are left out
of the key of a head, and passed on as they came.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Final, Protocol, cast

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, HeaderReceived, NeedData, NeedTurn
from streamcodec.engine.limits import Limits
from streamcodec.engine.placement import uninitialised_bytes, zeros
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.guard.contents import Contents
from streamcodec.guard.crossing import Crossing
from streamcodec.guard.fields import MEANT, RawFields, request_fields, response_fields
from streamcodec.guard.routing import origin_form
from streamcodec.http.client import ClientConnection
from streamcodec.http.collector import Collector
from streamcodec.http.known import KnownBody
from streamcodec.http.messages import ConnectionClosed, HttpEvent, RequestHead, ResponseHead
from streamcodec.http.methods import BufferUpdated, GetBuffer, GetBuffers
from streamcodec.http.server import ServerConnection
from streamcodec.server.express import plain_head

_HEAD_END: Final = b"\r\n\r\n"
_METHODS: Final = (b"POST ", b"GET ")
_MAX_ENTRIES: Final = 256
_MAX_HEAD_BYTES: Final = 2 << 10
_MAX_CLIENT_BYTES: Final = 64
_MAX_HEADER_BYTES: Final = 4 << 10
"""Most bytes of a JSON header on this way. A longer one takes too long to read in one turn of the event loop."""

_MAX_WHOLE_BYTES: Final = (256 << 10) + _MAX_HEADER_BYTES
"""Most bytes of a body on this way. It costs memory, and the server behind gets none of it before all has come."""

_CHECKED_BYTES: Final = 64 << 10

_OTHER_LINES: Final = 2
"""Lines of a head that are no fields: the first one and the last, which is blank."""

_MEANT: Final = b"|".join(sorted(MEANT))
_OPAQUE_FIELD: Final = re.compile(
    rb"\r\n(?!(?:%b):)[a-z][a-z0-9-]*: [!-~]+(?: [!-~]+)*(?=\r\n[^ \t])" % _MEANT, re.ASCII | re.IGNORECASE
)
"""A field that is only passed on, in a simple form that h11 always accepts."""
_OTHER_FIELD: Final = re.compile(rb"\r\n(?!(?:%b):)[^\r]" % _MEANT, re.IGNORECASE)

_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class Bytes(Protocol):
    """What has come on a connection; see `http.connection.Incoming`."""

    def peek(self, most: int) -> bytes:
        """Return the first bytes of the next message."""
        ...

    def peek_from(self, start: int, end: int) -> memoryview:
        """Return others of them."""
        ...


class Whole:
    """A request of moderate size whose head and JSON header were accepted; it takes the place of a `Crossing`.

    Attributes:
        head: of the request, without fields that mean nothing to a proxy.
        text: the bytes of the head.
        beginning: the whole body.
        missing: the end of its memory, which has not come.
        outgoing: the request as it is sent to the server behind, once its tensors were checked.
    """

    __slots__ = ("_contents", "_header_length", "beginning", "head", "missing", "outgoing", "text")

    has_header: Final = True
    rest_bytes: Final = 0

    def __init__(self, known: _Known, text: bytes, come: memoryview, contents: Contents) -> None:
        """Keep what has come of the body."""
        body = uninitialised_bytes(known.length)
        body[: len(come)] = come
        self._contents = contents
        self._header_length = known.header_length
        self.head: RequestHead = known.head
        self.text: bytes = text
        self.beginning: memoryview = body
        self.missing: memoryview = body[len(come) :]
        self.outgoing: list[memoryview] = [memoryview(known.outgoing), body]

    def check(self) -> Iterator[None]:
        """Check the tensors when all has come; yield after each part, because each takes up to 2 ms.

        Raises:
            RemoteProtocolError: a tensor breaks a rule.
        """
        for start in range(self._header_length, len(self.beginning), _CHECKED_BYTES):
            self._contents.check(self.beginning[start : start + _CHECKED_BYTES])
            yield

    def fields(self, host: str, client: str) -> RawFields:
        """Return the fields for the server behind; see `request_fields`."""
        return request_fields(self.head, host=host, client=client, length=len(self.beginning))


class _Known:
    """A head that is known: what it means, and how it begins on its way to the server behind."""

    __slots__ = ("head", "header_length", "length", "outgoing")

    def __init__(self, head: RequestHead, length: int, header_length: int, outgoing: bytes) -> None:
        self.head: RequestHead = head
        self.length: int = length
        self.header_length: int = header_length
        self.outgoing: bytes = outgoing

    def followed_by(self, fields: bytes) -> _Known:
        """Return the same head with more fields, each after a line end."""
        outgoing = b"".join((self.outgoing.removesuffix(_HEAD_END), fields, _HEAD_END))
        return _Known(self.head, self.length, self.header_length, outgoing)


class Requests:
    """Recognizes whole requests; one for all connections of a guard."""

    def __init__(self, limits: Limits, authority: str, prefix: str, *, excluded: frozenset[str] = frozenset()) -> None:
        """Begin with empty caches.

        Args:
            limits: of requests.
            authority: of the server behind.
            prefix: of the paths in the URL of the server behind.
            excluded: targets of requests that go the ordinary way.
        """
        self._excluded = excluded
        self._limits = limits
        self._authority = authority
        self._prefix = prefix
        self._heads: Cache[_Known] = Cache(_MAX_ENTRIES, _MAX_HEAD_BYTES + _MAX_CLIENT_BYTES)
        self._headers: Cache[Sequence[TensorSpec]] = Cache(_MAX_ENTRIES, _MAX_HEADER_BYTES + 64)

    def find(self, incoming: Bytes, client: str) -> Whole | NeedData | None:
        """Recognize the next request by its head and its JSON header. Of tensors that have come whole, check them too.

        Args:
            incoming: of a connection.
            client: address of the client.

        Returns:
            `NEED_DATA` if the head is known, and the JSON header has not come; None if this request goes the ordinary
            way.
        """
        data = incoming.peek(_MAX_HEAD_BYTES)
        if not data.startswith(_METHODS) or (end := data.find(_HEAD_END) + len(_HEAD_END)) < len(_HEAD_END):
            return None
        text = data[:end]
        known = self._head(text, client)
        if known is None:
            return None
        header = bytes(incoming.peek_from(end, end + known.header_length))
        if len(header) < known.header_length:
            return NEED_DATA
        try:
            tensors = self._tensors(known, header) if known.length else ()
            contents = Contents(tensors, len(header), self._limits)
            whole = Whole(known, text, incoming.peek_from(end, end + known.length), contents)
            if not whole.missing:
                deque(whole.check(), 0)
        except MessageError:
            return None
        return whole

    def _head(self, text: bytes, client: str) -> _Known | None:
        """Find a head in the cache, or learn it; None if its requests go the ordinary way."""
        key = b"%b\n%b" % (client.encode(), text)
        known = self._heads.get(key)
        if known is not None:
            return known
        limits = self._limits  # they also bound the fields that are left out
        if len(text) > limits.max_head_bytes or text.count(b"\n") - _OTHER_LINES > limits.max_head_fields:
            return None
        essence, rest = _parted(text)
        essence_key = b"%b\n%b" % (client.encode(), essence)
        known = self._heads.get(essence_key)
        if known is not None:
            return known.followed_by(rest)
        known = self._learn(essence, client)
        if known is None:
            return None
        self._heads.put(essence_key, known)
        known = known.followed_by(rest)
        self._heads.put(key, known)
        return known

    def _learn(self, text: bytes, client: str) -> _Known | None:
        """Read a head."""
        head = plain_head(text, self._limits)
        if head is None or head.target in self._excluded:
            return None
        length = head.content_length or 0
        try:
            is_inference = Crossing(head, self._limits).is_screened
        except MessageError:
            return None
        is_empty = head.method == "GET" and not length  # a health check, or another question
        if not ((is_inference and 0 < length <= _MAX_WHOLE_BYTES) or is_empty):
            return None
        declared = head.fields.header_length
        header_length = length if declared is None else declared
        if header_length > min(_MAX_HEADER_BYTES, length):
            return None
        has_body = bool(head.fields.values(b"content-length"))
        fields = request_fields(head, host=self._authority, client=client, length=length if has_body else None)
        target = origin_form(head.target, self._prefix)
        outgoing = ClientConnection().send_request(head.method, target, fields, [zeros(length)] if length else [])[0]
        return _Known(head, length, header_length, bytes(outgoing))

    def _tensors(self, known: _Known, header: bytes) -> Sequence[TensorSpec]:
        """Return what a JSON header says about the tensors.

        Raises:
            MessageError: it is refused, or does not fit the length of the body.
        """
        declared = known.head.fields.header_length
        key = b"%d %d %b" % (-1 if declared is None else declared, known.length, header)
        tensors = self._headers.get(key)
        if tensors is None:
            decoder = request_decoder(
                header_length=declared, body_length=known.length, limits=self._limits, pause_after_header=True
            )
            decoder.feed(header)
            event = cast("HeaderReceived[RequestHeader]", decoder.next_event())  # the first event, because it is whole
            tensors = event.header.tensors
            self._headers.put(key, tensors)
        return tensors


def _parted(text: bytes) -> tuple[bytes, bytes]:
    """Return a head without the fields that mean nothing to a proxy, and these; all or none of them."""
    essence = _OPAQUE_FIELD.sub(b"", text)
    if _OTHER_FIELD.search(essence):  # in another form; it would change places with one of the same name
        return text, b""
    return essence, b"".join(_OPAQUE_FIELD.findall(text))


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
        """Return a whole request, or the next event of the connection. After a whole request, fill its memory first.

        Raises:
            RemoteProtocolError: the request is refused.
        """
        incoming = self._connection.incoming
        found = self._requests.find(incoming, self._client)
        if found is NEED_DATA and not self.awaits_rest and not incoming.is_eof:
            self.awaits_rest = True
            return NEED_DATA
        self.awaits_rest = False
        if not isinstance(found, Whole):
            return self._connection.next_event()
        come = len(found.beginning) - len(found.missing)
        self._connection.take_head(found.head, found.text)
        self._connection.fill(KnownBody([found.missing] if found.missing else [], offset=come))
        if not found.missing:
            self._connection.next_event()
        return found


class Answer:
    """An answer of moderate size that has come whole.

    Attributes:
        status: of the answer.
        fields: those that are passed on.
        body: its bytes.
    """

    __slots__ = ("body", "fields", "status")

    def __init__(self, status: int, fields: list[tuple[str, str]], body: memoryview) -> None:
        """Store the parts."""
        self.status: int = status
        self.fields: list[tuple[str, str]] = fields
        self.body: memoryview = body


class Answers:
    """Recognizes the heads of answers of moderate size; one for all connections of a guard."""

    def __init__(self, limits: Limits) -> None:
        """Begin with an empty cache; the limits bound heads."""
        self._limits = limits
        self._heads: Cache[tuple[int, list[tuple[str, str]], int]] = Cache(_MAX_ENTRIES, _MAX_HEAD_BYTES)

    def find(self, incoming: Bytes) -> tuple[Answer, int, int] | NeedData | None:
        """Recognize an answer by its head.

        Args:
            incoming: of a connection.

        Returns:
            The answer with memory for all of its body; bytes of its head, and of its body that have come.
            None if it goes the ordinary way.
        """
        data = incoming.peek(_MAX_HEAD_BYTES)
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end < len(_HEAD_END):
            return NEED_DATA if not data else None
        text = data[:end]
        known = self._heads.get(text) or self._learn(text)
        if known is None:
            return None
        status, fields, length = known
        come = incoming.peek_from(end, end + length + 1)
        if len(come) > length:
            return None
        body = uninitialised_bytes(length)
        body[: len(come)] = come
        return Answer(status, fields, body), end, len(come)

    def _learn(self, text: bytes) -> tuple[int, list[tuple[str, str]], int] | None:
        """Read a head, and remember it if it has a body of moderate size and another answer may follow."""
        http = ClientConnection(self._limits)
        http.send_request("POST", "/", [("Host", "x"), ("Content-Length", "0")])
        http.feed(text)
        try:
            head = http.next_event()
            length = head.content_length if isinstance(head, ResponseHead) else None
            if not isinstance(head, ResponseHead) or length is None or head.status in _BODILESS:
                return None
            if length > _MAX_WHOLE_BYTES:
                return None
            http.incoming.read_body(Collector(0), content_length=0)
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
        self._answer: Answer | None = None
        self.get_buffer: GetBuffer = http.get_buffer
        self.get_buffers: GetBuffers = http.get_buffers
        self.buffer_updated: BufferUpdated = http.buffer_updated
        self.receive_eof: Callable[[], None] = http.receive_eof
        self.work: Callable[[], bool] = http.work

    def next_event(self) -> Answer | ConnectionClosed | NeedData:
        """Return the event.

        Raises:
            RemoteProtocolError: the connection has ended within the answer.
        """
        incoming = self._incoming
        if self._answer is None:
            found = None if incoming.is_eof else self._answers.find(incoming)
            if found is NEED_DATA:
                return NEED_DATA
            if found is None:
                return ConnectionClosed()
            self._answer, head_bytes, come = found
            missing = self._answer.body[come:]
            incoming.take_head(head_bytes)
            incoming.fill(KnownBody([missing] if missing else [], offset=come))
        if incoming.is_filling or incoming.next_body_event() is NEED_DATA:
            return NEED_DATA
        incoming.next_cycle()
        return self._answer
