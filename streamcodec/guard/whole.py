"""Whole: short cuts for requests of up to 256 KiB. Sans-IO. For answers of that size see `answers`.

Clients repeat themselves. What h11 makes of a head depends only on its bytes, so it is computed once, and cached by
these exact bytes. The same holds for the JSON header of a request, and for the head of an answer. Everything is checked
as on the ordinary way, by the same functions; only results that are known already are not computed again. The tensors
are checked each time.

A request is *whole* if its head is plain (`ServerConnection.take_head`), if it is an inference with a JSON header, and
if this header has come and is correct. Then its tensors are received into memory, checked, and sent with one call. A
GET without a body is whole too; health checks are. Everything else goes the ordinary way: longer requests, other heads,
and what is refused for its head or its JSON header. So the ordinary way makes these refusals.

Most clients send head and body by two calls. So after a head that is known, one more read is awaited.

Requests and answers that come *alone*, in at most one read and with nothing behind them, need no HTTP connection at all
(`find_alone`): their bytes are passed on by `relay`.

A field without a meaning for a proxy may have a new value in each request, as a trace id has. Such fields are left out
of the key of a head, and passed on as they came.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, cast

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA, HeaderReceived, NeedData, NeedTurn
from streamcodec.engine.limits import Limits
from streamcodec.engine.placement import uninitialised_bytes, zeros
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.guard.contents import Contents, has_checks
from streamcodec.guard.crossing import Crossing
from streamcodec.guard.fields import MEANT, RawFields, request_fields
from streamcodec.guard.routing import origin_form
from streamcodec.http.client import ClientConnection
from streamcodec.http.connection import State
from streamcodec.http.known import KnownBody
from streamcodec.http.messages import HttpEvent, RequestHead
from streamcodec.http.methods import BufferUpdated, GetBuffer, GetBuffers
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.http.server import ServerConnection
from streamcodec.server.express import plain_head

HEAD_END: Final = b"\r\n\r\n"
_METHODS: Final = (b"POST ", b"GET ")
MAX_ENTRIES: Final = 256
MAX_HEAD_BYTES: Final = 2 << 10
_MAX_CLIENT_BYTES: Final = 64
_MAX_HEADER_BYTES: Final = 4 << 10
"""Most bytes of a JSON header on this way. A longer one takes too long to read in one turn of the event loop."""

MAX_WHOLE_BYTES: Final = (256 << 10) + _MAX_HEADER_BYTES
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


class Alone:
    """A whole request with nothing behind it.

    Attributes:
        head: of the request, without fields that mean nothing to a proxy.
        text: the bytes of the head.
        outgoing: the request as it is sent to the server behind.
    """

    __slots__ = ("head", "outgoing", "text")

    def __init__(self, head: RequestHead, text: bytes, outgoing: list[memoryview]) -> None:
        """Store the parts."""
        self.head: RequestHead = head
        self.text: bytes = text
        self.outgoing: list[memoryview] = outgoing


class _Known:
    """A head that is known: what it means, and how it begins on its way to the server behind."""

    __slots__ = ("head", "header_length", "key", "length", "outgoing")

    def __init__(self, head: RequestHead, length: int, header_length: int, outgoing: bytes) -> None:
        self.head: RequestHead = head
        self.length: int = length
        self.header_length: int = header_length
        self.outgoing: bytes = outgoing
        declared = head.fields.header_length
        self.key: bytes = b"%d %d " % (-1 if declared is None else declared, length)
        """What a JSON header means besides its bytes."""

    def followed_by(self, fields: bytes) -> _Known:
        """Return the same head with more fields, each after a line end."""
        outgoing = b"".join((self.outgoing.removesuffix(HEAD_END), fields, HEAD_END))
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
        self._heads: Cache[_Known] = Cache(MAX_ENTRIES, MAX_HEAD_BYTES + _MAX_CLIENT_BYTES)
        self._unknown = b""
        self._headers: Cache[tuple[Sequence[TensorSpec], bool]] = Cache(MAX_ENTRIES, _MAX_HEADER_BYTES + 64)

    def find(self, incoming: Bytes, client: str) -> Whole | NeedData | None:
        """Recognize the next request by its head and its JSON header. Of tensors that have come whole, check them too.

        Args:
            incoming: of a connection.
            client: address of the client.

        Returns:
            `NEED_DATA` if the head is known, and the JSON header has not come; None if this request goes the ordinary
            way.
        """
        data = incoming.peek(MAX_HEAD_BYTES)
        found = self._known(data, client)
        if found is None:
            return None
        known, end = found
        header = bytes(incoming.peek_from(end, end + known.header_length))
        if len(header) < known.header_length:
            return NEED_DATA
        try:
            contents = Contents(self._tensors(known, header)[0], len(header), self._limits)
            whole = Whole(known, data[:end], incoming.peek_from(end, end + known.length), contents)
            if not whole.missing:
                deque(whole.check(), 0)
        except MessageError:
            return None
        return whole

    def find_alone(self, data: bytes, client: str) -> Alone | NeedData | None:
        """Recognize a request that is all that has come, and check it.

        Args:
            data: all bytes that have come, from the beginning of the request on.
            client: address of the client.

        Returns:
            `NEED_DATA` if the head is known, and the rest has not come but is short; None if `find` may tell more.
        """
        found = self._known(data, client)
        if found is None:
            return None
        known, end = found
        missing = end + known.length - len(data)
        if missing:
            return NEED_DATA if missing > 0 and end + known.length <= SCRATCH_BYTES else None
        body = memoryview(data)[end:]
        try:
            tensors, is_checked = self._tensors(known, data[end : end + known.header_length])
            if is_checked:
                Contents(tensors, known.header_length, self._limits).check(body[known.header_length :])
        except MessageError:
            return None
        return Alone(known.head, data[:end], [memoryview(known.outgoing), body])

    def _known(self, data: bytes, client: str) -> tuple[_Known, int] | None:
        """Find or learn the head with which some bytes begin; return it with its length."""
        if not data.startswith(_METHODS):
            return None
        end = data.find(HEAD_END, 0, MAX_HEAD_BYTES) + len(HEAD_END)
        if end < len(HEAD_END):
            return None
        known = self._head(data[:end], client)
        return None if known is None else (known, end)

    def _head(self, text: bytes, client: str) -> _Known | None:
        """Find a head in the cache, or learn it; None if its requests go the ordinary way."""
        key = b"%b\n%b" % (client.encode(), text)
        known = self._heads.get(key)
        if known is not None or key == self._unknown:
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
            self._unknown = key  # it is looked up twice
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
        if not ((is_inference and 0 < length <= MAX_WHOLE_BYTES) or is_empty):
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

    def _tensors(self, known: _Known, header: bytes) -> tuple[Sequence[TensorSpec], bool]:
        """Return what a JSON header says about the tensors, and whether their bytes have to be checked.

        Raises:
            MessageError: it is refused, or does not fit the length of the body.
        """
        if not known.length:
            return (), False
        key = known.key + header
        found = self._headers.get(key)
        if found is None:
            decoder = request_decoder(
                header_length=known.head.fields.header_length,
                body_length=known.length,
                limits=self._limits,
                pause_after_header=True,
            )
            decoder.feed(header)
            event = cast("HeaderReceived[RequestHeader]", decoder.next_event())  # the first event, because it is whole
            tensors = event.header.tensors
            found = tensors, has_checks(tensors)
            self._headers.put(key, found)
        return found


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

    @property
    def is_fresh(self) -> bool:
        """Whether the connection has nothing of the next request."""
        incoming = self._connection.incoming
        return incoming.state is State.HEAD and not incoming.kept

    def find_alone(self, data: bytes) -> Alone | NeedData | None:
        """Recognize a request among bytes that the connection has not got; see `Requests.find_alone`."""
        return self._requests.find_alone(data, self._client)

    def take(self, data: bytes) -> None:
        """Give bytes to the connection, which has none; nothing is the end of the input."""
        if data:
            self._connection.feed(data)
        else:
            self._connection.receive_eof()

    def count(self, nbytes: int) -> None:
        """Report that a request has passed whose bytes the connection has not got."""
        self._connection.incoming.received += nbytes

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
