"""Inflate: decompression of a body, piece by piece, with bounds on memory and time.

Two values of `Content-Encoding` are supported: gzip (RFC 1952, one or several members) and deflate (RFC 9110: the zlib
format; also the bare deflate stream that some clients send under that name). The lengths in a message count
decompressed bytes. So this module stands between HTTP and the decoder, and knows neither of them.

A decompression bomb has no effect. At most one small piece is decompressed ahead of the consumer, and the ratio of
output to input is limited. A piece also takes little time: it is one call of zlib with little input and little output.
So a piece may be empty.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from streamcodec.engine.arguments import not_field_values
from streamcodec.engine.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    OutOfMemoryError,
    RemoteProtocolError,
    shown,
)
from streamcodec.engine.limits import Limits

ENCODINGS: Final = ("gzip", "deflate")
"""The supported values of `Content-Encoding`, besides `identity`."""

_PIECE_BYTES: Final = 64 << 10
SHORT_INPUT_BYTES: Final = 16 << 10
"""Bytes of input for one call of zlib. Some input takes long and gives no output: empty blocks with large tables."""

FREE_BYTES: Final = 64 << 10
"""The ratio counts only beyond this much output: tiny bodies may compress very well."""

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_ZLIB_WINDOW: Final = zlib.MAX_WBITS
_RAW_WINDOW: Final = -zlib.MAX_WBITS


def parse_content_encoding(values: Sequence[bytes]) -> str | None:
    """Read the values of all `Content-Encoding` fields of a head.

    Returns:
        `gzip` or `deflate`, for an `Inflater`; None for a body without compression: no field, or `identity`. RFC 9110,
        section 8.4.1.3: `x-gzip` is gzip.

    Raises:
        RemoteProtocolError: `unsupported-encoding`, status 415: another encoding, or several.
        LocalProtocolError: the values are not a list of bytes.
    """
    # As bytes: HTTP has only two blank characters, and only ASCII letters are case-insensitive.
    try:
        encoding = b",".join(values).strip(b" \t").lower().decode("latin-1")
    except TypeError:
        raise not_field_values() from None
    if encoding in {"", "identity"}:
        return None
    encoding = "gzip" if encoding == "x-gzip" else encoding
    if encoding not in ENCODINGS:
        msg = f"a body can be encoded with {' or '.join(ENCODINGS)}, and not with {shown(encoding)}"
        raise RemoteProtocolError(msg, code=ErrorCode.UNSUPPORTED_ENCODING, status_hint=415)
    return encoding


def checked_encoding(encoding: str) -> str:
    """Return an encoding that this program has chosen.

    Raises:
        LocalProtocolError: it is not one of `ENCODINGS`.
    """
    if encoding not in ENCODINGS:
        msg = f"an encoding is {' or '.join(ENCODINGS)}, not {encoding!r}"
        raise LocalProtocolError(msg)
    return encoding


class Inflater:
    """Decompresses one body.

    Attributes:
        has_more: whether the iterator of `inflate` has more to do after the last piece than to end.
    """

    def __init__(self, encoding: str, limits: Limits) -> None:
        """Prepare for the first byte.

        Args:
            encoding: one of `ENCODINGS`.
            limits: `max_compression_ratio` applies.

        Raises:
            LocalProtocolError: another encoding; `parse_content_encoding` would have refused it.
        """
        self._is_gzip = checked_encoding(encoding) == "gzip"
        self._limits = limits
        self._stream = zlib.decompressobj(_GZIP_WINDOW) if self._is_gzip else None
        self._start = b""
        self._taken = 0
        self._given = 0
        self.has_more: bool = False

    def inflate(self, chunk: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Yield what the next compressed bytes decompress to, in pieces of at most 64 KiB.

        Each step of the iterator takes a bounded time, for which a piece may be empty.

        The iterator must be exhausted before the next call; leaving it early means giving up the body.

        Raises:
            RemoteProtocolError: `invalid-compression`: damaged, or bytes after the end.
            LimitExceededError: the output is more than `max_compression_ratio` times the input.
        """
        # zlib copies the input that it has not consumed at every call, so a large chunk is split.
        for start in range(0, len(chunk), SHORT_INPUT_BYTES):
            end = start + SHORT_INPUT_BYTES
            yield from self._inflate(bytes(chunk[start:end]), is_last=end >= len(chunk))

    def finish(self) -> None:
        """Tell that the compressed bytes have ended.

        Raises:
            RemoteProtocolError: `invalid-compression`: they ended too early.
            LimitExceededError: the whole output is more than `max_compression_ratio` times the input.
        """
        if self._stream is None or not self._stream.eof:
            msg = "the compressed body ends too early"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_COMPRESSION)
        self._check_ratio()

    def _inflate(self, data: bytes, *, is_last: bool) -> Iterator[bytes]:
        stream, data = self._stream, self._start + data
        self._start = b""
        if stream is None:
            if len(data) < _ZLIB_HEADER_BYTES:
                self._start = data
                return
            stream = self._stream = zlib.decompressobj(_ZLIB_WINDOW if _is_zlib(data) else _RAW_WINDOW)
        has_more = False
        while data or has_more:
            if stream.eof:
                stream = self._stream = self._next_member()
            # Pieces end at fixed places of the output, so that no verdict depends on how the input was cut.
            room = _PIECE_BYTES - self._given % _PIECE_BYTES
            before = stream.copy()
            try:
                piece = stream.decompress(data, room)
            except zlib.error as error:
                if str(error).startswith(_NO_MEMORY):
                    raise OutOfMemoryError("there is no memory to decompress the body") from None
                yield _up_to_damage(before, data)
                reason = str(error).partition(": ")[2]  # without the number that zlib has for it
                msg = f"the compressed body is damaged: {_PLAINER.get(reason, reason)}"
                raise RemoteProtocolError(msg, code=ErrorCode.INVALID_COMPRESSION) from None
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            self._taken += len(data) - len(rest)
            self._given += len(piece)
            data = rest
            # A full piece may leave output behind in zlib although all input is consumed.
            has_more = len(piece) == room and not stream.eof
            self.has_more = bool(data) or has_more or not is_last
            yield piece
            if has_more:
                self._check_ratio()

    def _next_member(self) -> zlib._Decompress:
        if self._is_gzip:
            return zlib.decompressobj(_GZIP_WINDOW)
        msg = "bytes follow the end of the compressed body"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_COMPRESSION)

    def _check_ratio(self) -> None:
        limit = self._limits.max_compression_ratio
        if self._given > FREE_BYTES + limit * self._taken:
            msg = f"the body decompresses to more than {limit} times its size"
            raise LimitExceededError(msg, limit="max_compression_ratio")


def inflate_short(data: memoryview) -> bytes | None:
    """Decompress a short body with gzip at once: up to 16 KiB of input, one member, and up to 64 KiB of output.

    Returns:
        What an `Inflater` would yield; None if that has to do it, or to refuse it.
    """
    if len(data) > SHORT_INPUT_BYTES:
        return None
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        whole = stream.decompress(data, FREE_BYTES + 1)  # the end is found only if there is room
    except zlib.error:
        return None
    return whole if stream.eof and not stream.unused_data and len(whole) <= FREE_BYTES else None


_NO_MEMORY: Final = "Error -4 "
"""What zlib's text begins with if `Z_MEM_ERROR` is what has failed, and not the body."""

_PLAINER: Final = {
    "": "it was compressed with a dictionary of its own",
    "incorrect header check": "it does not begin as its Content-Encoding does",
    "incorrect data check": "its content does not have the checksum at its end",
    "incorrect length check": "its content does not have the length at its end",
}
"""What zlib's shortest words stand for. It has none where a dictionary is wanted, which HTTP does not have."""


def _up_to_damage(stream: zlib._Decompress, data: bytes) -> bytes:
    """Return what comes before the damage, no more than the call would have given: zlib drops it when that fails.

    Which byte it is that fails is found by halves, so that all this costs little more than another such call.
    """
    given = []
    while data:
        half = (len(data) + 1) // 2
        before = stream.copy()
        try:
            given.append(stream.decompress(data[:half]))
            data = data[half:]
        except zlib.error:
            stream, data = before, data[: half if half < len(data) else 0]
    return b"".join(given)


_ZLIB_HEADER_BYTES: Final = 2


def _is_zlib(data: bytes) -> bool:
    """Tell the zlib format from a bare deflate stream by the two bytes of its header (RFC 1950, section 2.2)."""
    deflate_method = 8
    return data[0] & 15 == deflate_method and (data[0] << 8 | data[1]) % 31 == 0
