"""Compressing: compression of a whole V2 message.

The lengths in a message count decompressed bytes, so its JSON header does not change. HTTP needs the compressed length
before the first byte. So a compressed message is held in memory as a whole; it is never larger than the plain message.
A message whose tensors come in windows must not be held in memory, so it is refused; see
`EncodedMessage.is_compressible`. The values of large JSON tensors are also made while the message is sent, because
their text takes many times the memory of their arrays. Such a message is compressed only if the result is small:
`STREAMED_BYTES`.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.arguments import check_kind
from streamcodec.engine.compression.deflate import deflate
from streamcodec.engine.compression.inflate import checked_encoding
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.formats.v2.encoder import EncodedMessage

STREAMED_BYTES: Final = 1 << 20
"""Largest compressed size of a streamed message. If it would be larger, the message is sent uncompressed."""


def compress_message(message: EncodedMessage, encoding: str) -> EncodedMessage:
    """Return a message compressed. It is returned unchanged if the result is not smaller, or too large to be held.

    It takes a second for some 30 to 100 MB of tensors. Other threads run meanwhile.

    Args:
        message: not compressed yet; its buffers are only read.
        encoding: one of `ENCODINGS`.

    Raises:
        LocalProtocolError: it is no `EncodedMessage`, it is compressed already, windows are streamed, or there is no
            such encoding.
    """
    check_kind(message, EncodedMessage, "compress_message takes an EncodedMessage, as encode_request() returns it")
    if message.content_encoding is not None:
        msg = f"the message is compressed already, with {message.content_encoding}"
        raise LocalProtocolError(msg)
    if not message.is_compressible:
        msg = "a streamed message cannot be compressed: its length must be known before its bytes are made"
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
