"""The reader: the methods with which a format reads its message. It does not know tensors.

A format is a generator. Where blocking code would read, it yields a *target*, the memory to be filled. It is resumed
once, with the number of bytes that came, when the target is full or the input has ended. The methods of `Reader` are
such generators. They count bytes, handle the end of the input, and limit lengths, so that no format has to. `fill` and
`read` are for parts of known length. `read_until` is for parts that end with a delimiter.

Most targets end where a part of the message ends. A part of unknown length is read in blocks, and the last block may
contain bytes of the next part. These bytes are *ahead*: they are copied to their place when the place is known.

A *paced* reader pauses before each piece of work that costs more than copying (`turn`), so that others can be served.
Such a pause is a target of None. It differs from the pause after a window, which waits for the consumer, by
`needs_turn`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from streamcodec.engine.arguments import checked_length
from streamcodec.engine.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.limits import Limits, header_too_long, message_too_long
from streamcodec.engine.memory.placement import scratch_bytes

_T = TypeVar("_T")

Reading = Generator[memoryview | None, int, _T]
"""A step of a message. It yields targets, and is sent the number of bytes that came. It yields None for a pause. It
returns the result of the step."""

Fill = Reading[None]
"""A step that returns nothing."""

_BLOCK_BYTES: Final = 4 << 10
"""Bytes of a block, for a part whose end has to be searched for."""

SLICE_BYTES: Final = 1 << 20
"""Bytes of a slice: values of BYTES and BOOL are checked, and `on_filled` is called, whenever so many have come.

Their CRC-32 takes some 0.3 to 1 ms.
"""

NOTHING_AHEAD: Final = memoryview(b"")
"""An empty view. An empty part of other memory would keep that memory alive."""


class Reader:
    """Reads one message, from its first byte to its last.

    Attributes:
        limits: caps on all that is read.
        length: bytes of the whole message; None if the length is not known.
        envelope_bytes: bytes of an envelope before the message, which `position` does not count; see `begin_body`.
        position: bytes of the message that have been used. Bytes that are ahead do not count.
        has_ended: whether no more bytes will come.
        in_a_row: tensors since the last turn; the decoder sets it to 0 when bytes come.
        held_bytes: bytes of memory for the message so far, except for the tensors that were placed.
        needs_turn: whether the current pause is before a piece of work.
        on_filled: called with all bytes that `fill` and `read` have filled, in order and in slices, for a checksum; or
            None. A format that uses `read_until` or `look_ahead` has to call it for their bytes itself.
    """

    __slots__ = (
        "_ahead",
        "_behind",
        "_behind_bytes",
        "_is_paced",
        "envelope_bytes",
        "has_ended",
        "held_bytes",
        "in_a_row",
        "length",
        "limits",
        "needs_turn",
        "on_filled",
        "position",
    )

    def __init__(self, limits: Limits, length: int | None, *, paced: bool = False) -> None:
        """Begin before the first byte.

        Args:
            limits: caps on all that is read.
            length: bytes of the whole message; None if that is not known.
            paced: whether to pause before work.

        Raises:
            LocalProtocolError: the length is negative, or no integer.
        """
        if length is not None and (type(length) is not int or length < 0):
            length = checked_length("the length of a message", length)
        self.limits: Limits = limits
        self.length: int | None = length
        self.envelope_bytes: int = 0
        self.position: int = 0
        self.has_ended: bool = False
        self.held_bytes: int = 0
        self.needs_turn: bool = False
        self.on_filled: Callable[[memoryview], object] | None = None
        self._ahead = NOTHING_AHEAD
        self._behind: deque[memoryview] | None = None
        self._behind_bytes = 0
        self._is_paced = paced
        self.in_a_row: int = 0

    @property
    def offset(self) -> int:
        """Bytes of the message up to the current target, including the bytes that are ahead."""
        return self.position + len(self._ahead) + self._behind_bytes

    def fill(self, target: memoryview) -> Fill:
        """Fill memory with the next bytes of the message.

        Args:
            target: writable bytes; may be empty.

        Raises:
            RemoteProtocolError: `truncated`: the input ends before the target does.
        """
        if self.on_filled is not None:
            yield from self._fill_in_slices(target, self.on_filled)
            return
        missing = len(target)
        if self._behind is not None:
            yield from self._fill_from(self._behind, target)
            return
        if self._ahead:
            taken = min(len(self._ahead), missing)
            target[:taken] = self._ahead[:taken]
            self._ahead = self._ahead[taken:] or NOTHING_AHEAD
            self.position += taken
            target, missing = target[taken:], missing - taken
        if missing and not self.has_ended:
            came = yield target
            self.position += came
            missing -= came
        if missing:
            raise self.truncated(missing)

    def gather(self, most: int, limit: str) -> Reading[int]:
        """Read all of the message before anything is known of it. From here on, `fill` takes what has been read.

        The bytes are kept in blocks, each of which is freed when it has been taken. So there is never more than the
        message and what has been filled of its tensors.

        Args:
            most: bytes that the message may have.
            limit: name of the limit that allows so many.

        Returns:
            The length of the message.

        Raises:
            LimitExceededError: it has more.
            LocalProtocolError: its length is known, or some of it has been read.
            OutOfMemoryError: there is no memory for it.
        """
        if self.length is not None or self.offset:
            msg = "a message is gathered from its first byte, and if its length is not known"
            raise LocalProtocolError(msg)
        blocks: deque[memoryview] = deque()
        self._behind = blocks
        size = _BLOCK_BYTES
        while not self.has_ended:
            block = scratch_bytes(min(size, most + 1 - self._behind_bytes), limit=limit)
            came = yield block
            self.has_ended = came < len(block)
            blocks.append(block[:came])
            self._behind_bytes += came
            if self._behind_bytes > most:
                msg = f"the message has more than the {most} bytes that are allowed"
                raise LimitExceededError(msg, limit=limit, offset=most)
            size = min(2 * size, SLICE_BYTES)
        self.length = self._behind_bytes
        return self._behind_bytes

    def _fill_from(self, blocks: deque[memoryview], target: memoryview) -> Fill:
        """Fill memory with bytes that were gathered, a block in each turn."""
        while target:
            block = blocks.popleft()
            part, rest = block[: len(target)], block[len(target) :]
            target[: len(part)] = part
            target = target[len(part) :]
            self.position += len(part)
            self._behind_bytes -= len(part)
            if rest:
                blocks.appendleft(rest)
            elif target:
                yield from self.turn()

    def _fill_in_slices(self, target: memoryview, on_filled: Callable[[memoryview], object]) -> Fill:
        """Fill memory, and call `on_filled` for each slice. A slice takes no longer than a turn."""
        self.on_filled = None
        for start in range(0, len(target), SLICE_BYTES):
            part = target[start : start + SLICE_BYTES]
            yield from self.fill(part)
            on_filled(part)
            if len(target) > SLICE_BYTES:
                yield from self.turn()
        self.on_filled = on_filled

    def read(self, nbytes: int) -> Reading[memoryview]:
        """Read a part of the header of known length.

        Returns:
            New memory with exactly these bytes.

        Raises:
            LimitExceededError: with this part, the header exceeds `max_header_bytes`; raised before memory is taken.
            RemoteProtocolError: `truncated`.
        """
        self.check_header_length(self.position + nbytes)
        data = scratch_bytes(nbytes)
        self.held_bytes += nbytes
        yield from self.fill(data)
        return data

    def read_until(self, delimiter: bytes, most: int) -> Reading[bytes]:
        """Read a part of the header that ends with a delimiter.

        If the length of the message is known, the part is read in blocks. Else the message may end with the delimiter.
        So only as many bytes are requested as the delimiter still needs: mostly one at a time.

        Args:
            delimiter: the end of the part; not empty.
            most: largest number of bytes of the part, including the delimiter.

        Returns:
            The part, without its delimiter.

        Raises:
            LimitExceededError: the part is longer than `most`, or with it the header exceeds `max_header_bytes`.
            RemoteProtocolError: `truncated`: the input ends before the delimiter.
        """
        start = self.position
        most = min(most, self.limits.max_header_bytes - start)
        part = bytearray()
        end = -1
        while end < 0:
            room = min(most - len(part), self._sure_bytes(part, delimiter))
            if len(part) >= most:
                msg = f"a part of the header has more than {most} bytes"
                raise LimitExceededError(msg, limit="max_header_bytes", offset=start)
            block = (yield from self.look_ahead(scratch_bytes(room))) if room else NOTHING_AHEAD
            if not block:
                raise self.truncated(len(delimiter))
            before, searched = len(part), max(0, len(part) - len(delimiter) + 1)
            part += block[: most - before]
            end = part.find(delimiter, searched)
            self.skip((len(part) if end < 0 else end + len(delimiter)) - before)
        return bytes(part[:end])

    def _sure_bytes(self, part: bytearray, delimiter: bytes) -> int:
        """Return how many bytes the message certainly still has."""
        if self.length is not None:
            return min(_BLOCK_BYTES, self.length - self.position)
        begun = next(size for size in reversed(range(len(delimiter))) if part.endswith(delimiter[:size]))
        return len(delimiter) - begun

    @property
    def ahead(self) -> memoryview:
        """Bytes that have come and have not been used."""
        return self._ahead

    def look_ahead(self, block: memoryview) -> Reading[memoryview]:
        """Read the next bytes, which may belong to several parts of the message. They are not used yet.

        A block is read to its end, or to the end of the message if that comes first. If the length of the message is
        not known, only the end of the input ends it. Then ask for no more bytes than the message must still have, or
        let it end with the input: bytes that are still ahead at its end are refused.

        Args:
            block: memory for the bytes if nothing is ahead; not empty.

        Returns:
            The bytes that are ahead; empty if the message or the input has ended.
        """
        if not self._ahead and not self.has_ended:
            block = block if self.length is None else block[: max(0, self.length - self.position)]
            came = (yield block) if block else 0
            self.has_ended = came < len(block)
            self._ahead = block[:came]
        return self._ahead

    def skip(self, nbytes: int) -> None:
        """Mark `nbytes` of the bytes ahead as used.

        Raises:
            RemoteProtocolError: `truncated`: fewer bytes are ahead, because the message or the input has ended.
            LocalProtocolError: fewer bytes are ahead, because no more were asked for.
        """
        if not 0 <= nbytes <= len(self._ahead):
            if nbytes > 0 and (self.has_ended or self.offset == self.length):
                raise self.truncated(nbytes - len(self._ahead))
            msg = f"skip({nbytes}): {len(self._ahead)} bytes are ahead; look_ahead() brings more"
            raise LocalProtocolError(msg)
        self._ahead = self._ahead[nbytes:] or NOTHING_AHEAD
        self.position += nbytes

    def turn(self) -> Fill:
        """Let others have their turn before a piece of work, if the reader is paced."""
        self.in_a_row = 0
        if self._is_paced:
            self.needs_turn = True
            yield None
            self.needs_turn = False

    def in_turns(self, work: Generator[None, None, _T]) -> Reading[_T]:
        """Do work that yields where others may have their turn; return what it returns."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: _T = end.value
                return result
            yield from self.turn()

    def begin_body(self, length: int) -> None:
        """Declare that the bytes so far are an envelope, and that the message itself begins here.

        From here on, `position`, `length`, the offsets of tensors and the limits count the message alone. Offsets of
        errors still count from the first byte of the envelope, and so does the decoder's `offset`. In `read_end`,
        `length` counts up to the end of the envelope; it is None if `format_decoder` was given none.

        Args:
            length: bytes of the message. The part of the envelope after the message is read by `read_end`, with `fill`.
                `read` is for headers, and enforces their limits.

        Raises:
            LocalProtocolError: the message has begun before.
            RemoteProtocolError: `body-length-mismatch`: envelope and message together are longer than was declared.
        """
        if self.envelope_bytes or not self.position:
            msg = "a message begins once, behind an envelope that is not empty"
            raise LocalProtocolError(msg)
        if self.length is not None and self.position + length > self.length:
            msg = f"the envelope and its message need {self.position + length} bytes, there are {self.length}"
            raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=self.length)
        self.envelope_bytes, self.position, self.length = self.position, 0, length

    def check_header_length(self, length: int) -> None:
        """Refuse a header of `length` bytes if it is too long.

        Raises:
            LimitExceededError: over `max_header_bytes` or `max_message_bytes`.
            RemoteProtocolError: `header-exceeds-body`: the message is shorter.
        """
        if self.length is not None and length > self.length:
            msg = f"the declared header length {length} exceeds the body's {self.length} bytes"
            raise RemoteProtocolError(msg, code=ErrorCode.HEADER_EXCEEDS_BODY, offset=0)
        if length > self.limits.max_header_bytes:
            raise header_too_long(length, self.limits)
        if length > self.limits.max_message_bytes:
            self.check_message_length(length)

    def check_message_length(self, length: int) -> None:
        """Refuse a message of `length` bytes if it is too long.

        Raises:
            LimitExceededError: over `max_message_bytes`.
        """
        if length > self.limits.max_message_bytes:
            raise message_too_long(length, self.limits)

    def truncated(self, missing: int) -> RemoteProtocolError:
        """Return the error for an input that ends `missing` bytes too early."""
        msg = f"the message ends {missing} byte{'s' * (missing != 1)} too early"
        return RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self.offset)

    def trailing_bytes(self) -> RemoteProtocolError:
        """Return the error for bytes behind the end of the message."""
        msg = "the body goes on after the message has ended"
        return RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=self.position)
