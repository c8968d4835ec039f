"""The machine: what a message is, written from top to bottom like blocking code.

One generator reads the header, checks it, and then each tensor. Where blocking code would read, it yields a *target*,
the memory to be filled, and is resumed once, with the number of bytes that came, when the target is full or the input
has ended. So it knows nothing of how bytes are cut, and costs the same however they are.

Usually the length of the header is declared, and no target reaches beyond the part it is for. Where it is not, the
header is read in blocks. The last one may reach into the tensors; what it has of them is *ahead*, and is copied to its
place when that is known. So no more than one block is copied. A header that is longer than a block is parsed while it
comes in; see `jsonstream.py`.

Where memory is to be used again, it yields a *pause* (None) after the event, and is resumed when the consumer has
finished with it. Nothing else knows of windows: to the machine they are slabs, some of which it has to wait after.

A *paced* machine pauses before each piece of work that costs more than copying, too, so that others can have their
turn; `needs_turn` tells such a pause from the other. One that is not paced does all work at once.

It yields one target at a time. But several small tensors in a row may be *placed ahead* of their turn, on request; then
their targets are known, and one read can fill many of them (`recvmsg_into`). What is read stays the same.

It does not know the `Decoder` that drives it: neither refers back to the other, so the memory of a message that is
given up is free at once, without waiting for the garbage collector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np

from streamcodec.core.claims import Claims
from streamcodec.core.elements import Elements
from streamcodec.core.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError
from streamcodec.core.events import EndOfMessage, HeaderReceived, HeaderT, TensorReceived, WindowReceived
from streamcodec.core.framing import HEADER_LENGTH_FIELD
from streamcodec.core.header import LongHeader, check_element_bytes, check_tensor_bytes
from streamcodec.core.jsonscan import LONG_BYTES
from streamcodec.core.limits import Limits
from streamcodec.core.model import TensorSpec
from streamcodec.core.objectend import WHITE_SPACE, ObjectEnd, goes_on
from streamcodec.core.placement import Place, Slab, byte_view, placed_bytes, scratch_bytes
from streamcodec.core.prefixes import PREFIX_BYTES, OffsetFinder

Text = bytes | memoryview
"""A whole JSON header."""

Fill = Generator[memoryview | None, int, None]
"""A part of the machine: yields targets, is sent the number of bytes that came; or yields a pause, None."""

Slabs = Iterator[Slab]

_T = TypeVar("_T")


_HeaderT_co = TypeVar("_HeaderT_co", covariant=True)


class StreamHeader(Protocol[_HeaderT_co]):
    """Makes what reads a long header."""

    def __call__(self, limits: Limits, *, start: int | None = None) -> LongHeader[_HeaderT_co]:
        """Begin with one, of which the length may be known."""
        ...


_LITTLE_TEXT_BYTES: Final = 4 << 10
"""A header of so many bytes is parsed without a turn: it takes some tenths of a millisecond at most."""

_SLICE_BYTES: Final = 1 << 20
"""BYTES and BOOL are looked at as soon as so many bytes have come."""

_LITTLE_SLICE_BYTES: Final = 16 << 10
"""In so many bytes elements are found without a turn."""

_TENSORS_PER_TURN: Final = 32
"""So many tensors in a row are read in one go, since they need no bytes, or since those have come together."""

_AHEAD_BYTES: Final = 16 << 10
"""A tensor of so many bytes may be placed ahead of its turn. With larger ones, a read more does not matter."""

_AHEAD_COUNT: Final = 63
"""So many tensors; with the current target that makes 64, and at most 1 MiB."""

_NOTHING = memoryview(b"")
"""An empty view that keeps no memory alive, as an empty part of some memory would."""


class Machine(Generic[HeaderT]):
    """Reads one message.

    Attributes:
        events: what has been read, in order; whoever drives the machine takes them out.
        needs_turn: whether the machine has paused before a piece of work, and not for the consumer.
        held_bytes: memory taken so far for what is being received, but for the tensors that were placed.
        in_a_row: tensors since others had their turn; whoever drives the machine sets it to 0 when bytes come.
        has_ended: whether the input has; whoever drives the machine says so.
    """

    __slots__ = (
        "_ahead",
        "_body_length",
        "_check",
        "_claims",
        "_given",
        "_header_length",
        "_is_end_known",
        "_is_headerless",
        "_is_paced",
        "_limits",
        "_must_pause",
        "_parse_header",
        "_place",
        "_placed",
        "_position",
        "_stream_header",
        "_unplaced",
        "events",
        "has_ended",
        "held_bytes",
        "in_a_row",
        "needs_turn",
    )

    def __init__(
        self,
        parse_header: Callable[[Text, Limits], HeaderT],
        *,
        header_length: int | None,
        body_length: int | None,
        limits: Limits,
        check: Callable[[HeaderT], None] | None,
        place: Place,
        stream_header: StreamHeader[HeaderT],
        allow_headerless: bool = False,
        given: HeaderT | None = None,
        pause_after_header: bool = False,
        paced: bool = False,
    ) -> None:
        """Prepare; the arguments are those of `request_decoder`, and a header if it is known beforehand."""
        if (header_length or 0) < 0 or (body_length or 0) < 0:
            msg = "a length is negative"
            raise LocalProtocolError(msg)
        self._parse_header = parse_header
        self._stream_header = stream_header
        self._header_length = header_length
        self._body_length = body_length
        self._limits = limits
        self._check = check
        self._place = place
        self._given = given
        self._must_pause = pause_after_header
        self._is_paced = paced
        self._is_headerless = allow_headerless and header_length is None
        self._position = 0
        self._ahead = _NOTHING
        self._claims: Claims | None = None
        self._unplaced: deque[TensorSpec] = deque()
        self._placed: deque[tuple[Slabs, memoryview]] = deque()
        self._is_end_known = False
        self.in_a_row = 0
        self.held_bytes = 0
        self.events: deque[HeaderReceived[HeaderT] | TensorReceived | WindowReceived | EndOfMessage] = deque()
        self.needs_turn = False
        self.has_ended = False

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
                if spec.is_single_element:
                    check_element_bytes(spec.nbytes, self._limits)
        if self._check is not None:
            self._check(header)
        self.events.append(HeaderReceived(header=header))
        if self._must_pause:
            yield None
        self._unplaced.extend(header.tensors)
        try:
            for spec in header.tensors:
                self.in_a_row += 1
                # What is placed ahead may have been filled by the read that filled the tensor before.
                if self.in_a_row > _TENSORS_PER_TURN and not self._placed:
                    yield from self._turn()
                if spec.datatype.is_bytes:
                    yield from self._read_texts(spec)
                else:
                    yield from self._read_values(spec)
        finally:  # what is held for tensors that will not come
            self._placed.clear()
            self._claims = None
        if self._is_headerless:
            yield from self._expect_end()
        self.events.append(EndOfMessage(nbytes=self._position))

    def place_ahead(self) -> list[memoryview]:
        """Place small tensors that follow the current target; return the targets that follow it, as far as known."""
        while (
            self._is_end_known
            and self._unplaced
            and len(self._placed) < _AHEAD_COUNT
            and not self._unplaced[0].datatype.is_bytes
            and placed_bytes(self._unplaced[0]) <= _AHEAD_BYTES
        ):
            self._place_next()
        return self.placed_targets

    @property
    def placed_targets(self) -> list[memoryview]:
        """The targets that are known to follow the current one."""
        return [target for _, target in self._placed if target]

    def _read_header(self) -> Generator[memoryview | None, int, HeaderT]:
        """Read the JSON header and check that header and tensors fill the body exactly."""
        self._check_message_length(self._body_length or 0)
        length = self._body_length if self._header_length is None else self._header_length
        if length == 0:
            self._refuse_empty()
        if self._is_headerless or length is None:
            header, end = yield from self._read_undeclared()
        else:
            self._check_header_length(length)
            header, end = (yield from self._read_declared(length)), length
        tensor_bytes = 0
        for spec in header.tensors:  # half the time of a `sum`, for the one tensor that most messages have
            tensor_bytes += spec.nbytes
        if self._is_headerless and not tensor_bytes:
            yield from self._skip_white_space()
            return header
        header_end, end = end, end + tensor_bytes
        # If the whole body was the header, then there are no bytes for binary tensors.
        is_whole_body = self._header_length is None and not self._is_headerless
        body = header_end if is_whole_body else self._body_length
        if body is not None and body != end:
            msg = f"the body has {body} bytes, its header and tensors need {end}"
            if is_whole_body or body > end:
                msg += self._if_undeclared
            raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(body, end))
        return header

    def _read_declared(self, length: int) -> Generator[memoryview | None, int, HeaderT]:
        """Read a header of known length."""
        if length <= LONG_BYTES:
            data = scratch_bytes(length)
            yield from self._fill(data)
            return (yield from self._parse(data))
        stream = self._stream_header(self._limits, start=length)
        block = scratch_bytes(LONG_BYTES)
        for start in range(0, length, LONG_BYTES):
            part = block[: length - start]
            yield from self._fill(part)
            yield from self._stream(stream, part)
        return (yield from self._in_turns(stream.finish(length)))

    def _read_undeclared(self) -> Generator[memoryview | None, int, tuple[HeaderT, int]]:
        """Read a header whose length nobody has declared, to the end of its object, or to that of the input.

        Returns:
            The header, and its length.
        """
        finder = ObjectEnd() if self._is_headerless else None
        stream: LongHeader[HeaderT] | None = None
        block = scratch_bytes(LONG_BYTES)
        while True:
            part, is_over = yield from self._read_block(block, finder)
            if stream is None and is_over:
                return (yield from self._parse(part)), self._position
            if stream is None:
                stream = self._stream_header(self._limits)
            yield from self._stream(stream, part)
            if is_over:
                header = yield from self._in_turns(stream.finish(self._position))
                return header, self._position

    def _read_block(
        self, block: memoryview, finder: ObjectEnd | None
    ) -> Generator[memoryview | None, int, tuple[memoryview, bool]]:
        """Read a block of a header of unknown length; return what belongs to it, and whether it has ended."""
        most = min(self._limits.max_header_bytes, self._limits.max_message_bytes) + 1
        if self._body_length is not None:
            most = min(most, self._body_length)
        start = self._position
        yield from self._read_ahead(block[: most - start])
        part = self._ahead
        end = None if finder is None else finder.find(part)
        self._position = start + len(part) if end is None else end
        self._ahead = part[self._position - start :] or _NOTHING
        self._check_header_length(self._position)
        is_over = end is not None or self.has_ended or self._position == self._body_length
        if end is None and self.has_ended and self._position < (self._body_length or 0):
            raise self._truncated((self._body_length or 0) - self._position)
        if self._position == 0:
            self._refuse_empty()
        return part[: self._position - start], is_over

    def _parse(self, data: memoryview) -> Generator[memoryview | None, int, HeaderT]:
        """Parse a header that is not long."""
        self.held_bytes = len(data)
        if len(data) > _LITTLE_TEXT_BYTES:
            yield from self._turn()
        try:
            return self._parse_header(data, self._limits)
        except RemoteProtocolError as error:
            if goes_on(data):
                error.message += self._if_undeclared
            raise

    def _stream(self, stream: LongHeader[HeaderT], part: memoryview) -> Fill:
        """Have a part of a long header read."""
        yield from self._turn()
        try:
            yield from self._in_turns(stream.feed(bytes(part)))
        except RemoteProtocolError as error:
            if stream.goes_on:
                error.message += self._if_undeclared
            raise
        self.held_bytes = LONG_BYTES + stream.held_bytes

    def _in_turns(self, work: Generator[None, None, _T]) -> Generator[memoryview | None, int, _T]:
        """Do work that says itself where others may have their turn."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: _T = end.value
                return result
            yield from self._turn()

    def _skip_white_space(self) -> Fill:
        """Read to the end of a body that is all header; white space may follow its object."""
        while True:
            rest = bytes(self._ahead).lstrip(WHITE_SPACE)
            self._position += len(self._ahead) - len(rest)
            self._ahead = self._ahead[len(self._ahead) - len(rest) :] or _NOTHING
            if rest:
                raise self._trailing_bytes()
            self._check_header_length(self._position)
            missing = LONG_BYTES if self._body_length is None else self._body_length - self._position
            if missing and self.has_ended and self._body_length is not None:
                raise self._truncated(missing)
            if not missing or self.has_ended:
                return
            yield from self._read_ahead(scratch_bytes(min(missing, LONG_BYTES)))

    def _expect_end(self) -> Fill:
        """Insist that the body ends with the last tensor, where its length could not be compared beforehand."""
        if self._body_length is None and not self._ahead and not self.has_ended:
            yield from self._read_ahead(scratch_bytes(1))
        if self._ahead:
            error = self._trailing_bytes()
            error.message += self._if_undeclared
            raise error

    def _turn(self) -> Fill:
        """Let others have their turn before a piece of work, if the machine is paced."""
        self.in_a_row = 0
        if self._is_paced:
            self.needs_turn = True
            yield None
            self.needs_turn = False

    def _read_ahead(self, block: memoryview) -> Fill:
        """Read a block that may reach beyond the part of the message that is being read."""
        came = yield block
        self.has_ended = came < len(block)
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
            if not self._is_headerless:
                msg += self._if_undeclared
            raise LimitExceededError(msg, limit="max_header_bytes", offset=0)
        self._check_message_length(length)

    def _check_message_length(self, length: int) -> None:
        allowed = self._limits.max_message_bytes
        if length > allowed:
            msg = f"the message has {length} bytes or more, {allowed} are allowed"
            raise LimitExceededError(msg, limit="max_message_bytes", offset=0)

    def _place_now(self) -> Slabs:
        spec = self._unplaced.popleft()
        return iter(self._place(spec).slabs(spec))

    def _place_next(self) -> None:
        """Place a tensor ahead of its turn, as far as its first slab; what goes wrong is reported in its turn."""
        spec = self._unplaced[0]
        try:
            slabs = self._place_now()
            slab = next(slabs, None)
            size = 0 if slab is None else self._checked_size(spec, slab)
        except Exception as failure:  # noqa: BLE001 - a user's callback may raise anything
            slabs, slab, size = _raising(failure), None, 0
        if slab is None:
            self._placed.append((slabs, _NOTHING))
            self._is_end_known = False
            return
        is_target = spec.data is None and size <= spec.nbytes
        self._placed.append((chain((slab,), slabs), slab.buffer if is_target else _NOTHING))
        self._is_end_known = size == placed_bytes(spec) and not slab.must_wait

    def _checked_size(self, spec: TensorSpec, slab: Slab) -> int:
        """Return the bytes of a slab, which may be somebody else's memory if it is not new."""
        if not slab.is_new:
            if self._claims is None:
                self._claims = Claims()
            self._claims.claim(spec, slab.buffer)
        return len(slab.buffer)

    def _read_values(self, spec: TensorSpec) -> Fill:
        """Fill the slabs of one tensor, from the message or from the values that came as JSON."""
        slabs = self._placed.popleft()[0] if self._placed else self._place_now()
        values = None if spec.data is None else byte_view(spec.data)
        position, end = 0, placed_bytes(spec)
        is_bool = spec.datatype.kind == "b"
        for slab in slabs:
            size = self._checked_size(spec, slab)
            start, position = position, position + size
            if position > end:
                break
            if not self._placed:
                self._is_end_known = position == end and not slab.must_wait
            if values is not None:
                if slab.array is not spec.data:
                    yield from self._copy(values[start:position], slab.buffer)
            elif size:
                yield from self._fill_checked(slab.buffer) if is_bool else self._fill(slab.buffer)
            if slab.array is not None:
                self.events.append(
                    TensorReceived(spec=spec, values=slab.array)
                    if slab.row is None
                    else WindowReceived(spec=spec, array=slab.array, row=slab.row)
                )
            if slab.must_wait:
                yield None
        if position != end:
            msg = f"the placement gave {position} bytes of memory or more, the tensor has {end}"
            raise LocalProtocolError(msg)

    def _read_texts(self, spec: TensorSpec) -> Fill:
        """Read a tensor of BYTES, in either form; it is not placed."""
        self._unplaced.popleft()
        self._is_end_known = False
        if spec.data is not None:
            self.events.append(TensorReceived(spec=spec, values=spec.data))
        else:
            yield from self._read_elements(spec)

    def _read_elements(self, spec: TensorSpec) -> Fill:
        """Read a binary BYTES tensor: its wire form whole, in which the elements are found, but not made objects."""
        scratch = scratch_bytes(spec.nbytes)
        values: np.ndarray[Any, Any] | Elements
        if spec.is_single_element:
            if scratch:
                yield from self._fill(scratch)
            values = np.empty(spec.shape, dtype=object)
            values[...] = bytes(scratch)
        else:
            finder = OffsetFinder(spec.count, spec.nbytes, offset=self._position)
            yield from self._find_elements(finder, scratch)
            values = Elements.found(finder, scratch, spec.shape)
        self.events.append(TensorReceived(spec=spec, values=values))

    def _find_elements(self, finder: OffsetFinder, scratch: memoryview) -> Fill:
        """Find the elements of a BYTES tensor while it comes in."""
        start, held = self._position, self.held_bytes
        octets = np.frombuffer(scratch, np.uint8)
        for position in range(0, max(len(scratch), 1), _SLICE_BYTES):
            part = scratch[position : position + _SLICE_BYTES]
            if part:
                yield from self._fill(part)
            if len(part) > _LITTLE_SLICE_BYTES:
                yield from self._turn()
            index = finder.index
            yield from self._in_turns(finder.find(octets[: position + len(part)]))
            self._check_elements(finder, index, start)
            self.held_bytes = held + finder.offsets.itemsize * finder.index

    def _check_elements(self, finder: OffsetFinder, first: int, start: int) -> None:
        """Refuse an element that is too long, if one of those that were found last can be."""
        offsets, most = finder.offsets[first : finder.index + 1], self._limits.max_element_bytes
        if offsets[-1] - offsets[0] > most:
            lengths = np.diff(offsets) - PREFIX_BYTES
            index = int(np.argmax(lengths > most))
            check_element_bytes(int(lengths[index]), self._limits, offset=start + int(offsets[index]))

    def _copy(self, values: memoryview, target: memoryview) -> Fill:
        """Copy values that came as JSON to where they were placed."""
        for start in range(0, len(values), _SLICE_BYTES):
            if start:
                yield from self._turn()
            target[start : start + _SLICE_BYTES] = values[start : start + _SLICE_BYTES]

    def _fill_checked(self, target: memoryview) -> Fill:
        """Fill memory with BOOL, and look at the values while they come in."""
        for start in range(0, len(target), _SLICE_BYTES):
            part = target[start : start + _SLICE_BYTES]
            yield from self._fill(part)
            self._check_booleans(part)

    def _check_booleans(self, part: memoryview) -> None:
        """Specification: "For BOOL type element true is a single byte with value 1 and false [...] with value 0"."""
        values = np.frombuffer(part, np.uint8)
        if values.max() > 1:
            offset = self._position - len(values) + int(np.argmax(values > 1))
            msg = "a byte of a BOOL tensor is neither 0 nor 1"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_BOOL, offset=offset)

    def _fill(self, target: memoryview) -> Fill:
        """Yield a target and insist on all of it; what has been read ahead needs no yielding."""
        missing = len(target)
        if self._ahead:
            taken = min(len(self._ahead), missing)
            target[:taken] = self._ahead[:taken]
            self._ahead = self._ahead[taken:] or _NOTHING
            self._position += taken
            target, missing = target[taken:], missing - taken
        if missing and not self.has_ended:
            came = yield target
            self._position += came
            missing -= came
        if missing:
            raise self._truncated(missing)

    def _truncated(self, missing: int) -> RemoteProtocolError:
        msg = f"the message ends {missing} byte{'s' * (missing != 1)} too early"
        return RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self.offset)

    @property
    def _if_undeclared(self) -> str:
        """What is to be said of a body that does not fit, where nobody has said how long its header is."""
        missing = f"; {HEADER_LENGTH_FIELD} is missing, which says where binary tensors begin"
        return missing if self._header_length is None else ""

    def _trailing_bytes(self) -> RemoteProtocolError:
        msg = "the body goes on after the message has ended"
        return RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=self._position)


def _raising(failure: Exception) -> Slabs:
    """Raise where the first slab would have come."""
    yield from ()
    raise failure
