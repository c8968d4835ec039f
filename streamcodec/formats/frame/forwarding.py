"""Forwarding: one frame as pieces of bytes, for a program that passes frames on and does not look into them.

Only the head is read. It says how long the frame is, and its own check says whether to believe that. So a forwarder
needs no numpy, and no more memory than one piece. The first piece has the head, and a small frame is one piece.

The checksum of the frame is known when all of its pieces have been passed on. If it is wrong, the forwarder reports
that, and so does whoever receives the frame.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits, header_too_long, message_too_long
from streamcodec.engine.receiving import NEED_DATA, Buffer, EndOfMessage, NeedData
from streamcodec.engine.record import record
from streamcodec.formats.frame.head import CHECKSUM_BYTES, HEAD_BYTES, Checksum, FrameHead, read_head

_RIGHT: Final = crc32(bytes(CHECKSUM_BYTES))
"""The CRC-32 of any bytes that are followed by their own CRC-32."""


@record()
class FramePiece:
    """The next bytes of a frame, to be passed on."""

    data: memoryview
    """The bytes, read-only. They are valid until `next_event` is called again."""


class ForwardedFrame:
    """Takes one frame, of either kind, and returns it in pieces: a `FramePiece` for each, and `EndOfMessage`.

    `FrameReader(ForwardedFrame)` forwards a stream of frames. It leaves out what is no frame, and frames over the
    limits, by the rules of any reader.

    Example:
        >>> import numpy as np
        >>> from streamcodec import EndOfMessage, encode_request
        >>> from streamcodec.formats.frame import ForwardedFrame, FrameReader, Kind, encode_frame
        >>> frame = b"".join(encode_frame(encode_request({"x": np.ones(3)}), Kind.REQUEST).buffers)
        >>> frames, passed = FrameReader(ForwardedFrame), b""
        >>> for start in range(0, len(frame), 24):
        ...     _ = frames.feed(frame[start : start + 24])
        ...     event = frames.next_event()
        >>> event.data == frame
        True
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, piece_bytes: int = 64 << 10) -> None:
        """Begin before the first byte.

        Args:
            limits: on the JSON header and the message. A frame that exceeds them is refused at its head.
            piece_bytes: the longest piece, and the memory that is taken; at least 24, for the head.

        Raises:
            LocalProtocolError: `piece_bytes` is too small.
        """
        if piece_bytes < HEAD_BYTES:
            msg = f"piece_bytes is {piece_bytes}, and the head of a frame has {HEAD_BYTES}"
            raise LocalProtocolError(msg)
        self._limits = limits
        self._piece_bytes = piece_bytes
        self._buffer = memoryview(bytearray(HEAD_BYTES))
        self._filled = 0
        self._head: FrameHead | None = None
        self._passed = 0  # bytes of the frame in pieces
        self._checksum = 0
        self._is_given = False  # whether the piece in the buffer has been returned
        self._has_ended = False

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill; if not, `next_event` comes first."""
        return self._filled < len(self._buffer)

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of `Decoder`
        """Return the memory for the next bytes of the frame; see `Decoder.get_buffer`."""
        return self._buffer[self._filled :]

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return that memory; see `Decoder.get_buffers`."""
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written there.

        Raises:
            LocalProtocolError: fewer than 1, or more than the buffer holds.
        """
        room = len(self._buffer) - self._filled
        if not 0 < nbytes <= room:
            msg = f"{nbytes} bytes cannot have been written to a buffer of {room}"
            raise LocalProtocolError(msg)
        self._filled += nbytes

    def feed(self, chunk: Buffer) -> int:
        """Take the next bytes, up to the end of the piece; return how many; see `Decoder.feed`."""
        room = self.get_buffer()
        taken = min(len(chunk), len(room))
        room[:taken] = chunk[:taken]
        self._filled += taken
        return taken

    def work(self) -> None:
        """Do nothing: no piece takes longer than a turn."""

    def receive_eof(self) -> None:
        """Report that no more bytes will come. What has come of the last piece is dropped."""
        self._has_ended = True

    def next_event(self) -> FramePiece | EndOfMessage | NeedData:
        """Return the next event, or `NEED_DATA`.

        Raises:
            RemoteProtocolError: what has come is no head, or the frame exceeds the limits or ends too early. Or its
                checksum is wrong; this comes after all pieces.
        """
        if not self.needs_data:
            if self._head is None:
                self._begin(read_head(bytes(self._buffer)))
            elif not self._is_given:
                self._checksum = crc32(self._buffer, self._checksum)
                self._passed += len(self._buffer)
                self._is_given = True
                return FramePiece(data=self._buffer.toreadonly())
            elif left := self._head.frame_length - self._passed:
                self._buffer, self._filled, self._is_given = self._buffer[:left], 0, False
            else:
                return self._end(self._head)
            return self.next_event()
        if self._has_ended:
            msg = "the input ends before the frame does"
            raise RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self._passed + self._filled)
        return NEED_DATA

    def _begin(self, head: FrameHead) -> None:
        """Make the memory for pieces, or refuse a frame whose receiver would refuse it."""
        if head.header_length > self._limits.max_header_bytes:
            raise header_too_long(head.header_length, self._limits, offset=HEAD_BYTES)
        if head.body_length > self._limits.max_message_bytes:
            raise message_too_long(head.body_length, self._limits, offset=HEAD_BYTES)
        block = memoryview(bytearray(min(head.frame_length, self._piece_bytes)))
        block[:HEAD_BYTES] = self._buffer
        self._head, self._buffer = head, block

    def _end(self, head: FrameHead) -> EndOfMessage:
        if head.checksum is Checksum.CRC32 and self._checksum != _RIGHT:
            msg = "the frame is damaged: its checksum is wrong"
            offset = head.frame_length - CHECKSUM_BYTES
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_CHECKSUM, offset=offset)
        return EndOfMessage(nbytes=head.frame_length)
