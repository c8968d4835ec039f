"""The machine: reads one message from the first byte to the last, written like blocking code.

A format reads the header. Then the machine checks the header, places each tensor, and reads it. All of it is one
generator on `Reader`. It yields a target: the memory to be filled. It is resumed once for each target, with the number
of bytes that came, when the target is full or the input has ended. So it does not depend on how the bytes are split
into chunks, and neither does its cost.

If memory is to be used again, the machine yields a *pause* (None) after the event. It is resumed when the consumer has
finished with the memory. The machine does not know windows: they are slabs, and a slab says whether to wait after it.

The machine yields one target at a time. But on request, several small tensors in a row are *placed ahead* of their
turn. Then their targets are known, and one read can fill many of them (`recvmsg_into`). The result is the same.

The machine does not know the `Decoder` that drives it. There is no reference cycle, so the memory of an abandoned
message is freed at once, without the garbage collector. The machine knows no format, no HTTP and no transport.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, Generic

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.elements.prefixes import PREFIX_BYTES, OffsetFinder
from streamcodec.engine.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.events import EndOfMessage, HeaderReceived, HeaderT, TensorReceived, WindowReceived
from streamcodec.engine.limits import Limits, check_element_bytes
from streamcodec.engine.memory.claims import Claims
from streamcodec.engine.memory.placement import (
    Place,
    Placement,
    Slab,
    byte_view,
    check_place,
    check_placement,
    check_slab,
    placed_bytes,
    scratch_bytes,
)
from streamcodec.engine.reader import NOTHING_AHEAD, SLICE_BYTES, Fill, Reader, Reading
from streamcodec.engine.record import constructor
from streamcodec.engine.spec import TensorSpec

Read = Callable[[Reader], Reading[HeaderT]]
"""A format: reads the header of a message, and leaves its tensors to the machine."""

ReadEnd = Callable[[Reader], Fill]
"""Reads what follows the last tensor."""

Slabs = Iterator[Slab]

_header_received: Final = constructor(HeaderReceived)
_tensor_received: Final = constructor(TensorReceived)
_end_of_message: Final = constructor(EndOfMessage)

_LITTLE_SLICE_BYTES: Final = 16 << 10
"""Elements in this number of bytes are found without a turn."""

_TENSORS_PER_TURN: Final = 32
"""Tensors that are read without a turn, when they need no bytes or their bytes have come together."""

_AHEAD_BYTES: Final = 16 << 10
"""Bytes of the largest tensor that may be placed ahead of its turn. For larger ones, one more read does not matter."""

_AHEAD_COUNT: Final = 63
"""Tensors that are placed ahead. Together with the current target, these are 64 targets of at most 1 MiB."""


class Machine(Reader, Generic[HeaderT]):
    """Reads one message.

    Attributes:
        events: what has been read, in order; the caller removes them.
        may_hold: whether the current target is memory that existed before, and so may hold its bytes already.
    """

    __slots__ = (
        "_check",
        "_claims",
        "_is_end_known",
        "_must_pause",
        "_place",
        "_placed",
        "_placed_count",
        "_read",
        "_read_end",
        "_tensors",
        "events",
        "may_hold",
    )

    # Attributes of `Reader`. They are assigned here, and type checkers need a declaration here, too.
    held_bytes: int
    in_a_row: int

    def __init__(  # noqa: PLR0917 - a class takes keywords slowly
        self,
        read: Read[HeaderT],
        length: int | None,
        limits: Limits,
        check: Callable[[HeaderT], None] | None,
        place: Place,
        read_end: ReadEnd | None = None,
        pause_after_header: bool = False,  # noqa: FBT001, FBT002 - as above
        paced: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        """Prepare; the arguments are those of `format_decoder`."""
        Reader.__init__(self, limits, length, paced=paced)  # `super()` would cost more
        self._read = read
        self._read_end = read_end
        self._check = check
        self._place = place
        self._must_pause = pause_after_header
        self._claims: Claims | None = None
        self._tensors: tuple[TensorSpec, ...] = ()
        self._placed_count = 0  # of these tensors; counts those, too, that need no place
        self._placed: deque[tuple[Slabs, memoryview]] = deque()
        self._is_end_known = False
        self.may_hold: bool = False
        self.events: deque[HeaderReceived[HeaderT] | TensorReceived | WindowReceived | EndOfMessage] = deque()

    def run(self) -> Fill:
        """Read one message. Yields targets; is sent how many bytes came: fewer than wanted only at the end of input."""
        header = yield from self._read(self)
        if self._check is not None:
            self._check(header)
        self.events.append(_header_received(header=header))
        if self._must_pause:
            yield None
        self._tensors = header.tensors
        try:
            for spec in self._tensors:
                self.in_a_row += 1
                # A tensor that is placed ahead may have been filled already, by the same read as the tensor before.
                if self.in_a_row > _TENSORS_PER_TURN and not self._placed:
                    yield from self.turn()
                if spec.datatype.is_bytes:
                    yield from self._read_texts(spec)
                else:
                    yield from self._read_values(spec)
        except LimitExceededError as error:
            if error.path is None and error.offset is None:  # of a placement, which does not know where the tensor is
                error.offset = self.position
            raise
        finally:  # release the memory of tensors that will not come
            self._tensors = ()
            self._placed.clear()
            self._claims = None
        if self._read_end is not None:
            yield from self._read_end(self)
        self.events.append(_end_of_message(nbytes=self.envelope_bytes + self.position))

    def place_ahead(self) -> list[memoryview]:
        """Place small tensors that follow the current target; return the known targets after the current one."""
        while (
            self._is_end_known
            and self._placed_count < len(self._tensors)
            and len(self._placed) < _AHEAD_COUNT
            and not (spec := self._tensors[self._placed_count]).datatype.is_bytes
            and placed_bytes(spec) <= _AHEAD_BYTES
        ):
            self._place_next(spec)
        return self.placed_targets

    @property
    def placed_targets(self) -> list[memoryview]:
        """The targets that are known to follow the current one."""
        return [target for _, target in self._placed if target]

    def _place_now(self, spec: TensorSpec) -> Slabs:
        self._placed_count += 1
        placement: Placement | None = None
        has_returned = False
        try:
            placement = self._place(spec)
            has_returned = True
            return iter(placement.slabs(spec))
        except (AttributeError, TypeError):
            check_place(self._place)
            if has_returned:
                check_placement(placement)
            raise

    def _place_next(self, spec: TensorSpec) -> None:
        """Take the first slab of a tensor ahead of its turn; an error is reported when it is the tensor's turn."""
        try:
            slabs = self._place_now(spec)
            slab = next(slabs, None)
            size = 0 if slab is None else self._checked_size(spec, slab)
        except Exception as failure:  # noqa: BLE001 - a user's callback may raise anything
            slabs, slab, size = _raising(failure), None, 0
        if slab is None:
            self._placed.append((slabs, NOTHING_AHEAD))
            self._is_end_known = False
            return
        is_target = spec.data is None and size <= spec.nbytes
        self._placed.append((chain((slab,), slabs), slab.buffer if is_target else NOTHING_AHEAD))
        self._is_end_known = size == placed_bytes(spec) and not slab.must_wait

    def _checked_size(self, spec: TensorSpec, slab: Slab) -> int:
        """Return the size of a slab in bytes; claim its memory if the slab is not new."""
        check_slab(slab)
        if not slab.is_new:
            if self._claims is None:
                self._claims = Claims()
            self._claims.claim(spec, slab.buffer)
        return len(slab.buffer)

    def _read_values(self, spec: TensorSpec) -> Fill:
        """Fill the slabs of one tensor, from the message or from the values that came as JSON."""
        slabs = self._placed.popleft()[0] if self._placed else self._place_now(spec)
        values = None if spec.data is None else byte_view(spec.data)
        position, end = 0, spec.nbytes if values is None else len(values)
        is_bool = spec.datatype.kind == "b"
        for slab in slabs:
            is_new = type(slab) is Slab and slab.is_new
            size = len(slab.buffer) if is_new else self._checked_size(spec, slab)
            start, position = position, position + size
            if position > end:
                break
            if not self._placed:
                is_sliced = size > SLICE_BYTES and (is_bool or self.on_filled is not None)
                # In slices, the end of the current target is not the end of the tensor.
                self._is_end_known = position == end and not slab.must_wait and not is_sliced
            if values is not None:
                if slab.array is not spec.data:
                    yield from self._copy(values[start:position], slab.buffer)
            elif size:
                self.may_hold = not slab.is_new
                yield from self._fill_checked(slab.buffer) if is_bool else self.fill(slab.buffer)
                self.may_hold = False
            if slab.array is not None:
                self.events.append(
                    _tensor_received(spec=spec, values=slab.array)
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
        self._placed_count += 1
        self._is_end_known = False
        values: np.ndarray[Any, Any] | Elements | None = spec.data
        if values is None:
            scratch = scratch_bytes(spec.nbytes, limit="max_tensor_bytes")
            if spec.is_single_element:
                if scratch:
                    yield from self.fill(scratch)
                values = np.empty(spec.shape, dtype=object)
                values[...] = bytes(scratch)
            else:  # no Python objects are made of its elements
                finder = OffsetFinder(spec.count, spec.nbytes, offset=self.position)
                yield from self._find_elements(finder, scratch)
                values = Elements.found(finder, scratch, spec.shape)
        self.events.append(TensorReceived(spec=spec, values=values))

    def _find_elements(self, finder: OffsetFinder, scratch: memoryview) -> Fill:
        """Find the elements of a BYTES tensor while its bytes come."""
        start, held, most = self.position, self.held_bytes, self.limits.max_element_bytes
        octets = np.frombuffer(scratch, np.uint8)
        for position in range(0, max(len(scratch), 1), SLICE_BYTES):
            part = scratch[position : position + SLICE_BYTES]
            if part:
                yield from self.fill(part)
            if len(part) > _LITTLE_SLICE_BYTES:
                yield from self.turn()
            index = finder.index
            yield from self.in_turns(finder.find(octets[: position + len(part)]))
            offsets = finder.offsets[index : finder.index + 1]
            if offsets[-1] - offsets[0] > most:  # one of those that were found last may be too long
                lengths = np.diff(offsets) - PREFIX_BYTES
                index = int(np.argmax(lengths > most))
                check_element_bytes(int(lengths[index]), self.limits, offset=start + int(offsets[index]))
            self.held_bytes = held + finder.offsets.itemsize * finder.index

    def _copy(self, values: memoryview, target: memoryview) -> Fill:
        """Copy JSON values to the placed memory."""
        for start in range(0, len(values), SLICE_BYTES):
            if start:
                yield from self.turn()
            target[start : start + SLICE_BYTES] = values[start : start + SLICE_BYTES]

    def _fill_checked(self, target: memoryview) -> Fill:
        """Fill memory with BOOL values, and check them while they come.

        Specification: "For BOOL type element true is a single byte with value 1 and false [...] with value 0".
        """
        for start in range(0, len(target), SLICE_BYTES):
            part = target[start : start + SLICE_BYTES]
            yield from self.fill(part)
            values = np.frombuffer(part, np.uint8)
            if values.max() > 1:
                offset = self.position - len(values) + int(np.argmax(values > 1))
                msg = "a byte of a BOOL tensor is neither 0 nor 1"
                raise RemoteProtocolError(msg, code=ErrorCode.INVALID_BOOL, offset=offset)


def _raising(failure: Exception) -> Slabs:
    """Raise the error instead of the first slab."""
    yield from ()
    raise failure
