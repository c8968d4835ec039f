"""Answers: short cuts for answers of up to 256 KiB. Sans-IO. For requests of that size see `whole`.

What h11 makes of the head of an answer depends only on its bytes, so it is cached by these. An answer that is long, in
chunks, or the last one of its connection goes the ordinary way. The same holds for everything that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, NeedData
from streamcodec.engine.limits import Limits
from streamcodec.engine.placement import uninitialised_bytes
from streamcodec.guard.fields import response_fields
from streamcodec.guard.whole import HEAD_END, MAX_ENTRIES, MAX_HEAD_BYTES, MAX_WHOLE_BYTES, Bytes
from streamcodec.http.client import ClientConnection
from streamcodec.http.collector import Collector
from streamcodec.http.known import KnownBody
from streamcodec.http.messages import ConnectionClosed, ResponseHead
from streamcodec.http.methods import BufferUpdated, GetBuffer, GetBuffers
from streamcodec.http.server import plain_response_head

_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class Answer:
    """An answer of moderate size that has come whole.

    Attributes:
        status: of the answer.
        fields: those that are passed on.
        head: the same, as it is sent to a client that may send another plain request.
        body: its bytes.
    """

    __slots__ = ("body", "fields", "head", "status")

    def __init__(self, known: _KnownAnswer, body: memoryview) -> None:
        """Store the parts."""
        self.status: int = known[0]
        self.fields: list[tuple[str, str]] = known[1]
        self.head: memoryview = known[2]
        self.body: memoryview = body


_KnownAnswer = tuple[int, list[tuple[str, str]], memoryview, int]
"""Status, fields, head and length."""


class Answers:
    """Recognizes the heads of answers of moderate size; one for all connections of a guard."""

    def __init__(self, limits: Limits) -> None:
        """Begin with an empty cache; the limits bound heads."""
        self._limits = limits
        self._heads: Cache[_KnownAnswer] = Cache(MAX_ENTRIES, MAX_HEAD_BYTES)

    def find(self, incoming: Bytes) -> tuple[Answer, int, int] | NeedData | None:
        """Recognize an answer by its head.

        Args:
            incoming: of a connection.

        Returns:
            The answer with memory for all of its body; bytes of its head, and of its body that have come.
            None if it goes the ordinary way.
        """
        data = incoming.peek(MAX_HEAD_BYTES)
        end = data.find(HEAD_END) + len(HEAD_END)
        if end < len(HEAD_END):
            return NEED_DATA if not data else None
        text = data[:end]
        known = self._heads.get(text) or self._learn(text)
        if known is None:
            return None
        length = known[-1]
        come = incoming.peek_from(end, end + length + 1)
        if len(come) > length:
            return None
        body = uninitialised_bytes(length)
        body[: len(come)] = come
        return Answer(known, body), end, len(come)

    def find_alone(self, data: bytes) -> Answer | None:
        """Recognize an answer that is all that has come; None if `find` may tell more.

        Args:
            data: all bytes that have come, from the beginning of the answer on.
        """
        end = data.find(HEAD_END, 0, MAX_HEAD_BYTES) + len(HEAD_END)
        if end < len(HEAD_END):
            return None
        known = self._heads.get(data[:end])
        if known is None or len(data) != end + known[-1]:
            return None
        return Answer(known, memoryview(data)[end:])

    def _learn(self, text: bytes) -> _KnownAnswer | None:
        """Read a head, and remember it if it has a body of moderate size and another answer may follow."""
        http = ClientConnection(self._limits)
        http.send_request("POST", "/", [("Host", "x"), ("Content-Length", "0")])
        http.feed(text)
        try:
            head = http.next_event()
            length = head.content_length if isinstance(head, ResponseHead) else None
            if not isinstance(head, ResponseHead) or length is None or head.status in _BODILESS:
                return None
            if length > MAX_WHOLE_BYTES:
                return None
            http.incoming.read_body(Collector(0), content_length=0)
            fields = [(name.decode(), value.decode("ascii")) for name, value in response_fields(head, is_last=False)]
            if not isinstance(http.next_event(), EndOfMessage) or not http.is_reusable:
                return None
        except (MessageError, UnicodeDecodeError):
            return None
        known = head.status, fields, memoryview(plain_response_head(head.status, tuple(fields))), length
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
