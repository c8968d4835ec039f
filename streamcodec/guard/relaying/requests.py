"""Plain requests and answers: what a relay passes on, recognized by its head. Sans-IO.

A plain request is an inference with a JSON header, or a question without a body (a health check), with a plain head
(`read_plain_head`). Head and JSON header have come in one read, or the head in one and the body's beginning in the
next: most clients send them by two calls. Everything else goes the ordinary way, and so does what is refused for its
head or its JSON header. So the ordinary way makes these refusals.

The rules are those of the ordinary way, and the same functions check them. What a head means depends only on its bytes,
and so it is with a JSON header. So both are remembered by these exact bytes, and by nothing less.

A plain answer has a plain head (`read_plain_response`) and a body of a known length, and another answer may follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA, HeaderReceived, NeedData
from streamcodec.engine.limits import Limits
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.guard.rules.allowing import BodyCheck
from streamcodec.guard.rules.contents import Contents, has_checks
from streamcodec.guard.rules.fields import HOPS, RawFields, request_fields, response_fields
from streamcodec.guard.rules.gate import Gate, Permit
from streamcodec.http.heads.messages import RequestHead
from streamcodec.http.heads.plain import read_plain_head, read_plain_response
from streamcodec.http.heads.statuses import has_content
from streamcodec.http.responses import response_head

HEAD_END: Final = b"\r\n\r\n"
MAX_ENTRIES: Final = 256
MAX_HEAD_BYTES: Final = 2 << 10
AT_ONCE_BYTES: Final = 256 << 10
"""Of a body with BOOL or BYTES up to this length, the server behind gets nothing before all was checked."""

_METHODS: Final = (b"POST ", b"GET ")
_MAX_CLIENT_BYTES: Final = 64
_MAX_HEADER_BYTES: Final = 4 << 10
"""Most bytes of a JSON header on this way. A longer one takes too long to read in one turn of the event loop."""


class KnownHead:
    """What a head means.

    Attributes:
        head: of the request.
        permit: what the gate has said about it.
        length: bytes of the body.
        declared: bytes of its JSON header, as the head tells them; None if it does not.
        header_length: the same, or `length` if the whole body is JSON.
        fields: for the server behind.
        outgoing: the head as it is sent to the server behind.
    """

    def __init__(self, head: RequestHead, permit: Permit, declared: int | None, fields: RawFields) -> None:
        """Store the parts."""
        self.head: RequestHead = head
        self.permit: Permit = permit
        self.length: int = head.content_length or 0
        self.declared: int | None = declared
        self.header_length: int = self.length if declared is None else declared
        self.fields: RawFields = fields
        lines = b"".join([b"%b: %b\r\n" % field for field in fields])
        self.outgoing: bytes = b"%b %b HTTP/1.1\r\n%b\r\n" % (head.method.encode(), permit.target.encode(), lines)


class PlainRequest:
    """A request that was accepted by its head and its JSON header.

    Attributes:
        known: its head.
        text: the bytes of the head.
        size: bytes of head and body.
        tensor_bytes: bytes behind the JSON header.
        check: is given the bytes of the tensors, one after the other, and raises `RemoteProtocolError` if they break a
            rule; None if no byte of them has to be checked.
    """

    def __init__(self, known: KnownHead, text: bytes, tensors: Sequence[TensorSpec], limits: Limits) -> None:
        """Begin at the end of the JSON header."""
        self.known: KnownHead = known
        self.text: bytes = text
        self.size: int = len(text) + known.length
        self.tensor_bytes: int = known.length - known.header_length
        self.check: Callable[[memoryview], None] | None = (
            Contents(tensors, known.header_length, limits).check if tensors else None
        )


_Header = tuple[int | None, int, bool, bytes]
"""The key of a JSON header: its declared length and that of the body, whether `null` may be NaN, and its bytes."""


class PlainRequests:
    """Recognizes requests; one for all connections of a guard."""

    def __init__(self, limits: Limits, authority: str, gate: Gate) -> None:
        """Begin with empty caches.

        Args:
            limits: of requests.
            authority: of the server behind.
            gate: decides on heads.
        """
        self._limits = limits
        self._authority = authority
        self._gate = gate
        self._heads: Cache[tuple[str, bytes], KnownHead] = Cache(MAX_ENTRIES, MAX_HEAD_BYTES + _MAX_CLIENT_BYTES)
        self._headers: Cache[_Header, Sequence[TensorSpec]] = Cache(MAX_ENTRIES, _MAX_HEADER_BYTES + 64)

    def find(self, data: bytes, client: str) -> PlainRequest | NeedData | None:
        """Recognize a request by its head and its JSON header.

        Args:
            data: all bytes that have come, from the beginning of the request on.
            client: address of the client.

        Returns:
            `NEED_DATA` if the head has come and nothing of the body; None if the request goes the ordinary way.
        """
        end = data.find(HEAD_END, 0, MAX_HEAD_BYTES) + len(HEAD_END)
        if end < len(HEAD_END) or not data.startswith(_METHODS):
            return None
        text = data[:end]
        known = self._heads.get((client, text)) or self._read(text, client)
        if known is None or len(data) > end + known.length:
            return None
        if known.length and len(data) == end:
            return NEED_DATA
        header = data[end : end + known.header_length]
        if len(header) < known.header_length:
            return None
        try:
            key = known.declared, known.length, known.permit.null_is_nan, header
            tensors = self._headers.get(key) if header else ()
            return PlainRequest(known, text, self._tensors(key) if tensors is None else tensors, self._limits)
        except MessageError:
            return None

    def _read(self, text: bytes, client: str) -> KnownHead | None:
        """Read a head; None if its requests go the ordinary way."""
        head = read_plain_head(text, self._limits)
        if head is None or head.content_length is None or head.fields.closes or head.fields.values(b"content-encoding"):
            return None
        try:
            permit = self._gate.judge(head)
            declared = header_length_of(head.fields)
        except MessageError:
            return None
        length = head.content_length or 0
        is_question = head.method == "GET" and not length
        is_inference = permit.check is BodyCheck.MESSAGE and length > 0 and declared != 0
        if permit.page or not (is_question or is_inference):
            return None
        has_length = bool(head.fields.values(b"content-length"))
        fields = request_fields(head, host=self._authority, client=client, length=length if has_length else None)
        known = KnownHead(head, permit, declared, fields)
        if known.header_length > min(_MAX_HEADER_BYTES, length):
            return None
        self._heads.put((client, text), known)
        return known

    def _tensors(self, key: _Header) -> Sequence[TensorSpec]:
        """Read what a JSON header says about the tensors whose bytes have to be checked.

        Returns:
            All tensors, or none if no byte of them has to be checked.

        Raises:
            MessageError: it is refused, or does not fit the length of the body.
        """
        declared, length, is_nan, header = key
        decoder = request_decoder(
            header_length=declared,
            body_length=length,
            limits=self._limits,
            pause_after_header=True,
            null_is_nan=is_nan,
        )
        decoder.feed(header)
        event = cast("HeaderReceived[RequestHeader]", decoder.next_event())  # the first event, because it is whole
        tensors = event.header.tensors
        found = tensors if has_checks(tensors) else ()
        self._headers.put(key, found)
        return found


_ODD_HOPS: Final = HOPS - {b"connection", b"keep-alive"}
"""Fields about the connection that may say something about the answer. With them, it goes the ordinary way."""


class PlainAnswer:
    """The head of a plain answer.

    Attributes:
        status: of the answer.
        text: the head, as it came.
        outgoing: the head, as it is sent to a client that may send another request.
        length: bytes of the body.
    """

    def __init__(self, status: int, text: bytes, outgoing: bytes, length: int) -> None:
        """Store the parts."""
        self.status: int = status
        self.text: bytes = text
        self.outgoing: bytes = outgoing
        self.length: int = length


class PlainAnswers:
    """Reads the heads of answers; one for all connections of a guard.

    Servers send the same head for a second, until its date changes. So heads are remembered by their exact bytes.
    """

    def __init__(self, limits: Limits) -> None:
        """Begin with none; the limits bound heads."""
        self._limits = limits
        self._known: Cache[bytes, PlainAnswer] = Cache(MAX_ENTRIES, MAX_HEAD_BYTES)

    def find(self, data: bytes) -> PlainAnswer | None:
        """Read the head with which some bytes begin.

        Args:
            data: what has come of an answer.

        Returns:
            The answer; None if it is not plain, or its head has not come.
        """
        end = data.find(HEAD_END, 0, MAX_HEAD_BYTES) + len(HEAD_END)
        if end < len(HEAD_END):
            return None
        text = data[:end]
        known = self._known.get(text)
        if known is None and (known := _read(text, self._limits)) is not None:
            self._known.put(text, known)
        return known


def _read(text: bytes, limits: Limits) -> PlainAnswer | None:
    """Read a head."""
    head = read_plain_response(text, limits, is_for_head=False)
    if head is None or head.content_length is None or not has_content(head.status) or head.fields.closes:
        return None
    if not _ODD_HOPS.isdisjoint([name for name, _ in head.fields.items]):
        return None
    outgoing = response_head(head.status, response_fields(head, is_last=False))
    return PlainAnswer(head.status, text, outgoing, head.content_length)
