"""The machine: what a message is, written from top to bottom like blocking code.

One generator reads the header, checks it, and then each tensor. Where blocking code would read, it yields a *target*,
the memory to be filled, and is resumed once, with the number of bytes that came, when the target is full or the input
has ended. So it knows nothing of how bytes are cut, and costs the same however they are.

Usually the length of the header is declared, and no target reaches beyond the part it is for. Where it is not, the
header is read in blocks, each as long as all before it. The last one may reach into the tensors; what it has of them is
*ahead*, and is copied to its place when that is known. So no more is copied than the header is long, or one block.

It may one day yield several targets at once (for `recvmsg_into`); a placement may already yield several slabs for one
tensor. It does not know the `Decoder` that drives it: neither refers back to the other, so the memory of a message that
is given up is free at once, without waiting for the garbage collector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic

import numpy as np

from streamcodec.core.elements import decode_elements
from streamcodec.core.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError
from streamcodec.core.events import EndOfMessage, HeaderReceived, HeaderT, TensorReceived
from streamcodec.core.header import check_tensor_bytes
from streamcodec.core.limits import Limits
from streamcodec.core.model import TensorSpec
from streamcodec.core.objectend import WHITE_SPACE, ObjectEnd
from streamcodec.core.placement import Place, Slab, aligned_bytes, byte_view

Text = bytes | memoryview
"""A whole JSON header."""

Fill = Generator[memoryview, int, None]
"""A part of the machine: yields targets, is sent the number of bytes that came."""

_BLOCK_BYTES = 64 << 10
"""Read at once, at first, where nobody has declared how much is to come."""

_NOTHING = memoryview(b"")
"""An empty view that keeps no memory alive, as an empty part of some memory would."""


class Machine(Generic[HeaderT]):
    """Reads one message.

    Attributes:
        events: what has been read, in order; whoever drives the machine takes them out.
        work: bytes that are looked at, one by one, as soon as the current target is full.
    """

    def __init__(
        self,
        parse_header: Callable[[Text, Limits], HeaderT],
        *,
        header_length: int | None,
        body_length: int | None,
        limits: Limits,
        check: Callable[[HeaderT], None] | None,
        place: Place,
        allow_headerless: bool = False,
        given: HeaderT | None = None,
    ) -> None:
        """Prepare; the arguments are those of `request_decoder`, and a header if it is known beforehand."""
        if min(header_length or 0, body_length or 0) < 0:
            msg = "a length is negative"
            raise LocalProtocolError(msg)
        self._parse_header = parse_header
        self._header_length = header_length
        self._body_length = body_length
        self._limits = limits
        self._check = check
        self._place = place
        self._given = given
        self._is_headerless = allow_headerless and header_length is None
        self._position = 0
        self._ahead = _NOTHING
        self._has_ended = False
        self.events: deque[HeaderReceived[HeaderT] | TensorReceived | EndOfMessage] = deque()
        self.work = 0

    @property
    def offset(self) -> int:
        """Bytes of the message up to the current target."""
        return self._position + len(self._ahead)

    def run(self) -> Fill:
        """Read one message; yields targets, is sent how many bytes came, fewer than wanted only at the end of input."""
        if self._given is None:
            header = yield from self._read_header()
        else:
            header = self._given
            for spec in header.tensors:
                check_tensor_bytes(spec.nbytes, self._limits, None)
        if self._check is not None:
            self._check(header)
        self.events.append(HeaderReceived(header=header))
        for spec in header.tensors:
            if not spec.datatype.is_bytes:
                yield from self._read_values(spec)
            elif spec.data is not None:
                self.events.append(TensorReceived(spec=spec, array=spec.data))
            else:
                yield from self._read_elements(spec)
        if self._is_headerless:
            yield from self._expect_end()
        self.events.append(EndOfMessage(nbytes=self._position))

    def _read_header(self) -> Generator[memoryview, int, HeaderT]:
        """Read the JSON header and check that header and tensors fill the body exactly."""
        self._check_message_length(self._body_length or 0)
        length = self._body_length if self._header_length is None else self._header_length
        if length == 0:
            self._refuse_empty()
        if self._is_headerless or length is None:
            data = yield from self._read_blocks()
        else:
            self._check_header_length(length)
            data = aligned_bytes(length).data
            yield from self._fill(data, work=length)
        header = self._parse_header(data, self._limits)
        tensor_bytes = sum(spec.nbytes for spec in header.tensors)
        if self._is_headerless and not tensor_bytes:
            yield from self._skip_white_space()
            return header
        end = len(data) + tensor_bytes
        # If the whole body was the header, then there are no bytes for binary tensors.
        is_whole_body = self._header_length is None and not self._is_headerless
        body = len(data) if is_whole_body else self._body_length
        if body is not None and body != end:
            msg = f"the body has {body} bytes, its header and tensors need {end}"
            raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(body, end))
        return header

    def _read_blocks(self) -> Generator[memoryview, int, memoryview]:
        """Read a header whose length nobody has declared: to the end of its object, or to that of the input."""
        finder = ObjectEnd() if self._is_headerless else None
        most = min(self._limits.max_header_bytes, self._limits.max_message_bytes) + 1
        if self._body_length is not None:
            most = min(most, self._body_length)
        # Memory that is never written to costs nothing, and header and tensors need not be moved out of it.
        data = aligned_bytes(_BLOCK_BYTES if self._body_length is None else most).data
        filled, end = 0, None
        while end is None and filled != self._body_length and not self._has_ended:
            room = min(max(filled, _BLOCK_BYTES), most - filled)
            data = _with_room(data, filled, room)
            block = data[filled : filled + room]
            yield from self._read_ahead(block, work=filled + room)
            end = None if finder is None else finder.find(self._ahead)
            filled += len(self._ahead)
            self._ahead = data[:filled]
            self._check_header_length(filled if end is None else end)
        if end is None and self._body_length is not None and filled < self._body_length:
            raise self._truncated(self._body_length - filled)
        if filled == 0:
            self._refuse_empty()
        self._position = filled if end is None else end
        self._ahead = data[self._position : filled] or _NOTHING
        return data[: self._position]

    def _skip_white_space(self) -> Fill:
        """Read to the end of a body that is all header; white space may follow its object."""
        while True:
            rest = bytes(self._ahead).lstrip(WHITE_SPACE)
            self._position += len(self._ahead) - len(rest)
            self._ahead = self._ahead[len(self._ahead) - len(rest) :] or _NOTHING
            if rest:
                raise self._trailing_bytes()
            self._check_header_length(self._position)
            missing = _BLOCK_BYTES if self._body_length is None else self._body_length - self._position
            if missing and self._has_ended and self._body_length is not None:
                raise self._truncated(missing)
            if not missing or self._has_ended:
                return
            yield from self._read_ahead(aligned_bytes(min(missing, _BLOCK_BYTES)).data, work=0)

    def _expect_end(self) -> Fill:
        """Insist that the body ends with the last tensor, where its length could not be compared beforehand."""
        if self._body_length is None and not self._ahead and not self._has_ended:
            yield from self._read_ahead(aligned_bytes(1).data, work=0)
        if self._ahead:
            raise self._trailing_bytes()

    def _read_ahead(self, block: memoryview, *, work: int) -> Fill:
        """Read a block that may reach beyond the part of the message that is being read."""
        self.work = work
        came = yield block
        self._has_ended = came < len(block)
        self._ahead = block[:came]

    def _refuse_empty(self) -> None:
        msg = "the body is empty; an inference message starts with a JSON header"
        raise RemoteProtocolError(msg, code=ErrorCode.EMPTY_BODY, offset=0)

    def _check_header_length(self, length: int) -> None:
        if self._body_length is not None and length > self._body_length:
            msg = f"the declared header length {length} exceeds the body's {self._body_length} bytes"
            raise RemoteProtocolError(msg, code=ErrorCode.HEADER_EXCEEDS_BODY, offset=0)
        allowed = self._limits.max_header_bytes
        if length > allowed:
            msg = f"the header has {length} bytes or more, {allowed} are allowed"
            raise LimitExceededError(msg, limit="max_header_bytes", offset=0)
        self._check_message_length(length)

    def _check_message_length(self, length: int) -> None:
        allowed = self._limits.max_message_bytes
        if length > allowed:
            msg = f"the message has {length} bytes or more, {allowed} are allowed"
            raise LimitExceededError(msg, limit="max_message_bytes", offset=0)

    def _read_values(self, spec: TensorSpec) -> Fill:
        """Fill the slabs of one tensor, from the message or from the values that came as JSON."""
        values = None if spec.data is None else byte_view(spec.data)
        position, end = 0, spec.count * spec.datatype.itemsize
        for slab in self._place(spec).slabs(spec):
            start, position = position, position + len(slab.buffer)
            if position > end:
                break
            if values is not None:
                slab.buffer[:] = values[start:position]
            elif slab.buffer:
                is_bool = spec.datatype.kind == "b"
                yield from self._fill(slab.buffer, work=is_bool * len(slab.buffer))
                if is_bool:
                    self._check_booleans(slab)
            self.events.append(TensorReceived(spec=spec, array=slab.array))
        if position != end:
            msg = f"the placement gave {position} bytes of memory or more, the tensor has {end}"
            raise LocalProtocolError(msg)

    def _read_elements(self, spec: TensorSpec) -> Fill:
        """Read a binary BYTES tensor: its wire form whole, then its elements."""
        scratch = aligned_bytes(spec.nbytes).data
        start = self._position
        if scratch:
            yield from self._fill(scratch, work=len(scratch))
        if spec.is_single_element:
            array = np.empty(1, dtype=object)
            array[0] = bytes(scratch)
        else:
            array = decode_elements(scratch, count=spec.count, offset=start)
        self.events.append(TensorReceived(spec=spec, array=array.reshape(spec.shape)))

    def _check_booleans(self, slab: Slab) -> None:
        """Specification: "For BOOL type element true is a single byte with value 1 and false [...] with value 0"."""
        values = np.frombuffer(slab.buffer, np.uint8)
        if values.max() > 1:
            offset = self._position - len(values) + int(np.argmax(values > 1))
            msg = "a byte of a BOOL tensor is neither 0 nor 1"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_BOOL, offset=offset)

    def _fill(self, target: memoryview, *, work: int) -> Fill:
        """Yield a target and insist on all of it; what has been read ahead needs no yielding."""
        self.work = work
        filled = 0
        if self._ahead:
            filled = min(len(self._ahead), len(target))
            target[:filled] = self._ahead[:filled]
            self._ahead = self._ahead[filled:] or _NOTHING
        if filled < len(target) and not self._has_ended:
            filled += yield target[filled:]
        self._position += filled
        if filled < len(target):
            raise self._truncated(len(target) - filled)

    def _truncated(self, missing: int) -> RemoteProtocolError:
        msg = f"the message ends {missing} bytes too early"
        return RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self.offset)

    def _trailing_bytes(self) -> RemoteProtocolError:
        msg = "the body goes on after the message has ended"
        return RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=self._position)


def _with_room(data: memoryview, filled: int, room: int) -> memoryview:
    """Return memory for so many more bytes, the same if there is room already."""
    if filled + room <= len(data):
        return data
    larger = aligned_bytes(filled + room).data
    larger[:filled] = data[:filled]
    return larger
