"""Crossing: one request on its way through the guard: what is read before, and what is sent to the server behind.

An inference with a JSON header is *screened*: its body may be passed on when the header was accepted. A raw inference
(`Inference-Header-Content-Length: 0`) has no header that could be checked, so only its length is. Every other body is
collected first, up to a limit. That of a known extension is checked as a whole; then it is passed on as it came.
Sans-IO.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError
from streamcodec.engine.events import EndOfMessage, HeaderReceived
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.guard.pieces import PIECE_BYTES, Pieces
from streamcodec.guard.rules.allowing import BodyCheck
from streamcodec.guard.rules.documents import DOCUMENT_COPIES, DOCUMENTS, check_document, max_document_bytes
from streamcodec.guard.rules.fields import RawFields, request_fields
from streamcodec.guard.rules.gate import Permit
from streamcodec.guard.rules.screening import HasRoom, Screening, no_room
from streamcodec.http.bodies.chunks import Chunks
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.http.server import ServerConnection

_EXPECTED: Final = b"100-continue"


class Crossing:
    """One request.

    Attributes:
        head: of the request.
        permit: what the gate has said about it.
    """

    def __init__(self, head: RequestHead, permit: Permit, limits: Limits, has_room: HasRoom = lambda _: True) -> None:
        """Decide by the head.

        Args:
            head: of the request.
            permit: what the gate has said about it.
            limits: of requests.
            has_room: is asked for memory, with all that the request takes, before more is taken.

        Raises:
            RemoteProtocolError: the request is refused by its head alone.
            OutOfMemoryError: there is no room for it now.
        """
        self.head = head
        self.permit = permit
        self._limits = limits
        self._screening: Screening | None = None
        self._collector: Collector | None = None
        if permit.check is not BodyCheck.MESSAGE:
            self._collector = self._collect(has_room)
        elif header_length_of(head.fields) == 0:
            _check_raw(head, limits)
            if not has_room(2 * PIECE_BYTES):
                raise no_room()
        else:
            self._screening = Screening(head, limits, has_room, null_is_nan=permit.null_is_nan)

    def _collect(self, has_room: HasRoom) -> Collector:
        """Return what keeps the body.

        Raises:
            LimitExceededError: it is too long.
            OutOfMemoryError: there is no room for it now.
        """
        length, limits = self.head.content_length, self._limits
        most = max_document_bytes(limits) if self.is_document else limits.max_document_bytes
        if (length or 0) > most:
            msg = f"the body of this request, which is no inference, may have {most} bytes"
            raise LimitExceededError(msg, limit="max_document_bytes")
        if length is None or (self.is_document and self.head.fields.encoding_of(length) is not None):
            length = most
        if not has_room(DOCUMENT_COPIES * length if self.is_document else length):
            raise no_room()
        return Collector(most, max_dropped_bytes=0)

    def open(self, connection: ServerConnection) -> bytes:
        """Have the connection read the body; return the bytes to send to the client now.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
        """
        if self._screening is not None:
            return connection.receive_body(self._screening)
        if self.is_document and self._collector is not None:
            return connection.receive_body(self._collector)
        # Compression is left as it is: what is not checked need not be read.
        head, incoming = self.head, connection.incoming
        has_begun = incoming.has_input
        chunks = Chunks(self._limits) if head.fields.is_chunked else None
        receiver = self._collector or Pieces(head.content_length)
        incoming.read_body(receiver, content_length=head.content_length, chunks=chunks)
        expects = [value.lower() for value in head.fields.values(b"expect")] == [_EXPECTED]
        return connection.interim() if expects and not has_begun and head.content_length != 0 else b""

    def check(self) -> Iterator[None]:
        """Check a document that was collected, once it is there; yield after each part of the work.

        Raises:
            RemoteProtocolError: it is refused.
            LimitExceededError: it is too large for a document.
        """
        is_generate = self.permit.check is BodyCheck.INPUTS
        yield from check_document(cast("Collector", self._collector).data, self._limits, is_generate=is_generate)

    def is_ready(self, event: HttpEvent | None) -> bool:
        """Whether the server behind may be asked, after this event of the body; None before the first event."""
        if self._collector is not None:
            return isinstance(event, EndOfMessage)
        return self._screening is None or isinstance(event, HeaderReceived)

    @property
    def is_document(self) -> bool:
        """Whether the body is JSON that is checked as a whole."""
        return self.permit.check in DOCUMENTS

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
        is_read = self._screening is not None or self.is_document
        is_decoded = is_read and head.fields.encoding_of(head.content_length) is not None
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
