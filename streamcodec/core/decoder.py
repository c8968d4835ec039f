"""The decoder: the engine that turns the bytes of one message into events and filled arrays.

Theory. At any moment the decoder has exactly one *target*: a writable view of the memory that the next bytes of the
message belong to. While the JSON header is read, that is scratch memory of exactly the declared length; after that it
is the memory of the tensor being filled. The target never reaches past the message, so reading too far is impossible.

There are two faces. The *pull face* hands the target out: `get_buffer()`, read into it, `buffer_updated(nbytes)`. The
*push face*, `feed(chunk)`, is written on the pull face: it copies the chunk into the same targets. One path, hence one
behaviour: how the bytes were cut cannot change the events, the arrays, or the error and its offset.

The machine itself is one generator that reads from top to bottom like blocking code: it yields a target to have it
filled and is resumed once, with the number of bytes that came, when the target is full or the input has ended. What a
message costs therefore does not depend on how it was cut.

Room for what comes: the generator may one day yield several targets at once (for `recvmsg_into`), and a placement may
already yield several slabs for one tensor.

This room knows no transport, no clock and no HTTP; the two lengths that HTTP declares are arguments.

States::

              target filled
             +-----------+
             v           |
    start -> needs bytes + -> complete
                  |
                  +-> failed (a rule was broken, or a callback raised): stays failed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic

import numpy as np

from streamcodec.core.elements import decode_elements
from streamcodec.core.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    RemoteProtocolError,
)
from streamcodec.core.events import (
    NEED_DATA,
    EndOfMessage,
    HeaderReceived,
    HeaderT,
    NeedData,
    TensorReceived,
)
from streamcodec.core.header import (
    RequestHeader,
    ResponseHeader,
    TensorSpec,
    parse_request_header,
    parse_response_header,
    raw_request_header,
)
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.placement import Place, Slab, aligned_bytes, byte_view, new_array

Buffer = bytes | bytearray | memoryview
"""What the push face takes."""

_Fill = Generator[memoryview, int, None]
"""A part of the machine: yields targets, is sent the number of bytes that came."""

_GROWTH_BYTES = 64 << 10
"""Scratch is taken in such blocks while a header of unknown length comes in."""


class Decoder(Generic[HeaderT]):
    """Decodes one message. Made by `request_decoder` and `response_decoder`."""

    def __init__(
        self,
        parse_header: Callable[[Buffer, Limits], HeaderT],
        *,
        header_length: int | None,
        body_length: int | None,
        limits: Limits,
        check: Callable[[HeaderT], None] | None,
        place: Place,
        given: HeaderT | None = None,
    ) -> None:
        """Prepare for the first byte; see `request_decoder` for the arguments."""
        self._parse_header = parse_header
        self._header_length = header_length
        self._body_length = body_length
        self._limits = limits
        self._check = check
        self._place = place
        self._given = given
        self._events: deque[HeaderReceived[HeaderT] | TensorReceived | EndOfMessage] = deque()
        self._offset = 0
        self._target: memoryview | None = None
        self._filled = 0
        self._failure: Exception | None = None
        self._is_complete = False
        self._machine = self._decode()
        self._resume(None)

    # The pull face

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return the memory that the next bytes of the message belong to.

        Args:
            sizehint: ignored; present so that the method is `asyncio.BufferedProtocol`'s.

        Returns:
            A writable byte view, never empty, that ends where the memory or the message ends. It stays valid until
            `buffer_updated` is called.

        Raises:
            LocalProtocolError: the message is complete, or the call comes from one of the decoder's own callbacks.
            RemoteProtocolError: the message is refused; the same error as from `next_event`.
        """
        target = self._current_target()
        return target[self._filled :] if self._filled else target

    def buffer_updated(self, nbytes: int) -> None:
        """Tell that bytes were written to the start of the last `get_buffer()`.

        Args:
            nbytes: how many; at least 1.

        Raises:
            LocalProtocolError: fewer than 1, more than the buffer holds, or no buffer was to be had.
            RemoteProtocolError: the message has been refused before.
        """
        target = self._current_target()
        filled = self._filled + nbytes
        if nbytes < 1 or filled > len(target):
            msg = f"{nbytes} bytes cannot have been written to a buffer of {len(target) - self._filled}"
            raise LocalProtocolError(msg + "; the end of input is receive_eof()" * (nbytes == 0))
        self._filled = filled
        self._offset += nbytes
        if filled == len(target):
            self._resume(filled)

    def next_event(self) -> HeaderReceived[HeaderT] | TensorReceived | EndOfMessage | NeedData:
        """Return the next event, or `NEED_DATA` if it needs more bytes.

        Raises:
            RemoteProtocolError: the message breaks a rule. Raised after the events before it, again at every call.
            LocalProtocolError: the last event has been returned already, or a callback or placement misbehaved.
        """
        if self._events:
            return self._events.popleft()
        if self._target is not None:
            return NEED_DATA
        raise self._no_target()

    # The push face

    def feed(self, chunk: Buffer) -> int:
        """Copy the chunk's bytes to where they belong; no reference to the chunk is kept.

        Args:
            chunk: the next bytes; any length.

        Returns:
            How many bytes belonged to this message. Fewer than the chunk has when the message ends within it, or when
            it is refused, which `next_event` then reports.

        Raises:
            LocalProtocolError: the call comes from one of the decoder's own callbacks.
            RemoteProtocolError: the message has been refused before.
        """
        if self._is_complete:
            return 0
        source = memoryview(chunk).cast("B")
        taken = 0
        self._current_target()
        while taken < len(source) and self._target is not None:
            target = self.get_buffer()
            count = min(len(target), len(source) - taken)
            target[:count] = source[taken : taken + count]
            self.buffer_updated(count)
            taken += count
        return taken

    # Both faces

    def receive_eof(self) -> None:
        """Tell that no more bytes will come; without effect on a message that is complete or refused."""
        if self._target is not None:
            self._resume(self._filled)

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill: the message is neither complete nor refused."""
        return self._target is not None

    @property
    def is_complete(self) -> bool:
        """Whether the whole message has been received and accepted."""
        return self._is_complete

    @property
    def offset(self) -> int:
        """Bytes of the message taken so far."""
        return self._offset

    def _current_target(self) -> memoryview:
        if self._target is None:
            raise self._no_target()
        return self._target

    def _no_target(self) -> Exception:
        if self._failure is not None:
            return self._failure
        if self._is_complete:
            return LocalProtocolError("the message is complete; make a new decoder for the next one")
        return LocalProtocolError("a decoder cannot be used from its own callbacks, or after one was interrupted")

    # The machine

    def _resume(self, filled: int | None) -> None:
        """Run the machine until it wants the next target filled; None starts it."""
        self._target = None
        self._filled = 0
        try:
            self._target = next(self._machine) if filled is None else self._machine.send(filled)
        except StopIteration:
            self._is_complete = True
        except Exception as failure:  # noqa: BLE001 - a user's callback may raise anything: kept, and reported in order
            self._failure = failure

    def _decode(self) -> _Fill:
        header = self._given or (yield from self._read_header())
        if self._check is not None:
            self._check(header)
        self._events.append(HeaderReceived(header=header))
        for spec in header.tensors:
            if not spec.datatype.is_bytes:
                yield from self._read_values(spec)
            elif spec.data is not None:
                self._events.append(TensorReceived(spec=spec, array=spec.data))
            else:
                yield from self._read_elements(spec)
        self._events.append(EndOfMessage(nbytes=self._offset))

    def _read_header(self) -> Generator[memoryview, int, HeaderT]:
        """Read the JSON header and check that header and tensors fill the body exactly."""
        length = self._body_length if self._header_length is None else self._header_length
        if length == 0:
            self._refuse_empty()
        if length is None:
            data: Buffer = yield from self._read_to_end()
        else:
            self._check_header_length(length)
            data = bytearray(length)
            yield from self._fill(memoryview(data))
        header = self._parse_header(data, self._limits)
        end = len(data) + sum(spec.nbytes for spec in header.tensors)
        # Without a declared header length the whole body was the header, so there are no bytes for binary tensors.
        body = len(data) if self._header_length is None else self._body_length
        if body is not None and body != end:
            msg = f"the body has {body} bytes, its header and tensors need {end}"
            raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(body, end))
        return header

    def _read_to_end(self) -> Generator[memoryview, int, bytes]:
        """Read a body that is all header and whose length nobody has declared."""
        blocks: list[memoryview] = []
        while True:
            room = min(_GROWTH_BYTES, self._limits.max_header_bytes + 1 - self._offset)
            block = memoryview(bytearray(room))
            filled = yield block
            blocks.append(block[:filled])
            self._check_header_length(self._offset)
            if filled < room:
                break
        if self._offset == 0:
            self._refuse_empty()
        return b"".join(blocks)

    def _refuse_empty(self) -> None:
        msg = "the body is empty; an inference message starts with a JSON header"
        raise RemoteProtocolError(msg, code=ErrorCode.EMPTY_BODY, offset=0)

    def _check_header_length(self, length: int) -> None:
        if self._body_length is not None and length > self._body_length:
            msg = f"the declared header length {length} exceeds the body's {self._body_length} bytes"
            raise RemoteProtocolError(msg, code=ErrorCode.HEADER_EXCEEDS_BODY, offset=0)
        if length > self._limits.max_header_bytes:
            msg = f"the header has {length} bytes or more, {self._limits.max_header_bytes} are allowed"
            raise LimitExceededError(msg, limit="max_header_bytes", offset=0)

    def _read_values(self, spec: TensorSpec) -> _Fill:
        """Fill the slabs of one tensor, from the message or from the values that came as JSON."""
        values = None if spec.data is None else byte_view(spec.data)
        position = 0
        for slab in self._place(spec).slabs(spec):
            if values is not None:
                slab.buffer[:] = values[position : position + len(slab.buffer)]
                position += len(slab.buffer)
            elif slab.buffer:
                yield from self._fill(slab.buffer)
                if spec.datatype.kind == "b":
                    self._check_booleans(slab)
            self._events.append(TensorReceived(spec=spec, array=slab.array))

    def _read_elements(self, spec: TensorSpec) -> _Fill:
        """Read a binary BYTES tensor: its wire form whole, then its elements."""
        scratch = aligned_bytes(spec.nbytes).data
        start = self._offset
        if scratch:
            yield from self._fill(scratch)
        if spec.is_single_element:
            array = np.empty(1, dtype=object)
            array[0] = bytes(scratch)
        else:
            array = decode_elements(scratch, count=spec.count, offset=start)
        self._events.append(TensorReceived(spec=spec, array=array.reshape(spec.shape)))

    def _check_booleans(self, slab: Slab) -> None:
        """Specification: "For BOOL type element true is a single byte with value 1 and false [...] with value 0"."""
        values = np.frombuffer(slab.buffer, np.uint8)
        if values.max() > 1:
            offset = self._offset - len(values) + int(np.argmax(values > 1))
            msg = "a byte of a BOOL tensor is neither 0 nor 1"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_BOOL, offset=offset)

    def _fill(self, target: memoryview) -> _Fill:
        """Yield a target and insist on all of it."""
        filled = yield target
        if filled < len(target):
            msg = f"the message ends {len(target) - filled} bytes too early"
            raise RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self._offset)


def request_decoder(
    *,
    header_length: int | None,
    body_length: int | None,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[RequestHeader], None] | None = None,
    place: Place = new_array,
) -> Decoder[RequestHeader]:
    """Make a decoder for one inference request.

    Args:
        header_length: the value of `Inference-Header-Content-Length`, see `parse_header_length`; None if there is
            none, so that the whole body is JSON. For 0, a raw binary request, see `raw_request_decoder`.
        body_length: bytes of the body where they are known beforehand (`Content-Length`), else None. When given, a
            message that does not fill it exactly is refused before any tensor byte is taken.
        limits: caps on everything that is read.
        check: called with the valid header before memory is taken for tensors; raises `RemoteProtocolError` to refuse.
        place: called for each tensor that is not BYTES; says whose memory its bytes go to.

    Example:
        >>> body = b'{"inputs":[{"name":"x","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}}]}'
        >>> decoder = request_decoder(header_length=len(body), body_length=len(body) + 4)
        >>> decoder.feed(body + bytes([1, 0, 2, 0]))
        96
        >>> [type(decoder.next_event()).__name__ for _ in range(3)]
        ['HeaderReceived', 'TensorReceived', 'EndOfMessage']
    """
    return Decoder(
        parse_request_header,
        header_length=header_length,
        body_length=body_length,
        limits=limits,
        check=check,
        place=place,
    )


def raw_request_decoder(
    spec: TensorSpec,
    *,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[RequestHeader], None] | None = None,
    place: Place = new_array,
) -> Decoder[RequestHeader]:
    """Make a decoder for a raw binary request, whose body is one tensor and nothing else.

    Specification, "Raw Binary Request": `Inference-Header-Content-Length` is 0, and what the header would say is
    deduced from the model's metadata and the size of the body.

    Args:
        spec: the tensor, deduced; `nbytes` is the length of the body and `offset` is 0.
        limits: caps on everything that is read.
        check: as for `request_decoder`.
        place: as for `request_decoder`.
    """
    return Decoder(
        parse_request_header,
        header_length=0,
        body_length=spec.nbytes,
        limits=limits,
        check=check,
        place=place,
        given=raw_request_header(spec),
    )


def response_decoder(
    *,
    header_length: int | None,
    body_length: int | None,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[ResponseHeader], None] | None = None,
    place: Place = new_array,
) -> Decoder[ResponseHeader]:
    """Make a decoder for one inference response; the arguments are those of `request_decoder`."""
    return Decoder(
        parse_response_header,
        header_length=header_length,
        body_length=body_length,
        limits=limits,
        check=check,
        place=place,
    )
