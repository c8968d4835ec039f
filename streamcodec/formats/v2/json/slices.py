"""JSON slices: the `data` member of a tensor, read a slice at a time, straight into the tensor's array.

A slice is a run of values and brackets that ends before a comma, or at the end of the array. It is completed to a JSON
text of its own: the brackets that are open at its beginning are added before it, and closing brackets after it. Then
the usual parser parses it, so the usual parser decides what is valid and where an error is. A zero is added before the
first comma and after the last one, so that a missing value is noticed there.

If values are nested, the first and the last list of a slice are parts of lists. The number of items that came before is
counted for each axis.

A string that is longer than a block is removed from its slice and decoded by itself, see `longtext.py`. An empty string
takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from itertools import chain
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.errors import ErrorCode, LimitExceededError, MessageError, RemoteProtocolError
from streamcodec.engine.json.longtext import LongText
from streamcodec.engine.json.marks import COMMA, OPEN_OBJECT
from streamcodec.engine.json.scan import LONG_BYTES, TextBlock
from streamcodec.engine.json.text import parse_slice
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import aligned_bytes
from streamcodec.engine.record import record
from streamcodec.formats.v2.json.data import WrongValue, are_lists, convert, not_nested, pack_into, place, restore_signs

DATA_DEPTH: Final = 4
"""Depth of the `data` array: within the root, the array of tensors and the tensor."""

_TEXTS_PER_PIECE: Final = 32 << 10

_OBJECT_BYTES: Final = 41
"""Memory of a `bytes` object and the reference to it, without its content."""


@record()
class TakenOut:
    """A long string that was removed from a slice. Only its quotes, and sometimes a stand-in, are left there."""

    place: int
    """Place of its first quote in the text of the slice."""
    missing_bytes: int
    """Bytes of the header that are missing in the slice."""
    value: bytes
    """The string, as UTF-8."""


@record()
class Slice:
    """A part of a tensor's data."""

    text: bytes
    """The text between the comma before it and the comma after it, or an end of the data."""
    offset: int
    """Offset of the text, from the start of the header."""
    opened: int
    """Arrays that are open where it begins: 1 in a flat list."""
    left_open: int
    """Arrays that are open where it ends."""
    is_first: bool
    """Whether no comma stands before it."""
    is_last: bool
    """Whether no comma stands behind it, but the end of the data."""
    ending: bytes = b""
    """Text added after it, which closes an object that is refused in any case."""
    taken_out: TakenOut | None = None
    """The first value, if it is a long string."""

    @property
    def nbytes(self) -> int:
        """Memory taken by the text."""
        return len(self.text) + (0 if self.taken_out is None else len(self.taken_out.value))

    def parse(self, limits: Limits, *, is_cut: bool = False) -> list[Any]:
        """Parse the values. Returns a list of them; the first and the last item may be parts of lists.

        Args:
            limits: caps on the JSON text.
            is_cut: whether the whole text ends here, within the arrays; then it is refused.

        Raises:
            RemoteProtocolError: it is not JSON; with the offset.
        """
        start = b"[" * self.opened + b"0," * (not self.is_first)
        end = b"" if is_cut else self.ending + b",0" * (not self.is_last) + b"]" * self.left_open
        try:
            values: list[Any] = parse_slice(b"".join((start, self.text, end)), limits)
        except MessageError as error:
            if error.offset is not None:
                error.offset = self._offset_of(min(error.offset - len(start), len(self.text)))
            raise
        if not self.is_first:
            _innermost(values, self.opened, 0).pop(0)
        if not self.is_last:
            _innermost(values, self.left_open, -1).pop()
        return values

    def _offset_of(self, position: int) -> int:
        """Return where in the header a byte of the text is."""
        is_behind = self.taken_out is not None and position > self.taken_out.place
        return self.offset + position + (self.taken_out.missing_bytes if self.taken_out and is_behind else 0)


def _innermost(values: list[Any], depth: int, end: int) -> list[Any]:
    """Return the list that a stand-in was put to the start or the end of."""
    for _ in range(depth - 1):
        values = values[end]
    return values


class Cutter:
    """Cuts the text of one tensor's data into slices while it comes. The depth of the array itself is 4."""

    def __init__(self, offset: int, path: str, limits: Limits) -> None:
        """Begin behind the bracket that opens the array, at an offset of the header, and with a path for errors."""
        self._path = path
        self._limits = limits
        self._rest: list[bytes] = []
        self._offset = offset
        self._opened = 1
        self._is_first = True
        self._long: LongText | None = None
        self._taken_out: TakenOut | None = None
        self.is_foreign: bool = False
        """Whether a curly bracket was found. Then the values are refused."""

    @property
    def nbytes(self) -> int:
        """Memory taken by the text of the next slice."""
        value = self._taken_out.value if self._taken_out else b""
        return self._rest_bytes + len(value) + (self._long.nbytes if self._long else 0)

    @property
    def _rest_bytes(self) -> int:
        return sum(map(len, self._rest))

    def cut_plain(self, block: bytes, depth: int) -> Slice | None:
        """Cut a block without brackets and strings after its last comma.

        Raises:
            LimitExceededError: as by `cut`.
        """
        comma = block.rfind(b",")
        if comma < 0:
            self._keep(block)
            return None
        part = self._slice(memoryview(block)[:comma], depth - DATA_DEPTH + 1)
        self._rest = [block[comma + 1 :]]
        return part

    def cut(self, block: TextBlock, position: int) -> tuple[Slice | None, int | None]:
        """Cut a block from a position on.

        Returns:
            The slice, or None if there is none yet; and the end of the array, or None if it is not in this block.

        Raises:
            RemoteProtocolError: a long string is wrong.
            LimitExceededError: `max_json_text_bytes`, for a value that is no string, with the white space around it.
        """
        if self._long is not None:
            position = self._take_long(self._long, block)
        first, close = block.index(position), block.first(block.depths < DATA_DEPTH, position)
        if not self.is_foreign:
            curly = np.flatnonzero(block.kinds[first : None if close is None else close + 1] >= OPEN_OBJECT)
            if len(curly):
                return self._cut_curly(block, position, first + int(curly[0])), self._end(block, close)
        if self.is_foreign:
            return None, self._end(block, close)
        if close is not None:
            end = int(block.places[close])
            return self._slice(block.text[position:end], 1, is_last=True), end
        commas = np.flatnonzero(block.kinds[first:] == COMMA)
        part = None
        if len(commas):
            index = first + int(commas[-1])
            comma = int(block.places[index])
            part = self._slice(block.text[position:comma], int(block.depths[index]) - DATA_DEPTH + 1)
            position = comma + 1
        self._keep(block.text[position:], block.string_offset)
        return part, None

    def _end(self, block: TextBlock, close: int | None) -> int | None:
        return None if close is None else int(block.places[close])

    def cut_end(self) -> Slice:
        """Return the last slice of a text that ends too early."""
        if self._long is None:
            return self._slice(b"", self._opened)
        self._take_out(self._long, b"")
        return self._slice(self._long.rest, self._opened)

    def _keep(self, text: bytes, string_offset: int | None = None) -> None:
        """Keep text for the next slice. If it ends within a long string, begin to remove that string."""
        self._rest.append(text)
        size = self._rest_bytes
        if size <= LONG_BYTES or self._long is not None:
            return
        if string_offset is not None and self._taken_out is None:
            rest, place = b"".join(self._rest), string_offset - self._offset
            self._rest = [rest[: place + 1]]
            self._long = LongText(string_offset + 1, self._limits)
            self._long.take(rest[place + 1 :], is_last=False)
        elif size > self._limits.max_json_text_bytes:
            msg = f"a value that is no string has {size} bytes or more, {self._limits.max_json_text_bytes} are allowed"
            raise LimitExceededError(msg, limit="max_json_text_bytes", path=self._path)

    def _take_long(self, long: LongText, block: TextBlock) -> int:
        """Read a block of a long string; return how far it was read."""
        end = len(block.text) if block.string_end is None else block.string_end
        long.take(block.text[:end], is_last=block.string_end is not None)
        if block.string_end is not None:
            self._take_out(long, long.value)
            self._rest.append(long.stand_in)
            self._long = None
        return end

    def _take_out(self, long: LongText, value: bytes) -> None:
        missing = long.sent_bytes - len(long.stand_in)
        self._taken_out = TakenOut(place=self._rest_bytes - 1, missing_bytes=missing, value=value)

    def _cut_curly(self, block: TextBlock, position: int, index: int) -> Slice:
        """Cut after a curly bracket. The object that it opens is closed, so that it is a value, which is refused."""
        self.is_foreign = True
        opens = block.kinds[index] == OPEN_OBJECT
        left_open = int(block.depths[index]) - DATA_DEPTH + (0 if opens else 2)
        text = block.text[position : int(block.places[index]) + 1]
        return self._slice(text, left_open, ending=b"}" if opens else b"")

    def _slice(self, end: bytes | memoryview, left_open: int, *, is_last: bool = False, ending: bytes = b"") -> Slice:
        text = b"".join((*self._rest, end))
        part = Slice(
            text=text,
            offset=self._offset,
            opened=self._opened,
            left_open=left_open,
            is_first=self._is_first,
            is_last=is_last,
            ending=ending,
            taken_out=self._taken_out,
        )
        self._offset += len(text) + 1 + (self._taken_out.missing_bytes if self._taken_out else 0)
        self._rest, self._taken_out = [], None
        self._opened, self._is_first = left_open, False
        return part


class SlicedData:
    """Reads the values of one tensor. Its size has been checked before."""

    def __init__(
        self,
        datatype: Datatype,
        shape: tuple[int, ...],
        path: str,
        *,
        null_is_nan: bool,
        limits: Limits,
        check_texts: Callable[[list[bytes]], None],
    ) -> None:
        """Reserve memory, which costs nothing before it is written to.

        Args:
            datatype: of the tensor; one that has a JSON form.
            shape: of the tensor.
            path: of the member, for errors.
            null_is_nan: see `decode_data`.
            limits: of the JSON text.
            check_texts: called with elements of BYTES; raises to refuse them.

        Raises:
            RemoteProtocolError: `out-of-memory`.
        """
        self._datatype = datatype
        self._shape = shape
        self._path = path
        self._null_is_nan = null_is_nan
        self._limits = limits
        self._check_texts = check_texts
        self._count = math.prod(shape)
        self._position = 0
        self._nesting: _Nesting | None = None
        self._texts: list[bytes] = []
        self._long_bytes = 0
        memory = None if datatype.is_bytes else aligned_bytes(self._count * datatype.itemsize)
        self._values: np.ndarray[Any, Any] | None = (
            None if memory is None else np.ndarray((self._count,), datatype.dtype, memory)
        )

    @property
    def nbytes(self) -> int:
        """Memory taken by the values so far. For BYTES: the smallest size of each object, and the long strings."""
        itemsize = self._datatype.itemsize if self._values is not None else _OBJECT_BYTES
        return self._position * itemsize + self._long_bytes

    def take(self, part: Slice) -> int:
        """Take the next slice; return how many values it has.

        Raises:
            RemoteProtocolError: it is not JSON, or a value or the nesting does not fit.
        """
        values = part.parse(self._limits)
        if part.is_first and len(self._shape) > 1 and values and type(values[0]) is list:
            self._nesting = _Nesting(self._shape, self._path)
        if self._nesting is not None:
            values = self._nesting.flatten(values, part)
        elif self._position + len(values) > self._count:
            raise self._wrong_count(self._position + len(values), " or more" * (not part.is_last))
        end = self._position + len(values)
        if self._values is None:
            texts = self._convert(values).tolist()
            if part.taken_out is not None:
                texts[0] = part.taken_out.value
                self._long_bytes += len(part.taken_out.value)
            self._check_texts(texts)
            self._texts += texts
        else:
            array = self._values[self._position : end]
            if not pack_into(array, values, self._datatype):
                array[:] = self._convert(values)
            if self._datatype.kind == "f" and not array.all():
                restore_signs(array, part.text)
        self._position = end
        if part.is_last and end != self._count:
            raise self._wrong_count(end)
        return len(values)

    def _convert(self, values: list[Any]) -> np.ndarray[Any, Any]:
        """Convert the next values.

        Raises:
            RemoteProtocolError: one of them does not fit.
        """
        try:
            return convert(values, self._datatype, null_is_nan=self._null_is_nan)
        except WrongValue as wrong:
            index = self._position + wrong.index
            shape = (index + 1,) if self._nesting is None else self._shape
            raise wrong.refusal(place(self._path, shape, index)) from None

    def complete(self) -> Generator[None, None, None]:
        """Put the texts of BYTES into their array after the last slice; yields between two pieces of work."""
        if self._values is None:
            self._values = np.empty(self._count, object)
            while self._texts:  # from the end, so that the list is freed in pieces, too
                start = max(len(self._texts) - _TEXTS_PER_PIECE, 0)
                self._values[start : len(self._texts)] = self._texts[start:]
                del self._texts[start:]
                yield

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """All values, when they are complete."""
        values: Any = self._values
        return values.reshape(self._shape)  # type: ignore[no-any-return]  # an array

    def _wrong_count(self, found: int, or_more: str = "") -> RemoteProtocolError:
        msg = f"data has {found} values{or_more}, the shape needs {self._count}"
        return RemoteProtocolError(msg, code=ErrorCode.INVALID_DATA, path=self._path)


class _Nesting:
    """Checks that lists are nested like the shape."""

    def __init__(self, shape: tuple[int, ...], path: str) -> None:
        self._shape = shape
        self._path = path
        self._before = [0] * len(shape)
        """For each axis: number of items of the list that is open."""
        self._ended = [0] * len(shape)
        """For each axis: number of lists that have ended."""

    def flatten(self, values: list[Any], part: Slice) -> list[Any]:
        """Return the values of a slice in row-major order."""
        level: list[Any] = [values]
        for axis, size in enumerate(self._shape):
            left_open = 0 if part.is_last else part.left_open - axis
            level = self._flatten_axis(level, axis, size, left_open)
        return level

    def _flatten_axis(self, level: list[Any], axis: int, size: int, left_open: int) -> list[Any]:
        """Return the items of all lists of an axis; the last list goes on if it is left open."""
        before, is_open = self._before[axis], left_open > 0

        def fits(index: int) -> bool:
            item = level[index]
            count = len(item) + (before if index == 0 else 0) if type(item) is list else -1
            return 0 <= count <= size if is_open and index == len(level) - 1 else count == size

        ended = len(level) - is_open
        edges = {0, len(level) - 1} if level else set()
        if not (all(map(fits, edges)) and are_lists(level[1:ended], size)):
            index = next(index for index in range(len(level)) if not fits(index))
            raise not_nested(size, place(self._path, self._shape[:axis], self._ended[axis] + index))
        if is_open:  # its last item may be open, too, and is counted when it ends
            self._before[axis] = (0 if ended else before) + len(level[-1]) - (left_open > 1)
        else:
            self._before[axis] = 0
        self._ended[axis] += ended
        return list(chain.from_iterable(level))
