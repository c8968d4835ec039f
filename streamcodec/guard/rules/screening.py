"""Screening: reads the JSON header of an inference request, and then checks its tensors while they pass. Sans-IO.

The header goes through the decoder of requests, which is paused behind it. So it is checked by exactly the rules of the
server. Its text is kept, because it is passed on unchanged. While it comes, memory is asked for. Nothing else is kept:
from there on, `Pieces` take the bytes of the tensors, and `Contents` check them.

The length of the whole message is known when the header has come, even if the body came in chunks or compressed. So it
can be passed on with an exact `Content-Length`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Final

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import MessageError, OutOfMemoryError
from streamcodec.engine.events import HeaderReceived, NeedData, NeedTurn
from streamcodec.engine.limits import Limits
from streamcodec.engine.receiving import Buffer
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.formats.v2.model import Event, RequestHeader
from streamcodec.guard.pieces import Pieces
from streamcodec.guard.rules.contents import Contents
from streamcodec.http.heads.messages import RequestHead

HasRoom = Callable[[int], bool]
"""Whether so many bytes of memory may be taken."""

_HEADER_COPIES: Final = 8
"""Most memory for a JSON header, in its own length: its text, what the decoder keeps of it, and JSON tensors as arrays.
BYTES of empty strings take 8.0 times their text, one-digit FP64 6.8, usual floats 3."""


def no_room() -> OutOfMemoryError:
    """Return the error for a request that must come again later."""
    return OutOfMemoryError("the guard has no memory for another request now")


class Screening:
    """The receiver of one inference request with a JSON header.

    Attributes:
        text: the JSON header, as it came.
        tensor_bytes: bytes after the header; None until it has arrived.
    """

    def __init__(self, head: RequestHead, limits: Limits, has_room: HasRoom, *, null_is_nan: bool = False) -> None:
        """Begin before the body.

        Args:
            head: of the request.
            limits: of its header and its tensors.
            has_room: is asked for memory, with all that this takes, before more is taken.
            null_is_nan: as for `request_decoder`.

        Raises:
            RemoteProtocolError: the head is refused.
        """
        self._limits = limits
        self._has_room = has_room
        self._failure: MessageError | None = None
        self._target = memoryview(b"")
        self._has_ended = False
        self._receiver: Decoder[RequestHeader] | Pieces = request_decoder(
            header_length=header_length_of(head.fields),
            body_length=head.body_length,
            limits=limits,
            pause_after_header=True,
            paced=True,
            null_is_nan=null_is_nan,
        )
        self.text: bytearray = bytearray()
        self.tensor_bytes: int | None = None

    @property
    def has_header(self) -> bool:
        """Whether the JSON header has arrived, and was accepted."""
        return self.tensor_bytes is not None

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill."""
        return self._failure is None and self._receiver.needs_data

    @property
    def is_paused(self) -> bool:
        """Whether events or a turn come before more bytes."""
        return self._receiver.is_paused

    @property
    def is_complete(self) -> bool:
        """Whether all of the message has been passed on."""
        return self.has_header and self._receiver.is_complete

    @property
    def offset(self) -> int:
        """Bytes taken so far."""
        return self._receiver.offset

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the memory that the next bytes belong to."""
        self._target = self._receiver.get_buffer(sizehint)
        return self._target

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return `get_buffer()` alone."""
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that were written to `get_buffer()`."""
        self._keep(self._target[:nbytes])
        self._target = memoryview(b"")
        self._receiver.buffer_updated(nbytes)

    def feed(self, chunk: Buffer) -> int:
        """Take bytes from elsewhere; return how many."""
        taken = self._receiver.feed(chunk)
        self._keep(memoryview(chunk)[:taken])
        return taken

    def work(self) -> None:
        """Do one piece of the work on the header."""
        self._receiver.work()

    def receive_eof(self) -> None:
        """Report that no more bytes will come."""
        self._has_ended = True
        self._receiver.receive_eof()

    def next_event(self) -> Event | NeedData | NeedTurn:
        """Return the header, then the pieces of the tensors, then the end.

        Raises:
            RemoteProtocolError: the message breaks a rule.
            OutOfMemoryError: there is no room for it now.
        """
        if self._failure is not None:
            raise copy(self._failure)
        event = self._receiver.next_event()
        if isinstance(event, HeaderReceived):
            self._begin_tensors(event.header)
            if self._failure is not None:
                raise copy(self._failure)
        return event

    def _keep(self, part: memoryview) -> None:
        """Keep a part of the header, and ask for memory for it."""
        if not self.has_header:
            self.text += part
            if not self._has_room(_HEADER_COPIES * len(self.text)):
                self._failure = no_room()

    def _begin_tensors(self, header: RequestHeader) -> None:
        contents = Contents(header.tensors, len(self.text), self._limits)
        if not self._has_room(len(self.text) + 2 * min(contents.nbytes, contents.piece_bytes)):
            self._failure = no_room()
        self.tensor_bytes = contents.nbytes
        self._receiver = Pieces(
            contents.nbytes, start=len(self.text), check=contents.check, piece_bytes=contents.piece_bytes
        )
        if self._has_ended:
            self._receiver.receive_eof()
