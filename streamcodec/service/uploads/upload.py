"""Upload: one inference request whose bytes come in several messages, and what keeps all of them. Sans-IO.

At any time one connection at most brings bytes: the *carrier* of the upload. If another connection asks for the upload,
the carrier must give way at once, because the client uses one connection at a time: it has lost the first one, and the
server has not noticed yet (section 4.6 of draft-ietf-httpbis-resumable-upload). An upload without a carrier is
*interrupted*.

Where an interrupted upload is kept is the choice of an `UploadStore`: in memory (`Uploads`), or in files that other
processes and the next start of the server find (`streamcodec.runtime.uploads`).
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.events import NEED_DATA, EndOfMessage, NeedData, NeedTurn
from streamcodec.engine.receiving import Buffer
from streamcodec.formats.v2.model import Event, RequestHeader
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.replies import Reply
from streamcodec.service.request.inference import Inference, ResolvedHead

Fields = list[tuple[str, str]]
"""Names and values."""


class Carrier(Protocol):
    """The connection that brings the bytes of an upload."""

    def give_way(self) -> None:
        """Hand the upload back with `UploadStore.keep`, and end: another connection goes on with it."""
        ...


class Upload(Protocol):
    """One inference request.

    Attributes:
        id: names it.
        head: of the request that has begun it, with the length of the whole body.
        carrier: brings bytes now; None while it is interrupted.
        is_whole: whether the last event of the decoder has been taken, though the client may not have ended the upload.
    """

    id: str
    head: RequestHead
    carrier: Carrier | None
    is_whole: bool

    @property
    def length(self) -> int:
        """Bytes of the body, all messages together."""
        ...

    @property
    def offset(self) -> int:
        """Bytes that are in their places."""
        ...

    @property
    def inference(self) -> Inference:
        """What receives the bytes, after `go_on`."""
        ...

    def go_on(self, resolved: ResolvedHead) -> bool:
        """Prepare for more bytes; return whether they can come: the model is the one with which the upload began."""
        ...

    def part(self, nbytes: int, *, is_last: bool, interim: Fields | None = None) -> UploadPart:
        """Return the receiver of the next message; for the arguments see `UploadPart`."""
        ...


class UploadPart:
    """The body of one message: a receiver that passes all bytes on to the decoder of the upload.

    It differs from the decoder in one point: the message of HTTP may end before that of the upload.

    Attributes:
        upload: what it belongs to.
        is_last: whether the upload is complete after it.
        interim: the fields of `104 Upload Resumption Supported`, to be sent before the body if there are any; None if
            the upload has begun with an earlier message.
    """

    def __init__(self, upload: Upload, nbytes: int, *, is_last: bool, interim: Fields | None = None) -> None:
        """Begin with the first of `nbytes` bytes."""
        self.upload: Upload = upload
        self.is_last: bool = is_last
        self.interim: Fields | None = interim
        self._decoder: Decoder[RequestHeader] = upload.inference.decoder
        self._reaches_end = upload.offset + nbytes == upload.length
        self._has_ended = False

    @property
    def can_go_on(self) -> bool:
        """Whether more bytes may come: nothing was wrong with those that have come."""
        return self._decoder.needs_data or self._decoder.is_paused

    @property
    def needs_data(self) -> bool:
        """See `Decoder`, as for all members of a receiver here."""
        return self._decoder.needs_data

    @property
    def is_paused(self) -> bool:
        """See `Decoder`."""
        return self._decoder.is_paused

    @property
    def is_complete(self) -> bool:
        """See `Decoder`."""
        return self._decoder.is_complete

    @property
    def offset(self) -> int:
        """See `Decoder`."""
        return self._decoder.offset

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """See `Decoder`."""
        return self._decoder.get_buffer(sizehint)

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """See `Decoder`."""
        return self._decoder.get_buffers(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """See `Decoder`."""
        self._decoder.buffer_updated(nbytes)

    def work(self) -> None:
        """See `Decoder`."""
        self._decoder.work()

    def feed(self, chunk: Buffer) -> int:
        """See `Decoder`."""
        return self._decoder.feed(chunk)

    def receive_eof(self) -> None:
        """Report that the message of HTTP has ended, well or not."""
        self._has_ended = True
        if self._reaches_end:
            self._decoder.receive_eof()

    def next_event(self) -> Event | NeedData | NeedTurn:
        """Return the next event of the decoder; `EndOfMessage` after the last one of this message."""
        if self.upload.is_whole:
            return EndOfMessage(nbytes=self.offset)
        event = self._decoder.next_event()
        if isinstance(event, EndOfMessage):
            self.upload.is_whole = True
        ends = event is NEED_DATA and self._has_ended and not self._reaches_end
        return EndOfMessage(nbytes=self.offset) if ends else event


UploadT = TypeVar("UploadT")
"""The kind of uploads of a store."""


class UploadStore(Protocol[UploadT]):
    """Keeps the uploads of one server."""

    @property
    def max_bytes(self) -> int:
        """Most bytes of one upload."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def begin(self, resolved: ResolvedHead, head: RequestHead) -> UploadT | None:
        """Begin an upload; None if there is no room for it.

        Args:
            resolved: what its head decides.
            head: with the length of the whole body.
        """
        ...

    def find(self, name: str) -> UploadT | Reply:
        """Return the upload with an id, which has no carrier then; or the reply if it cannot be had now.

        Raises:
            RemoteProtocolError: `not-found`, status 404.
        """
        ...

    def let_be(self, upload: UploadT) -> None:
        """Report that an upload that was found gets no carrier now."""
        ...

    def carry(self, upload: UploadT, carrier: Carrier, reservation: Reservation) -> None:
        """Have a connection bring bytes; it takes over the memory."""
        ...

    def keep(self, upload: UploadT, reservation: Reservation) -> None:
        """Keep an upload whose connection brings no more bytes, and take over its memory."""
        ...

    def complete(self, upload: UploadT) -> bool:
        """Take an upload whose last byte has come; return whether it is kept until `end`, when there is an answer."""
        ...

    def end(self, upload: UploadT) -> None:
        """Forget an upload: it is answered, refused or cancelled. Its carrier keeps the memory, if there is one."""
        ...

    def seconds_left(self, upload: UploadT) -> int:
        """Return for how many seconds an upload is kept at least if nobody goes on with it (`max-age`)."""
        ...

    def expire(self) -> float:
        """Drop interrupted uploads whose time is over; return the seconds until the next look."""
        ...

    def close(self) -> None:
        """End: the server stops, and no connection brings anything any more."""
        ...
