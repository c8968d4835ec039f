"""JSON stream: a long header, read block by block, so that neither time nor memory grows with its length.

The text is divided into parts while it comes. The arrays `inputs` and `outputs` are removed from the root, and read in
groups of entries. If an entry does not end in its block, the values of `data` are removed from it, and read in slices.
They go straight into the tensor's array if datatype and shape stand before them, as usual. The rest of the root and of
the entries must be short, else the header is refused. `text.py` parses all parts, each as a text of its own. So the
same parser as for a short header decides what is valid and where an error is. Entries that end in their block are
mostly plain, and `plainheader.py` parses them more quickly. Offsets and paths are those of the whole text.

This module knows where the parts are. `header.py` and `tensors.py` know what they mean, through the interface `Items`.

A method that does much work is a generator. It yields where others may have their turn: between two pieces of work. A
piece takes no longer than the work for one block.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Generator, Mapping
from typing import Any, Final, NoReturn, Protocol

from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError, shown
from streamcodec.engine.json.marks import COMMA
from streamcodec.engine.json.objectend import WHITE_SPACE
from streamcodec.engine.json.scan import LONG_BYTES, Scanner, TextBlock
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.header.kept import KeptText, opening_of
from streamcodec.formats.v2.header.plain import parse_plain_entries
from streamcodec.formats.v2.json.slices import DATA_DEPTH, Cutter, Slice, SlicedData

Turns = Generator[None, None, None]
"""A piece of work that yields where others may have their turn."""

ENTRIES_PER_TURN: Final = 64
"""Entries of a long header that are read in one go; each costs some microseconds."""

MOST_BLOCK_BYTES: Final = 96 << 10
"""The longest block of plain numbers."""

_VALUES_PER_BLOCK: Final = 8 << 10
"""Values of a block of plain numbers that is longer than usual. They take half a millisecond."""

_ARRAY_DEPTH: Final = 2
"""Depth of an array of entries."""


_DATA_OPENING: Final = opening_of("data")


class Items(Protocol):
    """Reads the entries of one array of the root, in order."""

    has_data: bool
    """Whether the entries are tensors, with values."""

    def begin(self, members: dict[str, Any]) -> SlicedData | None:
        """Prepare for the values of the next entry; None if its datatype and shape are not known yet.

        Raises:
            RemoteProtocolError: the entry cannot have values, or a member is wrong.
        """
        ...

    def read(self, entries: list[Any], constants: int, data: SlicedData | None = None) -> Turns:
        """Read the next entries.

        Args:
            entries: the parsed entries.
            constants: how many `NonFinite` they hold.
            data: the values of the only entry, if they were read before.
        """
        ...


class _Values:
    """The values of an entry that does not end in the block it begins in."""

    def __init__(self, data: SlicedData | None, cutter: Cutter) -> None:
        self.cutter = cutter
        self.data = data
        self.kept: list[Slice] = []
        """Slices that wait until datatype and shape are known."""
        self.has_ended = False

    @property
    def nbytes(self) -> int:
        kept = sum(part.nbytes for part in self.kept)
        return self.cutter.nbytes + kept + (0 if self.data is None else self.data.nbytes)

    @property
    def can_be_plain(self) -> bool:
        return not self.has_ended and not self.cutter.is_foreign

    def take(self, part: Slice | None) -> int:
        """Take the next slice, if there is one; return how many values have been read."""
        if part is None:
            return 0
        if self.data is None:
            self.kept.append(part)
            return 0
        return self.data.take(part)


class _Array:
    """An array of entries that is being read."""

    def __init__(self, key: str, items: Items) -> None:
        self.key = key
        self.items = items
        self.count = 0
        """Entries that have been read."""
        self.is_first = True
        """Whether no comma has been read."""
        self.entry: KeptText | None = None
        """The text of an entry that did not end in its block; None if there is none."""
        self.values: _Values | None = None
        """The values of that entry."""

    @property
    def path(self) -> str:
        """Path of the next entry."""
        return f"$.{self.key}[{self.count}]"

    def path_of(self, path: str) -> str:
        """Convert a path in a list of the next entries to a path in the header."""
        index, bracket, rest = path.removeprefix("$[").partition("]")
        return f"$.{self.key}[{int(index) - (not self.is_first) + self.count}{bracket}{rest}"


class HeaderStream:
    """Divides one header into its parts; made for each header."""

    def __init__(self, items: Mapping[str, Items], limits: Limits) -> None:
        """Begin before the first byte.

        Args:
            items: readers of the arrays of entries, by the names of the arrays.
            limits: `max_json_depth`, `max_json_values` and `max_tensors` apply.
        """
        self._items = items
        self._limits = limits
        self._scanner = Scanner(limits)
        self._resolved = opening_of(*items)
        self._root = KeptText(0)
        self._has_ended = False
        self.goes_on: bool = False
        """Whether anything but white space follows the object. Then the header is refused."""
        self.block_bytes: int = LONG_BYTES
        """Length of the block that is best read next. More of plain numbers are read in one go, but not more values
        than have the time of a turn."""
        self._array: _Array | None = None
        self._seen: set[str] = set()

    @property
    def held_bytes(self) -> int:
        """Memory taken: text that is kept, and values of the entry that is being read."""
        entry = self._array and self._array.entry
        values = self._array and self._array.values
        return self._root.nbytes + (entry.nbytes if entry else 0) + (values.nbytes if values else 0)

    def feed(self, text: bytes) -> Turns:
        """Take the next bytes.

        Raises:
            RemoteProtocolError: the header is refused.
        """
        values = self._array and self._array.values
        if values and values.can_be_plain and self._scanner.passes(text):
            count = values.take(values.cutter.cut_plain(text, self._scanner.depth))
            fitting = _VALUES_PER_BLOCK * len(text) // count if count else 0
            self.block_bytes = max(LONG_BYTES, min(MOST_BLOCK_BYTES, fitting))
            return
        self.block_bytes = LONG_BYTES
        block = self._scanner.scan(text)
        position = 0
        while position < len(text):
            array = self._array
            if array is None:
                position = self._read_root(block, position)
            elif array.values is not None and not array.values.has_ended:
                position = self._read_values(array.values, block, position)
                yield
            else:
                position = yield from self._read_array(array, block, position)

    def finish(self) -> tuple[dict[str, Any], int]:
        """Return the root of the header, without the entries that were read, and its number of `NonFinite`.

        Raises:
            RemoteProtocolError: the text has ended too early, or is not JSON.
        """
        if self._array is not None:
            self._refuse_end(self._array)
        root: tuple[dict[str, Any], int] = self._root.parse(self._limits, str)
        return root

    def _refuse_end(self, array: _Array) -> None:
        """Refuse a text that has ended within an array of entries."""
        if array.values is not None:
            for part in array.values.kept:
                part.parse(self._limits)
            if not array.values.has_ended:
                array.values.cutter.cut_end().parse(self._limits, is_cut=True)
        self._parse_entries(array, array.entry or KeptText(self._scanner.offset), b"")

    def _read_root(self, block: TextBlock, position: int) -> int:
        """Keep text of the root up to the next array of entries; return how far it goes."""
        text, root = block.text, self._root
        if self._has_ended or not root.nbytes:
            position = len(text) - len(text[position:].lstrip(WHITE_SPACE))
            if position == len(text):
                root.skip_to(block.offset + position)
                return position
            if self._has_ended:
                self._refuse_more(text[position:], block.offset + position)
            if text[position : position + 1] == b"[":
                msg = "the header is a JSON array, not an object"
                raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, path="$")
        close = block.first(block.depths <= 0, position)
        end = len(text) if close is None else int(block.places[close]) + 1
        found = root.find(self._resolved, _ARRAY_DEPTH, block, position, end)
        if found is not None:
            key, end = found[0], found[1] + 1
            if key in self._seen:
                raise _twice(key, "$")
            self._seen.add(key)
            self._array = _Array(key, self._items[key])
        root.add(block, position, end)
        root.check_size(self._limits, "$")
        self._has_ended = close is not None and found is None
        return end

    def _refuse_more(self, text: bytes, offset: int) -> NoReturn:
        """Refuse text after the object; an error in that text itself is reported first."""
        self.goes_on = True
        self._root.parse(self._limits, str)
        try:
            utf_8_decode(text, "strict", False)  # which may end within a character
        except UnicodeDecodeError as error:
            msg = "the header is not UTF-8"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_UTF8, offset=offset + error.start) from None
        msg = "the header is not JSON: extra data"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_JSON, offset=offset)

    def _read_array(self, array: _Array, block: TextBlock, position: int) -> Generator[None, None, int]:
        """Read entries up to the end of the array or of the block, or to the values of the last; return how far."""
        close = block.first(block.depths < _ARRAY_DEPTH, position)
        first, last = block.index(position), len(block.places) if close is None else close
        end = len(block.text) if close is None else int(block.places[close])
        is_comma = (block.kinds[first:last] == COMMA) & (block.depths[first:last] == _ARRAY_DEPTH)
        commas = block.places[first:last][is_comma]
        if array.entry is None and (len(commas) or close is not None):
            stop = int(commas[-1]) if close is None else end
            if plain := parse_plain_entries(block.text[position:stop]):
                yield
                yield from self._take_entries(array, plain)
            else:
                entries = KeptText(block.offset + position)
                entries.add(block, position, stop)
                yield from self._read_entries(array, entries, is_last=close is not None)
        else:
            stop = int(commas[0]) if len(commas) else end
            entry = array.entry = array.entry or KeptText(block.offset + position)
            values = self._find_values(array, entry, block, position, stop)
            if values is not None:
                return values
            entry.add(block, position, stop)
            entry.check_size(self._limits, array.path)
            if stop == len(block.text):
                return stop
            yield from self._read_entries(array, entry, is_last=not len(commas))
        if stop != end:
            return stop + 1
        self._array = None
        return end

    def _find_values(self, array: _Array, entry: KeptText, block: TextBlock, position: int, stop: int) -> int | None:
        """Search for the values of an entry that is kept; return where they begin, or None if not in this block."""
        found = entry.find(_DATA_OPENING, DATA_DEPTH, block, position, stop) if array.items.has_data else None
        if found is None:
            return None
        if array.values is not None:
            raise _twice("data", array.path)
        start = found[1] + 1
        entry.add(block, position, start)
        entry.check_size(self._limits, array.path)
        path = array.path
        members = entry.parse_before_data(self._limits, lambda inner: path + inner.removeprefix("$"))
        array.values = _Values(array.items.begin(members), Cutter(block.offset + start, f"{path}.data", self._limits))
        return start

    def _read_values(self, values: _Values, block: TextBlock, position: int) -> int:
        """Read values up to the end of the array or of the block; return how far."""
        part, end = values.cutter.cut(block, position)
        values.take(part)
        values.has_ended = end is not None
        return len(block.text) if end is None else end

    def _read_entries(self, array: _Array, text: KeptText, *, is_last: bool) -> Turns:
        """Read entries whose text is complete."""
        entries, constants = self._parse_entries(array, text, b"]" if is_last else b",0]")
        entries = entries[not array.is_first : len(entries) - (not is_last)]
        yield
        values, data = array.values, None
        if values is not None:
            values.data = values.data or array.items.begin(entries[0])
            if values.data is not None:  # else a member is missing, and the reader refuses the entry
                data = values.data
                for part in values.kept:
                    data.take(part)
                    yield
                yield from data.complete()
        yield from self._take_entries(array, entries, constants, data)

    def _take_entries(
        self, array: _Array, entries: list[Any], constants: int = 0, data: SlicedData | None = None
    ) -> Turns:
        """Pass parsed entries to their reader."""
        if array.count + len(entries) > self._limits.max_tensors:
            msg = (
                f"{array.key} has {array.count + len(entries)} entries or more, {self._limits.max_tensors} are allowed"
            )
            raise LimitExceededError(msg, limit="max_tensors", path=f"$.{array.key}")
        yield from array.items.read(entries, constants, data)
        array.count += len(entries)
        array.is_first = False
        array.entry = array.values = None

    def _parse_entries(self, array: _Array, text: KeptText, end: bytes) -> Any:  # noqa: ANN401 - any JSON value
        """Parse entries, with a zero added before the first comma and after the last one, as for slices."""
        return text.parse(self._limits, array.path_of, b"[" if array.is_first else b"[0,", end)


def _twice(key: str, path: str) -> RemoteProtocolError:
    msg = f"an object of the header has the member {shown(key)} twice"
    return RemoteProtocolError(msg, code=ErrorCode.DUPLICATE_KEY, path=path)
