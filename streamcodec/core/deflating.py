"""Deflating: a message to the same message compressed, the writing side of `compression`.

The buffers go through zlib one after the other and slice by slice; they are never joined. The lengths of the protocol
count decompressed bytes, so the header of the message stays as it is, and the length that HTTP is told is known once
all is compressed: a compressed message is held in memory whole, and is never larger than the plain one. For a message
whose tensors come in windows that would undo what they are for, so those are refused; see
`EncodedMessage.is_compressible`. Where only JSON values are made while the message is sent, which as a text take many
times the memory of their arrays, it is compressed as long as that takes little memory: `STREAMED_BYTES`.

Tensors compress badly and slowly, which is why nothing here happens unasked. Of 16 MiB each, zlib 1.2.13, one core:

| content | level 1 | level 6 |
| --- | --- | --- |
| FP32, normal distribution | to 93% at 28 MB/s | to 93% at 24 MB/s |
| FP32, the same after ReLU | to 58% at 44 MB/s | to 54% at 22 MB/s |
| UINT8, image with the noise of a sensor | to 45% at 71 MB/s | to 43% at 24 MB/s |
| FP32, that image scaled to 0..1 | to 19% at 130 MB/s | to 14% at 35 MB/s |
| INT64, token numbers | to 22% at 82 MB/s | to 20% at 21 MB/s |
| zeros | to 0.4% at 283 MB/s | to 0.1% at 315 MB/s |

What the higher levels find is not worth what they take, so level 1 it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from streamcodec.core.compression import ENCODINGS, checked_encoding
from streamcodec.core.encoder import EncodedMessage
from streamcodec.core.errors import LocalProtocolError

_LEVEL: Final = 1

STREAMED_BYTES: Final = 1 << 20
"""A message that is streamed, but could be compressed, is sent as it is if it would be larger than this."""

_WINDOWS: Final = dict(zip(ENCODINGS, (16 + zlib.MAX_WBITS, zlib.MAX_WBITS), strict=True))
"""What zlib is told. RFC 9110, section 8.4.1.2: `deflate` is the zlib format, not the bare stream."""

_SLICE_BYTES: Final = 256 << 10
"""Small enough for zlib to need no large memory for its output, large enough to cost nothing."""


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
    for piece in _deflate(message.buffers, checked_encoding(encoding)):
        nbytes += len(piece)
        if nbytes >= most:
            return message
        pieces.append(piece)
    return EncodedMessage(
        parts=tuple(pieces), header_length=message.header_length, body_length=nbytes, content_encoding=encoding
    )


def _deflate(buffers: Iterable[bytes | memoryview], encoding: str) -> Iterator[bytes]:
    """Yield the compressed bytes, in pieces as zlib makes them."""
    stream = zlib.compressobj(_LEVEL, wbits=_WINDOWS[encoding])
    for buffer in buffers:
        view = memoryview(buffer)
        for start in range(0, len(view), _SLICE_BYTES):
            if piece := stream.compress(view[start : start + _SLICE_BYTES]):
                yield piece
    yield stream.flush()
