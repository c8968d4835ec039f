"""Elements: a BYTES tensor in its wire layout, and its conversion to Python objects.

Two layouts without objects are in use. In Arrow's layout, one buffer holds all payloads without gaps, and a second one
holds their ends. On the wire, a length precedes each payload. `Elements` uses the wire layout: received bytes are used
in place, and sent in place. An array of offsets says where each element starts.

Measured with 32-byte elements, to or from the wire: this layout takes 2 ns per element, because only the offsets have
to be computed. Arrow's layout takes 13 ns, because payloads have to be copied. An object array takes 55 to 75 ns, one
Python object for each element, so it is made only on request. Objects also take memory: 56 bytes or more for each
element of two bytes or more, with the reference to it. So they are made some thousand at a time.

This module knows the layouts and the objects. `prefixes` finds the offsets, and `runs` copies many payloads at once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, SupportsIndex, final, overload

import numpy as np
import numpy.typing as npt

from streamcodec.engine.elements.payloads import check_length, join_payloads
from streamcodec.engine.elements.prefixes import (
    PREFIX_BYTES,
    Octets,
    OffsetFinder,
    Offsets,
    find_offsets,
    spaced_prefixes,
    write_prefixes,
)
from streamcodec.engine.elements.runs import common_length, cut, move, spaced
from streamcodec.engine.errors import LocalProtocolError

_FEW: Final = 16
"""Up to this number of elements, a loop is quicker than numpy. They are copied twice."""

_SHORT_BYTES: Final = 64 << 10
"""Bytes up to which that matters little."""

_MADE_AT_ONCE: Final = 32 << 10
"""Elements whose objects are made at once: what is needed beside the objects is bounded by these."""


@final
class Elements:
    """The elements of a BYTES tensor, without an object for each.

    The elements are numbered in row-major order, for every shape. Element i is `data[offsets[i] + 4 : offsets[i + 1]]`,
    after the 4 bytes of its length. `Elements` are immutable.

    Example:
        >>> sides = Elements([b"left", "right"])
        >>> sides.offsets.tolist()
        [0, 8, 17]
        >>> sides[1]
        b'right'
    """

    __slots__ = ("_array", "_data", "_offsets", "_shape")

    _array: np.ndarray[Any, Any] | None
    datatype: Final = "BYTES"
    """Name on the wire."""

    def __init__(self, values: np.ndarray[Any, Any] | Iterable[bytes | str]) -> None:
        """Copy values into one memory.

        Args:
            values: an array of any shape, or an iterable; elements are `bytes`-like, or `str`, which becomes UTF-8.

        Raises:
            LocalProtocolError: an element is something else, or longer than 4 GiB.
        """
        array = values if isinstance(values, np.ndarray) else np.fromiter(values, object)
        self._keep(*join_payloads(array.reshape(-1)), array.shape)

    @classmethod
    def from_wire(
        cls, data: bytes | bytearray | memoryview | Octets, shape: tuple[int, ...], *, offset: int = 0
    ) -> Elements:
        """Take a BYTES tensor as it is on the wire.

        Args:
            data: the whole tensor, byte for byte. It is not copied, so it must not change any more.
            shape: of the tensor.
            offset: of the tensor in the message body, for errors.

        Raises:
            RemoteProtocolError: `invalid-elements`, with the offset of the first length that does not fit.
        """
        octets = np.frombuffer(data, np.uint8)
        count = math.prod(shape)
        offsets = find_offsets(octets, count, offset=offset)
        return cls.__new__(cls)._keep(offsets, octets, shape)  # noqa: SLF001 - this is a constructor

    @classmethod
    def found(cls, finder: OffsetFinder, data: memoryview, shape: tuple[int, ...]) -> Elements:
        """Take a BYTES tensor as it is on the wire, whose offsets have been found already."""
        return cls.__new__(cls)._keep(finder.offsets, np.frombuffer(data, np.uint8), shape)  # noqa: SLF001

    @classmethod
    def from_compact(
        cls,
        offsets: npt.ArrayLike,
        data: bytes | bytearray | memoryview | Octets,
        shape: tuple[int, ...] | None = None,
    ) -> Elements:
        """Copy elements that are stored as Arrow does it: their payloads with nothing between them.

        Args:
            offsets: integers of shape [count + 1]; element i is `data[offsets[i] : offsets[i + 1]]`.
            data: the payloads.
            shape: of the tensor; [count] if it is not given.

        Raises:
            LocalProtocolError: the offsets are not ascending or not within the data, an element is longer than 4 GiB,
                or the shape is that of another number of elements.
        """
        octets = np.frombuffer(data, np.uint8)
        ends = _checked_offsets(np.asarray(offsets), len(octets))
        count, lengths = len(ends) - 1, np.diff(ends)
        if shape is None:
            shape = (count,)
        if math.prod(shape) != count:
            msg = f"the offsets are those of {count} elements, unlike the shape {list(shape)}"
            raise LocalProtocolError(msg)
        check_length(int(lengths.max(initial=0)))
        wire = np.empty(int(ends[-1] - ends[0]) + PREFIX_BYTES * count, np.uint8)
        if length := common_length(lengths):
            step = PREFIX_BYTES + length
            starts = np.arange(0, len(wire) + 1, step, dtype=np.int64)
            target = spaced(wire, length, start=PREFIX_BYTES, step=step, count=count)
            target[:] = spaced(octets, length, start=int(ends[0]), step=length, count=count)
            spaced_prefixes(wire, step, count)[:] = length
        else:
            starts = ends - ends[0] + np.arange(0, PREFIX_BYTES * count + 1, PREFIX_BYTES)
            move(octets, ends[:-1], lengths, wire, starts[:-1] + PREFIX_BYTES)
            write_prefixes(wire, starts[:-1], lengths)
        return cls.__new__(cls)._keep(starts, wire, shape)  # noqa: SLF001 - this is a constructor

    def compact(self) -> tuple[Offsets, Octets]:
        """Return the elements as Arrow stores them, copied.

        Returns:
            offsets: int64 of shape [count + 1].
            data: uint8; element i is `data[offsets[i] : offsets[i + 1]]`.
        """
        count, lengths = len(self), self._offsets[1:] - self._offsets[:-1] - PREFIX_BYTES
        ends = self._offsets - np.arange(0, PREFIX_BYTES * count + 1, PREFIX_BYTES)
        if length := common_length(lengths):
            runs = spaced(self._data, length, start=PREFIX_BYTES, step=PREFIX_BYTES + length, count=count)
            return ends, runs.copy().view(np.uint8)
        data = np.empty(int(ends[-1]), np.uint8)
        move(self._data, self._offsets[:-1] + PREFIX_BYTES, lengths, data, ends[:-1])
        return ends, data

    @property
    def offsets(self) -> Offsets:
        """Where the lengths of the elements stand in `data`: read-only, of shape [count + 1]; the last is its end."""
        return self._offsets

    @property
    def data(self) -> Octets:
        """The tensor as it is on the wire: read-only, of shape [nbytes]."""
        return self._data

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor; `()` is a scalar."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Bytes of the binary form: payloads and lengths."""
        return len(self._data)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The elements as an object array of `bytes`. It is made at the first access, and then kept."""
        if self._array is None:
            flat = np.empty(len(self), object)
            if len(self) <= _FEW and len(self._data) <= _SHORT_BYTES:
                data, places = self._data.tobytes(), self._offsets.tolist()
                flat[:] = [data[start + PREFIX_BYTES : end] for start, end in pairwise(places)]
            else:
                for start, made in self._made_in_slices(0, len(self)):
                    flat[start : start + len(made)] = made
            self._array = flat.reshape(self._shape)
        return self._array

    def __len__(self) -> int:
        """Return the number of elements, in all dimensions together."""
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> np.ndarray[Any, Any]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> bytes | np.ndarray[Any, Any]:
        """Return one element, by its number in row-major order; or for a slice the objects of these alone, as an array.

        Raises:
            IndexError: the number is out of range, or the slice does not take each element of a range.
        """
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                msg = f"slices of elements have the step 1, not {step}"
                raise IndexError(msg)
            parts = [made for _, made in self._made_in_slices(start, stop)]
            return np.concatenate(parts) if parts else np.empty(0, object)
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            msg = f"element {number} of {len(self)}"
            raise IndexError(msg)
        number %= len(self)
        start, end = self._offsets[number : number + 2].tolist()
        return self._data[start + PREFIX_BYTES : end].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        """Go through the elements in row-major order. Only some thousand of them are objects at a time."""
        for _, made in self._made_in_slices(0, len(self)):
            yield from made.tolist()

    def __array__(
        self,
        dtype: npt.DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001 - numpy's own protocol
    ) -> np.ndarray[Any, Any]:
        """Let numpy have `array`."""
        return np.array(self.array, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        """Return the dimensions, not the contents."""
        return f"Elements(<{list(self._shape)}, {self.nbytes} bytes>)"

    def _made_in_slices(self, start: int, stop: int) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        """Yield the objects of a range of elements, some at a time, each time with the number of the first."""
        for first in range(start, stop, _MADE_AT_ONCE):
            offsets = self._offsets[first : min(stop, first + _MADE_AT_ONCE) + 1]
            places, lengths = offsets[:-1] + PREFIX_BYTES, np.diff(offsets) - PREFIX_BYTES
            if length := common_length(lengths):
                runs = spaced(self._data, length, start=int(places[0]), step=PREFIX_BYTES + length, count=len(places))
                yield first, runs.astype(object)
            else:
                yield first, cut(self._data, places, lengths)

    def _keep(self, offsets: Offsets, data: Octets, shape: tuple[int, ...]) -> Elements:
        """Keep what has been checked; what was a length to us must not be another one to the receiver."""
        offsets.flags.writeable = data.flags.writeable = False
        self._offsets, self._data, self._shape = offsets, data, shape
        self._array = None
        return self


def _checked_offsets(offsets: np.ndarray[Any, Any], nbytes: int) -> Offsets:
    """Return offsets that are ascending and within the data."""
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        msg = f"offsets are integers of shape [count + 1], unlike {offsets.dtype} {list(offsets.shape)}"
        raise LocalProtocolError(msg)
    if offsets[0] < 0 or offsets[-1] > nbytes or bool((offsets[1:] < offsets[:-1]).any()):
        msg = f"offsets are ascending from 0 or more to {nbytes}, the length of the data, at most"
        raise LocalProtocolError(msg)
    return offsets.astype(np.int64)
