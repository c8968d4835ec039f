"""Crossing: one request on its way through the guard: what is read before, and what is sent to the server behind.

An inference with a JSON header is *screened*: its body may be passed on when the header was accepted. A raw inference
(`Inference-Header-Content-Length: 0`) has no header that could be checked, so only its length is. Every other body is
collected first, up to a limit, and then passed on as it came. Sans-IO.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError
from streamcodec.engine.events import EndOfMessage, HeaderReceived
from streamcodec.engine.limits import Limits
from streamcodec.guard.fields import RawFields, request_fields
from streamcodec.guard.pieces import PIECE_BYTES, Pieces
from streamcodec.guard.routing import is_inference
from streamcodec.guard.screening import HasRoom, Screening, no_room
from streamcodec.http.chunks import Chunks
from streamcodec.http.collector import Collector
from streamcodec.http.messages import HttpEvent, RequestHead
from streamcodec.http.server import ServerConnection

_EXPECTED: Final = b"100-continue"


class Crossing:
    """One request.

    Attributes:
        head: of the request.
    """

    def __init__(self, head: RequestHead, limits: Limits, has_room: HasRoom = lambda _: True) -> None:
        """Decide by the head.

        Args:
            head: of the request.
            limits: of requests.
            has_room: is asked for memory, with all that the request takes, before more is taken.

        Raises:
            RemoteProtocolError: the request is refused by its head alone.
            OutOfMemoryError: there is no room for it now.
        """
        self.head = head
        self._limits = limits
        self._screening: Screening | None = None
        self._collector: Collector | None = None
        if not is_inference(head):
            if (head.content_length or 0) > limits.max_document_bytes:
                raise _too_long(limits)
            length = limits.max_document_bytes if head.content_length is None else head.content_length
            if not has_room(length):
                raise no_room()
            self._collector = Collector(limits.max_document_bytes, max_dropped_bytes=0)
        elif head.fields.header_length == 0:
            _check_raw(head, limits)
            if not has_room(2 * PIECE_BYTES):
                raise no_room()
        else:
            self._screening = Screening(head, limits, has_room)

    def open(self, connection: ServerConnection) -> bytes:
        """Have the connection read the body; return the bytes to send to the client now.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
        """
        if self._screening is not None:
            return connection.receive_body(self._screening)
        # Compression is left as it is: what is not checked need not be read.
        head, incoming = self.head, connection.incoming
        has_begun = incoming.has_input
        chunks = Chunks(self._limits) if head.fields.is_chunked else None
        receiver = self._collector or Pieces(head.content_length)
        incoming.read_body(receiver, content_length=head.content_length, chunks=chunks)
        expects = [value.lower() for value in head.fields.values(b"expect")] == [_EXPECTED]
        return connection.interim() if expects and not has_begun and head.content_length != 0 else b""

    def is_ready(self, event: HttpEvent | None) -> bool:
        """Whether the server behind may be asked, after this event of the body; None before the first event."""
        if self._collector is not None:
            return isinstance(event, EndOfMessage)
        return self._screening is None or isinstance(event, HeaderReceived)

    @property
    def is_screened(self) -> bool:
        """Whether this is an inference with a JSON header."""
        return self._screening is not None

    @property
    def has_header(self) -> bool:
        """Whether what follows are tensors, which may come at a rate, and not a header, which has a time limit."""
        return self._collector is None and (self._screening is None or self._screening.has_header)

    @property
    def beginning(self) -> bytes:
        """The bytes of the body that have been kept, to be passed on first."""
        if self._screening is not None:
            return bytes(self._screening.text)
        return b"" if self._collector is None else bytes(self._collector.data)

    @property
    def rest_bytes(self) -> int:
        """Bytes of the body that follow the `beginning`."""
        if self._collector is not None:
            return 0
        if self._screening is not None:
            return self._screening.tensor_bytes or 0
        return self.head.content_length or 0

    def fields(self, host: str, client: str) -> RawFields:
        """Return the fields for the server behind; for the arguments see `request_fields`."""
        head = self.head
        is_decoded = self._screening is not None and head.fields.encoding_of(head.content_length) is not None
        has_body = head.content_length != 0 or bool(head.fields.values(b"content-length"))
        length = len(self.beginning) + self.rest_bytes if has_body else None
        return request_fields(head, host=host, client=client, length=length, is_decoded=is_decoded)


def _check_raw(head: RequestHead, limits: Limits) -> None:
    length = head.content_length
    if length is None or not head.fields.values(b"content-length"):
        msg = "a raw binary request needs Content-Length here, because it has no header that tells its size"
        raise RemoteProtocolError(msg, code=ErrorCode.LENGTH_REQUIRED, status_hint=411)
    if length > min(limits.max_tensor_bytes, limits.max_message_bytes):
        msg = f"the tensor has {length} bytes, {limits.max_tensor_bytes} are allowed"
        raise LimitExceededError(msg, limit="max_tensor_bytes")


def _too_long(limits: Limits) -> LimitExceededError:
    msg = f"the body of a request that is not an inference may have {limits.max_document_bytes} bytes"
    return LimitExceededError(msg, limit="max_document_bytes")
