"""The machine: what a message is, written from top to bottom like blocking code.

One generator reads the header, checks it, and then each tensor. Where blocking code would read, it yields a *target*,
the memory to be filled, and is resumed once, with the number of bytes that came, when the target is full or the input
has ended. So it knows nothing of how bytes are cut, and costs the same however they are.

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
from streamcodec.core.placement import Place, Slab, aligned_bytes, byte_view

Text = bytes | memoryview
"""A whole JSON header."""

Fill = Generator[memoryview, int, None]
"""A part of the machine: yields targets, is sent the number of bytes that came."""

_GROWTH_BYTES = 64 << 10
"""Scratch is taken in such blocks while a header of unknown length comes in."""


class Machine(Generic[HeaderT]):
    """Reads one message.

    Attributes:
        events: what has been read, in order; whoever drives the machine takes them out.
        offset: bytes of the message up to the current target.
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
        self.events: deque[HeaderReceived[HeaderT] | TensorReceived | EndOfMessage] = deque()
        self.offset = 0
        self.work = 0

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
        self.events.append(EndOfMessage(nbytes=self.offset))

    def _read_header(self) -> Generator[memoryview, int, HeaderT]:
        """Read the JSON header and check that header and tensors fill the body exactly."""
        length = self._body_length if self._header_length is None else self._header_length
        if length == 0:
            self._refuse_empty()
        if length is None:
            data: Text = yield from self._read_to_end()
        else:
            self._check_header_length(length)
            data = aligned_bytes(length).data
            yield from self._fill(data, work=length)
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
        most = min(self._limits.max_header_bytes, self._limits.max_message_bytes)
        while True:
            room = min(_GROWTH_BYTES, most + 1 - self.offset)
            block = aligned_bytes(room).data
            self.work = self.offset + room
            filled = yield block
            self.offset += filled
            blocks.append(block[:filled])
            self._check_header_length(self.offset)
            if filled < room:
                break
        if self.offset == 0:
            self._refuse_empty()
        return b"".join(blocks)

    def _refuse_empty(self) -> None:
        msg = "the body is empty; an inference message starts with a JSON header"
        raise RemoteProtocolError(msg, code=ErrorCode.EMPTY_BODY, offset=0)

    def _check_header_length(self, length: int) -> None:
        if self._body_length is not None and length > self._body_length:
            msg = f"the declared header length {length} exceeds the body's {self._body_length} bytes"
            raise RemoteProtocolError(msg, code=ErrorCode.HEADER_EXCEEDS_BODY, offset=0)
        for limit in ("max_header_bytes", "max_message_bytes"):
            allowed = getattr(self._limits, limit)
            if length > allowed:
                msg = f"the header has {length} bytes or more, {allowed} are allowed"
                raise LimitExceededError(msg, limit=limit, offset=0)

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
        start = self.offset
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
            offset = self.offset - len(values) + int(np.argmax(values > 1))
            msg = "a byte of a BOOL tensor is neither 0 nor 1"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_BOOL, offset=offset)

    def _fill(self, target: memoryview, *, work: int) -> Fill:
        """Yield a target and insist on all of it."""
        self.work = work
        filled = yield target
        self.offset += filled
        if filled < len(target):
            msg = f"the message ends {len(target) - filled} bytes too early"
            raise RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self.offset)
