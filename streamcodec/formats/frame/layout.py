"""Frames: a V2 message with a head that says how long it is, and a checksum at its end if the sender wants one.

With HTTP, fields beside the message say where the message and its JSON header end. Serial lines, WebSockets, queues,
pipes and files have no such fields, so a frame contains these lengths::

    head, 24 bytes | JSON header | tensors | checksum, 0 or 4 bytes
                   |<---- V2 body -------->|

The head is an envelope of the V2 body, whose rules and limits are those of `formats.v2`. The checksum is over head and
body. It can be checked only when all tensors have come. So do not use the content of a frame before `EndOfMessage`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic
from zlib import crc32

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.engine.machine import Machine
from streamcodec.engine.memory.placement import Place, new_array, scratch_bytes
from streamcodec.engine.reader import Fill, Reader, Reading
from streamcodec.formats.frame.head import CHECKSUM_BYTES, HEAD_BYTES, Checksum, Kind, read_head
from streamcodec.formats.v2.decoder import header_parser
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.header.parsing import (
    long_request_header,
    long_response_header,
    parse_request_header,
    parse_response_header,
)
from streamcodec.formats.v2.layout import Layout, StreamHeader, Text
from streamcodec.formats.v2.model import MessageT, RequestHeader, ResponseHeader


class _Frame(Generic[MessageT]):
    """Reads one frame."""

    __slots__ = ("_checksum", "_kind", "_parse_header", "_stream_header")

    def __init__(
        self, kind: Kind, parse_header: Callable[[Text, Limits], MessageT], stream_header: StreamHeader[MessageT]
    ) -> None:
        self._kind = kind
        self._parse_header = parse_header
        self._stream_header = stream_header
        self._checksum = 0

    def read(self, reader: Reader) -> Reading[MessageT]:
        data = bytes((yield from reader.read(HEAD_BYTES)))
        head = read_head(data)
        if head.kind is not self._kind:
            msg = f"the frame holds a {head.kind.name.lower()} where a {self._kind.name.lower()} was expected"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_FRAME, offset=9)
        reader.begin_body(head.body_length)
        if head.checksum is Checksum.CRC32:
            self._add(data)
            reader.on_filled = self._add
        layout = Layout(self._parse_header, self._stream_header, head.header_length, allow_headerless=False)
        return (yield from layout.read(reader))

    def read_end(self, reader: Reader) -> Fill:
        if reader.on_filled is None:
            return
        reader.on_filled = None
        start, found = reader.position, scratch_bytes(CHECKSUM_BYTES)
        yield from reader.fill(found)
        if found != self._checksum.to_bytes(CHECKSUM_BYTES, "little"):
            msg = "the frame is damaged: its checksum is wrong"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_CHECKSUM, offset=start)

    def _add(self, data: bytes | memoryview) -> None:
        self._checksum = crc32(data, self._checksum)


def request_frame_decoder(
    *,
    limits: Limits | None = None,
    check: Callable[[RequestHeader], None] | None = None,
    place: Place = new_array,
    headers: HeaderCache[RequestHeader] | None = None,
    pause_after_header: bool = False,
    paced: bool = False,
) -> Decoder[RequestHeader]:
    """Make a decoder for one frame that holds an inference request.

    Args:
        limits: caps on everything that is read. None for the limits of `headers`, or without `headers` for
            `DEFAULT_LIMITS`.
        check: called with the valid header before memory is taken for tensors; raises `RemoteProtocolError` to refuse.
        place: called for each tensor that is not BYTES; returns the placement of its bytes.
        headers: cache of parsed headers, shared by decoders of the same kind and with the same limits; None to parse
            each header.
        pause_after_header: whether the decoder is paused after the header, as it is after a window.
        paced: whether work is done in small pieces, for which `next_event` returns `NEED_TURN`.

    Raises:
        LocalProtocolError: the limits are not those of `headers`.

    Example:
        >>> import numpy as np
        >>> from streamcodec import encode_request
        >>> from streamcodec.formats.frame import Kind, encode_frame, request_frame_decoder
        >>> frame = b"".join(encode_frame(encode_request({"x": np.ones(3)}), Kind.REQUEST).buffers)
        >>> decoder = request_frame_decoder()
        >>> decoder.feed(frame + b"the next frame") == len(frame)
        True
        >>> [type(decoder.next_event()).__name__ for _ in range(3)]
        ['HeaderReceived', 'TensorReceived', 'EndOfMessage']
    """
    parse, limits = header_parser(parse_request_header, limits, headers)
    frame = _Frame(Kind.REQUEST, parse, long_request_header)
    return _decoder(frame, limits, check, place, pause_after_header=pause_after_header, paced=paced)


def response_frame_decoder(
    *,
    limits: Limits | None = None,
    check: Callable[[ResponseHeader], None] | None = None,
    place: Place = new_array,
    headers: HeaderCache[ResponseHeader] | None = None,
    pause_after_header: bool = False,
    paced: bool = False,
) -> Decoder[ResponseHeader]:
    """Make a decoder for one frame that holds an inference response.

    The arguments are those of `request_frame_decoder`.
    """
    parse, limits = header_parser(parse_response_header, limits, headers)
    frame = _Frame(Kind.RESPONSE, parse, long_response_header)
    return _decoder(frame, limits, check, place, pause_after_header=pause_after_header, paced=paced)


def _decoder(
    frame: _Frame[MessageT],
    limits: Limits,
    check: Callable[[MessageT], None] | None,
    place: Place,
    *,
    pause_after_header: bool,
    paced: bool,
) -> Decoder[MessageT]:
    return Decoder(
        Machine(
            frame.read,
            read_end=frame.read_end,
            length=None,
            limits=limits,
            check=check,
            place=place,
            pause_after_header=pause_after_header,
            paced=paced,
        )
    )
