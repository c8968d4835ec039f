"""A stream of frames, one after the other. After a damaged frame, the reader finds the next one.

Before each frame the reader has a window of 24 bytes, the length of a head. If the bytes are a head, a new decoder
reads the frame. If not, the reader searches for the next place where a head could begin, moves that to the front of the
window, and requests as many bytes as are missing. So it never reads beyond a possible head of a frame, and keeps only
24 bytes.

A chunk that is fed while bytes are skipped is searched in place, 4 KiB at once. Most of it needs only one search for
the bytes that all heads have in common: 64 KiB of noise take 0.2 ms. Each place that looks like a head costs a
checksum: 64 KiB full of such places take 12 ms. A *paced* reader searches at most 512 KiB at once, or 512 such places;
then `next_event` returns `NEED_TURN`.

A head with a correct check is trusted. If its frame is refused nevertheless, because of its content, its checksum or a
limit, the rest of the frame is skipped by its length and not searched. A tensor may hold any bytes, also bytes that
look like a frame. So a peer cannot smuggle in a message by sending it inside of a frame that is refused. Damaged bytes
cost the damaged frame. *Missing* bytes cost the next frame, too, because its beginning is taken for the end of the
damaged one.

States::

             head                  last byte, event taken
    window ---------> frame -----------------------------> window
      ^                 | refused
      |  last byte      v
      +------------- the rest of the frame
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, RemoteProtocolError
from streamcodec.engine.receiving import NEED_DATA, NEED_TURN, Buffer, EndOfMessage, NeedData, NeedTurn
from streamcodec.engine.record import record
from streamcodec.formats.frame.head import (
    CANDIDATE,
    CANDIDATE_BYTES,
    HEAD_BYTES,
    MAGIC,
    FrameHead,
    is_checked,
    read_head,
)

EventT = TypeVar("EventT")
EventT_co = TypeVar("EventT_co", covariant=True)

_SKIPPED_AT_ONCE: Final = 64 << 10

_SEARCHED_AT_ONCE: Final = 4 << 10
"""Bytes of a chunk that are searched at once. They are copied, so they are few, for streams with little noise."""

_TURN_BYTES: Final = 512 << 10
"""Bytes that are searched without a turn: 1 to 2 ms."""

_CHECK_BYTES: Final = 1 << 10
"""To check a head costs as much as to search this number of bytes: 2 us."""


@record(eq=True)
class Skipped:
    """Bytes that do not belong to an accepted frame. They are from a refused frame, or from no frame at all.

    The event comes after the last of these bytes: at the end of a frame with a correct head; else when the next head
    was found, or the input has ended.
    """

    offset: int
    """Bytes of the stream before them."""
    nbytes: int
    """Number of these bytes."""
    error: MessageError
    """The error in the first of these bytes. Its own `offset` counts from there."""


@record(eq=True)
class EndOfStream:
    """The input has ended."""

    nbytes: int
    """Bytes of the whole stream."""


class FrameDecoder(Protocol[EventT_co]):
    """What reads one frame: a `Decoder`, or a `ForwardedFrame`. Its last event is an `EndOfMessage`."""

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill."""
        ...

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the memory that the next bytes belong to; see `Decoder.get_buffer`."""
        ...

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return that memory, and the memory that is known to follow it; see `Decoder.get_buffers`."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written there; see `Decoder.buffer_updated`."""
        ...

    def feed(self, chunk: Buffer) -> int:
        """Copy bytes to where they belong; see `Decoder.feed`."""
        ...

    def work(self) -> None:
        """Do one piece of the work for which `next_event` has asked a turn; see `Decoder.work`."""
        ...

    def receive_eof(self) -> None:
        """Report that no more bytes will come; see `Decoder.receive_eof`."""
        ...

    def next_event(self) -> EventT_co | NeedData | NeedTurn:
        """Return the next event; see `Decoder.next_event`."""
        ...


class FrameReader(Generic[EventT]):
    """Reads a stream of frames, with the same push and pull interfaces as `Decoder`.

    Its events are the events of the frames, one after the other, `Skipped` after an error, and `EndOfStream`. Do not
    use the content of a frame before its `EndOfMessage`: `Skipped` may come instead.

    Example:
        >>> import numpy as np
        >>> from streamcodec import NEED_DATA, encode_request
        >>> from streamcodec.formats.frame import FrameReader, Kind, encode_frame, request_frame_decoder
        >>> frame = b"".join(encode_frame(encode_request({"x": np.ones(3)}), Kind.REQUEST).buffers)
        >>> frames = FrameReader(request_frame_decoder)
        >>> stream = b"noise" + frame + frame
        >>> while stream:
        ...     stream = stream[frames.feed(stream) :]
        ...     while (event := frames.next_event()) is not NEED_DATA:
        ...         print(type(event).__name__)
        Skipped
        HeaderReceived
        TensorReceived
        EndOfMessage
        HeaderReceived
        TensorReceived
        EndOfMessage
    """

    def __init__(self, make_decoder: Callable[[], FrameDecoder[EventT]], *, paced: bool = False) -> None:
        """Begin before the first byte.

        Args:
            make_decoder: makes the decoder for one frame, as `request_frame_decoder` and `ForwardedFrame` do.
            paced: whether `next_event` returns `NEED_TURN` while many bytes are skipped. Within a frame, its decoder
                decides this.
        """
        self._turn_bytes = _TURN_BYTES if paced else None
        self._searched = 0  # bytes since the last turn
        self._make_decoder = make_decoder
        self._window = bytearray(HEAD_BYTES)
        self._filled = 0
        self._decoder: FrameDecoder[EventT] | None = None
        self._left = 0  # bytes of the current frame that have not come
        self._length = 0  # all of its bytes
        self._offset = 0  # bytes of the stream before the frame, or before what is being skipped
        self._skipped = 0
        self._error: MessageError | None = None
        self._event: Skipped | None = None
        self._has_ended = False

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill; if not, `next_event` comes first."""
        if self._decoder is not None:
            return self._decoder.needs_data
        return self._event is None and not self._has_ended and not self._needs_turn

    @property
    def _needs_turn(self) -> bool:
        """Whether many bytes have been searched, so that others should have their turn."""
        return self._turn_bytes is not None and self._searched >= self._turn_bytes

    def next_event(self) -> EventT | Skipped | EndOfStream | NeedData | NeedTurn:
        """Return the next event, `NEED_DATA` if it needs more bytes, or `NEED_TURN` if it needs `work`.

        Raises:
            LocalProtocolError: a callback or a placement has a bug.
        """
        while self._event is None:
            if self._decoder is None:
                if self._has_ended:
                    return EndOfStream(nbytes=self._offset)
                return NEED_TURN if self._needs_turn else NEED_DATA
            try:
                event = self._decoder.next_event()
            except MessageError as error:
                self._refuse(error)
                continue
            if isinstance(event, EndOfMessage):
                self._decoder = None
                self._offset += self._length
            return event
        skipped, self._event = self._event, None
        return skipped

    def work(self) -> None:
        """Do one piece of the work that a paced decoder has left, or allow more searching; else no effect."""
        self._searched = 0
        if self._decoder is not None:
            self._decoder.work()

    def receive_eof(self) -> None:
        """Tell that no more bytes will come."""
        self._has_ended = True
        if self._decoder is not None:
            self._decoder.receive_eof()
            return
        if self._filled and self._error is None:
            msg = f"the stream ends within the head of a frame, {HEAD_BYTES - self._filled} bytes too early"
            self._error = RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self._filled)
        self._skipped, self._filled, self._left = self._skipped + self._filled, 0, 0
        self._end_skipping()

    def feed(self, chunk: Buffer) -> int:
        """Take the next bytes of the stream; no reference to the chunk is kept.

        Returns:
            The number of bytes that were taken. It is smaller than the chunk if events have to be taken first: then
            feed the rest after `next_event`.
        """
        taken = 0
        with memoryview(chunk) as view, view.cast("B") as source:
            while taken < len(source) and self.needs_data:
                taken += self._take(source[taken:])
        return taken

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return memory for the next bytes, never empty, that ends where the frame ends.

        Raises:
            LocalProtocolError: events have to be taken first, or the input has ended.
        """
        if not self.needs_data:
            msg = "no data is wanted now; next_event() says why"
            raise LocalProtocolError(msg)
        if self._decoder is not None:
            return self._decoder.get_buffer(sizehint)
        if self._left:
            return memoryview(bytearray(min(self._left, _SKIPPED_AT_ONCE)))
        return memoryview(self._window)[self._filled :]

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return memory for the next bytes, in several pieces if they are known; see `Decoder.get_buffers`."""
        if self._decoder is not None and self.needs_data:
            return self._decoder.get_buffers(sizehint)
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written to the start of the last `get_buffer()` or `get_buffers()`.

        Raises:
            LocalProtocolError: fewer than 1, or more than the buffers hold.
        """
        if self._decoder is not None:
            self._decoder.buffer_updated(nbytes)
            self._left -= nbytes
            return
        room = min(self._left, _SKIPPED_AT_ONCE) or HEAD_BYTES - self._filled
        if not 0 < nbytes <= room or not self.needs_data:
            msg = f"{nbytes} bytes cannot have been written to a buffer of {room}"
            raise LocalProtocolError(msg)
        if self._left:
            self._skip(nbytes)
        else:
            self._search(bytes(self._window[: self._filled + nbytes]))

    def _take(self, source: memoryview) -> int:
        """Take bytes in one step; return how many."""
        if self._decoder is not None:
            taken = self._decoder.feed(source)
            self._left -= taken
            return taken
        if self._left:
            taken = min(len(source), self._left)
            self._skip(taken)
            return taken
        before = self._filled
        wanted = HEAD_BYTES - before if self._error is None else _SEARCHED_AT_ONCE
        data = bytes(self._window[:before]) + bytes(source[:wanted])
        return self._search(data) - before

    def _skip(self, nbytes: int) -> None:
        """Skip bytes of a frame that was refused."""
        self._left -= nbytes
        self._skipped += nbytes
        if not self._left:
            self._end_skipping()

    def _search(self, data: bytes) -> int:
        """Begin a frame at the first head, or keep bytes that could be the beginning of a head.

        Args:
            data: the bytes after the skipped ones, beginning with the bytes in the window.

        Returns:
            The number of used bytes, including those in the window: up to the end of the head, or all.
        """
        place = 0
        while len(data) - place >= HEAD_BYTES:
            window = data[place : place + HEAD_BYTES]
            head = self._head_in(window)
            self._searched += _CHECK_BYTES
            if head is not None:
                self._skipped += place
                self._begin(head, window)
                return place + HEAD_BYTES
            place = _next_place(data, place + 1)
        self._searched += place
        self._skipped += place
        self._filled = len(data) - place
        self._window[: self._filled] = data[place:]
        return len(data)

    def _begin(self, head: FrameHead, data: bytes) -> None:
        """Begin a frame behind its head."""
        self._end_skipping()
        self._filled = self._searched = 0
        self._length, self._left = head.frame_length, head.frame_length - HEAD_BYTES
        self._decoder = self._make_decoder()
        self._decoder.feed(data)

    def _head_in(self, data: bytes) -> FrameHead | None:
        """Return the head in these bytes; None if they are not a head. The first error is kept."""
        if self._error is not None and not is_checked(data):
            return None
        try:
            return read_head(data)
        except RemoteProtocolError as error:
            self._error = self._error or error.with_traceback(None)  # whose frames hold the chunk
            return None

    def _refuse(self, error: MessageError) -> None:
        """Give up the current frame, and skip its remaining bytes."""
        self._decoder = None
        self._error = error.with_traceback(None)  # whose frames hold the memory of the message
        self._skipped = self._length - self._left
        if not self._left or self._has_ended:
            self._left = 0
            self._end_skipping()

    def _end_skipping(self) -> None:
        """Report the skipped bytes, if there are any."""
        if self._error is not None:
            self._event = Skipped(offset=self._offset, nbytes=self._skipped, error=self._error)
            self._offset += self._skipped
            self._skipped, self._error = 0, None


def _next_place(data: bytes, start: int) -> int:
    """Return the first place where a head begins, or could begin if more bytes come."""
    found = CANDIDATE.search(data, start)
    if found is not None:
        return found.start()
    ends = range(max(start, len(data) - CANDIDATE_BYTES + 1), len(data))
    return next((place for place in ends if MAGIC.startswith(data[place : place + len(MAGIC)])), len(data))
