"""Writing frames: the head, the parts of the V2 message, and the checksum. The parts are not changed and not joined."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.rows import Rows, Window, synchronous
from streamcodec.engine.message import Message, Part, buffers_of, message_of
from streamcodec.formats.frame.head import CHECKSUM_BYTES, Checksum, FrameHead, Kind
from streamcodec.formats.v2.encoder import EncodedMessage


def encode_frame(message: EncodedMessage, kind: Kind, checksum: Checksum = Checksum.CRC32) -> Message:
    """Put a V2 message into a frame.

    The checksum is computed here, at some 1.5 GB/s. If a part of the message is made while it is sent, the checksum is
    computed while it is sent, too. Then everything after the head is one part, `Rows` of bytes.

    Args:
        message: from `encode_request` or `encode_response`; not compressed, and not a raw binary request.
        kind: request or response.
        checksum: the checksum at the end of the frame.

    Raises:
        LocalProtocolError: the message is compressed or raw; or a checksum is requested for asynchronous windows. While
            it is sent: windows are not as declared.
    """
    header_length = message.body_length if message.header_length is None else message.header_length
    if message.content_encoding is not None or not header_length:
        msg = "a frame holds a V2 message that begins with its JSON header: neither a compressed nor a raw one"
        raise LocalProtocolError(msg)
    head = FrameHead(kind=kind, checksum=checksum, body_length=message.body_length, header_length=header_length)
    start = head.write()
    if checksum is Checksum.NONE:
        return Message(parts=(start, *message.parts), nbytes=head.frame_length)
    if message.is_streamed:
        for part in message.parts:
            if isinstance(part, Rows):
                synchronous(part)  # or raises
        nbytes = message.body_length + CHECKSUM_BYTES
        return message_of(start, [(Rows("UINT8", (nbytes,), _Summed(start, message.parts)), nbytes)])
    end = crc32(start)
    for buffer in message.buffers:
        end = crc32(buffer, end)
    trailer = end.to_bytes(CHECKSUM_BYTES, "little")
    return Message(parts=(start, *message.parts, trailer), nbytes=head.frame_length)


class _Summed:
    """The buffers of a message and then their checksum, as windows of bytes. Each iteration starts anew."""

    def __init__(self, head: bytes, parts: tuple[Part, ...]) -> None:
        self._head = head
        self._parts = parts

    def __iter__(self) -> Iterator[Window]:
        checksum = crc32(self._head)
        for buffer in buffers_of(self._parts):
            checksum = crc32(buffer, checksum)
            yield np.frombuffer(buffer, np.uint8)
        yield np.frombuffer(checksum.to_bytes(CHECKSUM_BYTES, "little"), np.uint8)
