"""Compressing: a V2 message to the same message compressed.

The lengths of the protocol count decompressed bytes, so the header of the message stays as it is, and the length that
HTTP is told is known once all is compressed: a compressed message is held in memory whole, and is never larger than the
plain one. For a message whose tensors come in windows that would undo what they are for, so those are refused; see
`EncodedMessage.is_compressible`. Where only JSON values are made while the message is sent, which as a text take many
times the memory of their arrays, it is compressed as long as that takes little memory: `STREAMED_BYTES`.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.deflate import deflate
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.inflate import checked_encoding
from streamcodec.formats.v2.encoder import EncodedMessage

STREAMED_BYTES: Final = 1 << 20
"""A message that is streamed, but could be compressed, is sent as it is if it would be larger than this."""


def compress_message(message: EncodedMessage, encoding: str) -> EncodedMessage:
    """Return a message compressed; or as it is, if compressing does not make it smaller, or small enough to be held.

    It takes a second for some 30 to 100 MB of tensors, and other threads run meanwhile.

    Args:
        message: not compressed yet; its buffers are only read.
        encoding: one of `ENCODINGS`.

    Raises:
        LocalProtocolError: another encoding, the message is compressed already, or windows are streamed.
    """
    if message.content_encoding is not None:
        msg = f"the message is compressed already, with {message.content_encoding}"
        raise LocalProtocolError(msg)
    if not message.is_compressible:
        msg = "a message that is streamed cannot be compressed: its length has to be known before its bytes are made"
        raise LocalProtocolError(msg)
    most = min(message.body_length, STREAMED_BYTES) if message.is_streamed else message.body_length
    pieces: list[bytes] = []
    nbytes = 0
    for piece in deflate(message.buffers, checked_encoding(encoding)):
        nbytes += len(piece)
        if nbytes >= most:
            return message
        pieces.append(piece)
    return EncodedMessage(
        parts=tuple(pieces), header_length=message.header_length, body_length=nbytes, content_encoding=encoding
    )
