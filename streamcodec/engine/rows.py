"""Rows: a tensor that is written as consecutive windows of whole rows.

Whoever cannot hold a tensor, or has not finished computing it, gives its datatype and shape and something that yields
it piece by piece. The lengths follow from datatype and shape, so the head of the message is exact before the first row
exists. What comes is then held against what was said: a window of another datatype or shape, a row too many or too few
is a `LocalProtocolError` at once. By then the beginning of the message has been sent, and no end can make it right;
whoever sends closes the connection, so that the peer sees a message that was cut short, and never a wrong one.

Rows are counted along the first dimension; a scalar has one, of shape `()`. This room knows how windows become bytes,
and not who asks for them: `RowWriter` is fed window by window, so it serves blocking and asynchronous senders alike.
"""

from __future__ import annotations

import math
import operator
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Protocol, cast, final

import numpy as np

from streamcodec.engine.datatypes import DATATYPES, Datatype, datatype_of, to_wire
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.placement import byte_view

Window = np.ndarray[Any, Any]
"""Consecutive whole rows, of shape `(rows, *shape[1:])`."""

WindowIterable = Iterable[Window] | AsyncIterable[Window]
"""What yields the windows of a tensor, from the first row to the last."""


class WindowSource(Protocol):
    """A `WindowIterable` as it is taken: by `for` or by `async for`, of which the other one raises `TypeError`.

    Which of them it is, the taker knows: a model that is an `async def` gets asynchronous windows, any other does not.
    """

    def __iter__(self) -> Iterator[Window]:
        """Iterate over windows that can be had by `for`."""
        ...

    def __aiter__(self) -> AsyncIterator[Window]:
        """Iterate over windows that can be had by `async for`."""
        ...


@final
class Rows:
    """The values of a tensor, as windows that come when they are asked for.

    Attributes:
        datatype: name on the wire, of each window; not BYTES, whose length does not follow from the shape.
        shape: of the whole tensor.
        windows: arrays of shape `(rows, *shape[1:])`, any number of rows each, together all of them. Each is only read
            before the next is asked for, so all may be the same memory. An asynchronous iterable can be sent by
            asynchronous programs only.

    Example:
        >>> import numpy as np
        >>> from streamcodec import Tensor, encode_request
        >>> ramps = Rows("INT32", (1000, 256), (np.full((10, 256), i, "<i4") for i in range(100)))
        >>> message = encode_request([Tensor(name="x", array=ramps)])
        >>> message.body_length - message.header_length
        1024000
    """

    __slots__ = ("datatype", "shape", "windows")

    def __init__(self, datatype: str, shape: tuple[int, ...], windows: WindowIterable) -> None:
        """Declare a tensor.

        Raises:
            LocalProtocolError: no datatype of the protocol, BYTES, or not a shape.
        """
        known = DATATYPES.get(datatype)
        if known is None or known.is_bytes:
            msg = f"a tensor given in windows is of one of the datatypes of fixed size, not {datatype!r}"
            raise LocalProtocolError(msg)
        try:
            sizes = tuple(map(operator.index, shape))
        except TypeError:
            sizes = (-1,)
        if min(sizes, default=0) < 0:
            msg = f"a shape is a sequence of integers >= 0, unlike {shape!r}"
            raise LocalProtocolError(msg)
        self.datatype: str = datatype
        self.shape: tuple[int, ...] = sizes
        self.windows: WindowSource = cast("WindowSource", windows)

    def __repr__(self) -> str:
        """Return what is declared; the windows stay untouched."""
        return f"Rows({self.datatype!r}, {self.shape!r}, ...)"

    @property
    def nbytes(self) -> int:
        """Bytes of the binary form."""
        return math.prod(self.shape) * DATATYPES[self.datatype].itemsize

    @property
    def row_count(self) -> int:
        """Number of rows: the first dimension, 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def is_asynchronous(self) -> bool:
        """Whether the windows can be had by `async for` only."""
        return isinstance(self.windows, AsyncIterable)


class RowWriter:
    """Turns the windows of one tensor into bytes, and holds them against what was declared.

    The last byte waits until the windows have ended. A source that fails at its very end, or has a row too many, so
    never leaves a message behind that looks whole.
    """

    def __init__(self, rows: Rows) -> None:
        """Expect the first row."""
        self._rows = rows
        self._datatype: Datatype = DATATYPES[rows.datatype]
        self._written = 0
        self._left = rows.nbytes
        self._last = b""

    def write(self, window: Window) -> memoryview:
        """Return the bytes of the next window.

        Args:
            window: of the tensor's datatype, and of shape `(rows, *shape[1:])`; none to all of the missing rows.

        Returns:
            A byte view, of the window's own memory if that is C-contiguous and little-endian, else of a copy. It is
            empty for a window without elements, and lacks the last byte of the tensor.

        Raises:
            LocalProtocolError: another datatype or shape, or more rows than are missing.
        """
        window = np.asarray(window)  # also of what only resembles an array, as the numbers of numpy do
        count = self._checked_count(window)
        missing = self._rows.row_count - self._written
        if count > missing:
            msg = f"a window has {count} rows where {missing} of {self._rows.row_count} were missing"
            raise LocalProtocolError(msg)
        self._written += count
        view = byte_view(to_wire(window))
        self._left -= len(view)
        if self._left or not view:
            return view
        self._last = bytes(view[-1:])
        return view[:-1]

    def finish(self) -> bytes:
        """Tell that there are no more windows.

        Returns:
            The last byte of the tensor; nothing if the tensor is empty.

        Raises:
            LocalProtocolError: rows are missing.
        """
        if self._written != self._rows.row_count:
            msg = f"the windows ended after {self._written} of {self._rows.row_count} rows"
            raise LocalProtocolError(msg)
        return self._last

    def _checked_count(self, window: Window) -> int:
        """Return the number of rows of a window that has the right form."""
        shape, wanted = window.shape, self._rows.shape
        if datatype_of(window.dtype) is not self._datatype or len(shape) != len(wanted) or shape[1:] != wanted[1:]:
            declared = f"{self._datatype.name} {list(wanted)}"
            msg = f"a window {window.dtype} {list(shape)} does not fit the tensor, which is {declared}"
            raise LocalProtocolError(msg)
        return shape[0] if shape else 1


def row_buffers(rows: Rows) -> Iterator[memoryview]:
    """Yield the bytes of a tensor window by window; each view is to be used up before the next is asked for.

    Raises:
        LocalProtocolError: the windows are not what was declared, or are asynchronous.
    """
    writer = RowWriter(rows)
    for window in synchronous(rows):
        if view := writer.write(window):
            yield view
    if last := writer.finish():
        yield memoryview(last)


def synchronous(rows: Rows) -> Iterable[Window]:
    """Return the windows of a tensor for a plain `for`.

    Raises:
        LocalProtocolError: they are asynchronous.
    """
    if rows.is_asynchronous:
        msg = "the windows of a tensor are asynchronous; only an asynchronous program can send them, in binary form"
        raise LocalProtocolError(msg)
    return rows.windows


def collect(rows: Rows) -> Window:
    """Return the whole tensor as one array: what the JSON form needs, and what windows are there to avoid.

    Raises:
        LocalProtocolError: the windows are not what was declared, or are asynchronous.
    """
    array = np.empty(rows.shape, DATATYPES[rows.datatype].dtype)
    target, position = byte_view(array), 0
    for view in row_buffers(rows):
        target[position : position + len(view)] = view
        position += len(view)
    return array
