"""Blocks: memory for the rows of several requests, one after the other, where the network writes them.

When the JSON header of a request has come, its rows get a *seat* in the open block of the requests that it goes
together with. If all rows of a batch lie one after the other when it is closed, nothing has to be copied. A request
that is late, cut off or refused delays nobody: the batch is closed without it, and if that leaves a gap, a few rows are
moved (`compaction`). No seat is given twice as long as bytes may still come for it.

A block belongs to one batch. What is late for that goes together with other requests that are late. Its memory is in
the budget until the last of its requests is over. While others wait for memory, it has only what is seated.

Under WSGI each request is received by a thread of its own. So seats are given and left, and blocks closed, under the
lock of their budget. A closed block gives no seat, so who arranges its rows afterwards needs none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import numpy as np

from streamcodec.engine.memory.placement import ALIGNMENT, Place, Placement, Slab, byte_view
from streamcodec.engine.record import replaced
from streamcodec.engine.spec import TensorSpec
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.models.batching import Batch

_Array = np.ndarray[Any, Any]

_LEAST_BYTES: Final = 64 << 10
"""Of a request that gets a seat. To copy fewer bytes takes less than to give a seat."""

_MOST_BYTES: Final = 64 << 20
"""Of a block. Some are filled while another one is computed, and the pool keeps them for the next ones. New memory
would cost more than a copy."""

_SHARES: Final = 8
"""A block has at most one of so many parts of the budget."""


class Block:
    """The memory of one batch.

    Attributes:
        is_whole: whether no batch of its requests has been closed yet.
    """

    __slots__ = (
        "__weakref__",
        "_arrays",
        "_is_open",
        "_reservation",
        "_row_bytes",
        "_rows",
        "_seats",
        "_taken",
        "_used",
        "is_whole",
    )

    def __init__(self, arrays: Mapping[str, _Array], rows: int, row_bytes: int, reservation: Reservation) -> None:
        """Begin with memory for so many rows of each input; all of it is reserved."""
        self._arrays = arrays
        self._rows = rows
        self._row_bytes = row_bytes
        self._reservation = reservation
        self._taken = 0
        self._seats = 0
        self._used = bytearray(rows)
        self._is_open = True
        self.is_whole: bool = True
        reservation.taken = self._taken_bytes

    @property
    def most(self) -> int:
        """Most rows of a batch of its requests, as far as that is known."""
        return self._rows if self._is_open else self._taken

    def between(self, start: int, end: int) -> dict[str, _Array]:
        """Return rows of all inputs, as views that cannot be written to: each request may be tried again alone."""
        views = {name: array[start:end] for name, array in self._arrays.items()}
        for view in views.values():
            view.flags.writeable = False
        return views

    def seat(self, rows: int) -> Seat | None:
        """Return the next seat, if there is room for it. If not, there will be none for others either."""
        start, end = self._taken, self._taken + rows
        if not self._is_open or self._reservation.is_short or end > self._rows:
            self._is_open = False
            return None
        self._taken = end
        self._used[start:end] = b"\1" * rows
        self._seats += 1
        self._is_open = end < self._rows
        return Seat(self, start, rows, {name: array[start:end] for name, array in self._arrays.items()})

    def close(self) -> None:
        """Report that a batch of its requests has been closed."""
        with self._reservation.lock:
            self._is_open = self.is_whole = False

    def has_free(self, start: int, end: int) -> bool:
        """Whether nobody uses these rows: no seat was given there, or the request that had it is over."""
        is_there = start >= 0 and end <= (self._taken if self._reservation.is_short else self._rows)
        return is_there and not any(self._used[start:end])

    def use(self, start: int, end: int) -> None:
        """Take free rows of a closed block, until the block has ended."""
        self._used[start:end] = b"\1" * (end - start)
        self._taken = max(self._taken, end)

    def write(self, start: int, inputs: Mapping[str, _Array]) -> None:
        """Copy the rows of a request to used rows."""
        for name, array in self._arrays.items():
            rows = inputs[name]
            array[start : start + len(rows)] = rows

    def leave(self, start: int, rows: int) -> None:
        """Report that a request that has a seat is over. The memory is given back after the last one."""
        with self._reservation.lock:
            self._used[start : start + rows] = bytes(rows)
            self._seats -= 1
            if self._seats:
                return
            self._is_open = False
        self._reservation.release()

    def _taken_bytes(self) -> int:
        return self._taken * self._row_bytes


class Seat:
    """The place of one request in a block.

    Attributes:
        block: where it is.
        start: index of the first row.
        rows: how many.
        arrays: its rows, by the names of the inputs.
    """

    __slots__ = ("_is_over", "arrays", "block", "rows", "start")

    def __init__(self, block: Block, start: int, rows: int, arrays: Mapping[str, _Array]) -> None:
        """Take these rows."""
        self._is_over = False
        self.block: Block = block
        self.start: int = start
        self.rows: int = rows
        self.arrays: Mapping[str, _Array] = arrays

    def place(self, spec: TensorSpec) -> Placement:
        """Place an input; see `Place`."""
        return _Rows(self.arrays[spec.name])

    def leave(self) -> None:
        """Report that the request is over."""
        if not self._is_over:
            self._is_over = True
            self.block.leave(self.start, self.rows)


class _Rows:
    """Rows of a block."""

    def __init__(self, array: _Array) -> None:
        self._array = array

    def slabs(self, _: TensorSpec) -> Iterator[Slab]:
        """Return one slab. Nobody else has its memory, so it is as good as new."""
        return iter((Slab(buffer=byte_view(self._array), array=self._array, is_new=True),))


class Blocks:
    """The open blocks of one model. A block lives as long as somebody has a seat in it. Any thread may use them.

    Attributes:
        is_written: whether the model writes into its inputs, so that it needs a copy of them.
    """

    def __init__(self) -> None:
        """Begin without blocks."""
        self._open: WeakValueDictionary[Hashable, Block] = WeakValueDictionary()
        self.is_written: bool = False

    def __reduce__(self) -> tuple[type[Blocks], tuple[()]]:
        """Leave everything out: a copy of the model in another process has its own."""
        return Blocks, ()

    def seat(
        self, batch: Batch, key: Hashable, tensors: Sequence[TensorSpec], place: Place, reservation: Reservation
    ) -> Seat | None:
        """Return a seat for a request; None if it goes without: it is small, unusual, or there is too little memory.

        Args:
            batch: of the model.
            key: what agrees for requests that go together.
            tensors: of the request.
            place: gives a block new memory.
            reservation: of the request.
        """
        rows = tensors[0].shape[0]
        row_bytes = sum([spec.nbytes for spec in tensors]) // max(rows, 1)
        if self.is_written or rows * row_bytes < _LEAST_BYTES or not all(map(_is_plain, tensors)):
            return None
        key = reservation.budget, key
        with reservation.lock:
            block = self._open.get(key)
            seat = None if block is None else block.seat(rows)
            if seat is not None:
                return seat
            most, beside = batch.max_rows, reservation.beside()
            is_too_large = most * row_bytes > min(_MOST_BYTES, reservation.budget.max_bytes // _SHARES)
            if rows == most or is_too_large or not beside.ask_at_once(most * row_bytes):
                return None
            arrays = {spec.name: _new(spec, most, place) for spec in tensors}
            self._open[key] = block = Block(arrays, most, row_bytes, beside)
            return block.seat(rows)


def _is_plain(spec: TensorSpec) -> bool:
    """Whether a tensor comes as bytes that are its values, and each row is as well aligned as the first one."""
    is_binary = spec.data is None and not spec.datatype.is_bytes
    return is_binary and not spec.nbytes // spec.shape[0] % ALIGNMENT


def _new(spec: TensorSpec, rows: int, place: Place) -> _Array:
    """Return memory for so many rows of an input."""
    shape = (rows, *spec.shape[1:])
    spec = replaced(spec, shape=shape, nbytes=spec.nbytes // spec.shape[0] * rows, offset=None)
    return cast("_Array", next(iter(place(spec).slabs(spec))).array)
