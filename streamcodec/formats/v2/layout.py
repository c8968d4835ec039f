"""The layout of a V2 message: where its JSON header ends, and whether header and tensors fill the body exactly.

Usually HTTP declares the length of the header (`Inference-Header-Content-Length`). Without that field the whole body is
the header. Some clients send tensors after the header without that field; if this is allowed, the end of the header has
to be searched for. A header that is longer than a block is parsed while its bytes come; see `jsonstream.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic

from streamcodec.engine.arguments import checked_length
from streamcodec.engine.errors import (
    ErrorCode,
    LimitExceededError,
    MessageError,
    RemoteProtocolError,
)
from streamcodec.engine.json.objectend import WHITE_SPACE, ObjectEnd, goes_on
from streamcodec.engine.json.scan import LONG_BYTES
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import scratch_bytes
from streamcodec.engine.reader import Fill, Reader, Reading
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.formats.v2.header.parsing import WHOLE_BYTES, LongHeader
from streamcodec.formats.v2.model import MessageT

Text = bytes | memoryview
"""A whole JSON header."""

StreamHeader = Callable[[Limits, int | None], LongHeader[MessageT]]
"""Makes the reader of a long header; the arguments are those of `long_request_header`."""

_CLOSING_BRACE: Final = ord("}")

_LITTLE_TEXT_BYTES: Final = 4 << 10
"""Bytes of a header that is parsed without a turn. It takes some tenths of a millisecond at most."""


class Layout(Generic[MessageT]):
    """Reads the header of one message, wherever it ends, and checks the end of the message.

    Attributes:
        is_headerless: whether tensors may follow a header of undeclared length. Then `read_end` is needed, too.
    """

    __slots__ = ("_header_length", "_is_header_only", "_parse_header", "_stream_header", "is_headerless")

    def __init__(
        self,
        parse_header: Callable[[Text, Limits], MessageT],
        stream_header: StreamHeader[MessageT],
        header_length: int | None,
        allow_headerless: bool,  # noqa: FBT001 - a class takes keywords slowly
        *,
        is_header_only: bool = False,
    ) -> None:
        """Prepare.

        Args:
            parse_header: parses a short header.
            stream_header: makes the reader of a long header.
            header_length: as for `request_decoder`.
            allow_headerless: as for `request_decoder`.
            is_header_only: whether the body ends with the header, because its tensors are elsewhere.

        Raises:
            LocalProtocolError: the length is negative, or no integer.
        """
        if header_length is not None and (type(header_length) is not int or header_length < 0):
            header_length = checked_length("header_length", header_length)
        self._parse_header = parse_header
        self._stream_header = stream_header
        self._header_length = header_length
        self._is_header_only = is_header_only
        self.is_headerless: bool = allow_headerless and header_length is None

    def read(self, reader: Reader) -> Reading[MessageT]:
        """Read the JSON header and check that header and tensors fill the body exactly."""
        reader.check_message_length(reader.length or 0)
        length = reader.length if self._header_length is None else self._header_length
        if length == 0:
            self._refuse_empty()
        if self.is_headerless or length is None:
            header, end = yield from self._read_undeclared(reader)
        else:
            self._check_header_length(reader, length)
            if length > LONG_BYTES:
                header = yield from self._read_long(reader, length)
            else:
                text = scratch_bytes(length)
                yield from reader.fill(text)
                reader.held_bytes = length
                if length > _LITTLE_TEXT_BYTES:
                    yield from reader.turn()
                header = self._parse(reader, text)
            end = length
            if self._is_header_only:
                return header
        tensor_bytes = 0
        for spec in header.tensors:  # half the time of a `sum`, for the one tensor that most messages have
            tensor_bytes += spec.nbytes
        if self.is_headerless and not tensor_bytes:
            yield from self._skip_white_space(reader)
            return header
        header_end, end = end, end + tensor_bytes
        # If the whole body was the header, then there are no bytes for binary tensors.
        is_whole_body = self._header_length is None and not self.is_headerless
        body = header_end if is_whole_body else reader.length
        if body is not None and body != end:
            msg = f"the body has {body} bytes, its header and tensors need {end}"
            if is_whole_body or body > end:
                msg += self._if_undeclared
            raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(body, end))
        return header

    def read_end(self, reader: Reader) -> Fill:
        """Check that the body ends with the last tensor, if the length of the body was not known before."""
        if reader.length is not None:
            return
        if (yield from reader.look_ahead(scratch_bytes(1))):
            error = reader.trailing_bytes()
            error.message += self._if_undeclared
            raise error

    def _read_long(self, reader: Reader, length: int) -> Reading[MessageT]:
        """Read a long header of known length."""
        if length <= WHOLE_BYTES and reader.on_filled is None:
            text = yield from reader.look_ahead(scratch_bytes(length))
            if len(text) == length and (whole := (yield from self._parse_whole(reader, text))) is not None:
                return whole
        stream = self._stream_header(reader.limits, length)
        start, block = 0, scratch_bytes(LONG_BYTES)
        while start < length:
            block = _block(stream, block)
            part = block[: length - start]
            yield from reader.fill(part)
            yield from self._stream(reader, stream, part)
            start += len(part)
        return (yield from reader.in_turns(stream.finish(length)))

    def _read_undeclared(self, reader: Reader) -> Reading[tuple[MessageT, int]]:
        """Read a header of undeclared length, to the end of its JSON object or of the input.

        Returns:
            The header, and its length.
        """
        if (whole := (yield from self._read_whole(reader))) is not None:
            return whole, reader.position
        finder = ObjectEnd() if self.is_headerless else None
        stream: LongHeader[MessageT] | None = None
        block = scratch_bytes(LONG_BYTES)
        while True:
            if stream is not None:
                block = _block(stream, block)
            part, is_over = yield from self._read_block(reader, block, finder)
            if stream is None and is_over:
                reader.held_bytes = len(part)
                if len(part) > _LITTLE_TEXT_BYTES:
                    yield from reader.turn()
                return self._parse(reader, part), reader.position
            if stream is None:
                stream = self._stream_header(reader.limits, None)
            yield from self._stream(reader, stream, part)
            if is_over:
                header = yield from reader.in_turns(stream.finish(reader.position))
                return header, reader.position

    def _read_whole(self, reader: Reader) -> Reading[MessageT | None]:
        """Read a body that is one JSON object and nothing else, as nearly all of undeclared length are.

        Such an object ends with the last byte, so its end need not be searched for. If that turns out wrong, nothing
        has been used, and the ordinary way begins. An error with a path is that of an object that was parsed.

        Returns:
            The header; None if the ordinary way has to decide.
        """
        length = reader.length
        if not length or length > min(WHOLE_BYTES, reader.limits.max_header_bytes):
            return None
        text = yield from reader.look_ahead(scratch_bytes(length))
        if len(text) < length or text[-1] != _CLOSING_BRACE:
            return None
        return (yield from self._parse_whole(reader, text))

    def _parse_whole(self, reader: Reader, text: memoryview) -> Reading[MessageT | None]:
        """Parse a header whose bytes are all ahead; None if the ordinary way has to decide."""
        if len(text) > _LITTLE_TEXT_BYTES:
            yield from reader.turn()
        reader.held_bytes = len(text)
        header: MessageT | None
        if len(text) > LONG_BYTES:
            header = self._stream_header(reader.limits, len(text)).parse_whole(text)
        else:
            try:
                header = self._parse_header(text, reader.limits)
            except MessageError as error:
                if error.path is not None:
                    raise
                return None
        if header is not None:
            reader.skip(len(text))
        return header

    def _read_block(
        self, reader: Reader, block: memoryview, finder: ObjectEnd | None
    ) -> Reading[tuple[memoryview, bool]]:
        """Read a block of a header of unknown length; return its bytes of the header, and whether the header ends."""
        most = min(reader.limits.max_header_bytes, reader.limits.max_message_bytes) + 1
        if reader.length is not None:
            most = min(most, reader.length)
        start = reader.position
        room = block[: most - start]
        part = (yield from reader.look_ahead(room))[: len(room)]
        has_ended = reader.has_ended and len(part) < len(room)
        end = None if finder is None else finder.find(part)
        reader.skip(len(part) if end is None else end - start)
        self._check_header_length(reader, reader.position)
        is_over = end is not None or has_ended or reader.position == reader.length
        if end is None and has_ended and reader.position < (reader.length or 0):
            raise reader.truncated((reader.length or 0) - reader.position)
        if reader.position == 0:
            self._refuse_empty()
        return part[: reader.position - start], is_over

    def _parse(self, reader: Reader, data: memoryview) -> MessageT:
        """Parse a header that is not long."""
        try:
            return self._parse_header(data, reader.limits)
        except MessageError as error:
            if goes_on(data):
                error.message += self._if_undeclared
            raise

    def _stream(self, reader: Reader, stream: LongHeader[MessageT], part: memoryview) -> Fill:
        """Read a part of a long header."""
        yield from reader.turn()
        try:
            yield from reader.in_turns(stream.feed(bytes(part)))
        except MessageError as error:
            if stream.goes_on:
                error.message += self._if_undeclared
            raise
        reader.held_bytes = len(part) + stream.held_bytes

    def _skip_white_space(self, reader: Reader) -> Fill:
        """Read to the end of a body without tensors; only white space may follow its JSON object."""
        while True:
            part = bytes(reader.ahead)
            blanks = len(part) - len(part.lstrip(WHITE_SPACE))
            reader.skip(blanks)
            if blanks < len(part):
                raise reader.trailing_bytes()
            self._check_header_length(reader, reader.position)
            missing = LONG_BYTES if reader.length is None else reader.length - reader.position
            if missing and reader.has_ended and reader.length is not None:
                raise reader.truncated(missing)
            if not missing or reader.has_ended:
                return
            yield from reader.look_ahead(scratch_bytes(min(missing, LONG_BYTES)))

    def _refuse_empty(self) -> None:
        msg = "the body is empty; an inference message starts with a JSON header"
        raise RemoteProtocolError(msg, code=ErrorCode.EMPTY_BODY, offset=0)

    def _check_header_length(self, reader: Reader, length: int) -> None:
        try:
            reader.check_header_length(length)
        except LimitExceededError as error:
            if error.limit == "max_header_bytes" and not self.is_headerless:
                error.message += self._if_undeclared
            raise

    @property
    def _if_undeclared(self) -> str:
        """A hint for errors about the length of a body, if the length of its header is not declared."""
        missing = f"; {HEADER_LENGTH_FIELD} is missing, which says where binary tensors begin"
        return missing if self._header_length is None else ""


def _block(stream: LongHeader[MessageT], before: memoryview) -> memoryview:
    """Return memory for the next block of a header, that of the block before if it is as long."""
    return before if len(before) == stream.block_bytes else scratch_bytes(stream.block_bytes)
