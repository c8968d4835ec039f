"""Rows: a tensor that is written as consecutive windows of whole rows.

`Rows` are for a tensor that does not fit into memory, or that is still being computed. The caller gives its datatype
and shape, and an iterable of its windows. The lengths follow from datatype and shape, so the header of the message is
exact before the first row exists. The windows are checked when they come: another datatype or shape, or a row too many
or too few, is a `LocalProtocolError` at once. By then the beginning of the message has been sent. So the sender closes
the connection, and the peer sees a truncated message, but never a wrong one.

Rows are counted along the first dimension. A scalar has one row, of shape `()`. This module converts windows to bytes.
It does not know the sender: `RowWriter` gets window by window, so it serves blocking and asynchronous senders.
"""

from __future__ import annotations

import math
import operator
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Protocol, cast, final

import numpy as np

from streamcodec.engine.datatypes import DATATYPES, Datatype, datatype_of, to_wire
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.placement import byte_view

Window = np.ndarray[Any, Any]
"""Consecutive whole rows, of shape `(rows, *shape[1:])`."""

WindowIterable = Iterable[Window] | AsyncIterable[Window]
"""Yields the windows of a tensor, from the first row to the last."""


class WindowSource(Protocol):
    """A `WindowIterable` as a consumer sees it. It supports either `for` or `async for`; the other raises `TypeError`.

    The consumer knows which one: a model that is an `async def` gets asynchronous windows, any other model does not.
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
        windows: arrays of shape `(rows, *shape[1:])`, each with any number of rows, together all rows. A window is not
            used after the next one is requested, so all may share the same memory. Only asynchronous programs can send
            an asynchronous iterable.

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
            LocalProtocolError: the datatype is BYTES or not in the protocol, or the shape is not a shape.
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
        """Return the declared datatype and shape; the windows are not used."""
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
    """Converts the windows of one tensor to bytes, and checks them against the declared datatype and shape.

    The last byte is kept back until the windows have ended. So if the source fails at its end, or has a row too many,
    the message that was sent does not look complete.
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
            window: array of the tensor's datatype, and of shape `(rows, *shape[1:])`; it may have no rows.

        Returns:
            A byte view, of the window's own memory if that is C-contiguous and little-endian, else of a copy. It is
            empty for a window without elements. The last byte of the tensor is left out.

        Raises:
            LocalProtocolError: another datatype or shape, or more rows than are missing.
        """
        window = np.asarray(window)  # also for objects that resemble arrays, such as numpy scalars
        shape, wanted = window.shape, self._rows.shape
        if datatype_of(window.dtype) is not self._datatype or len(shape) != len(wanted) or shape[1:] != wanted[1:]:
            declared = f"{self._datatype.name} {list(wanted)}"
            msg = f"a window {window.dtype} {list(shape)} does not fit the tensor, which is {declared}"
            raise LocalProtocolError(msg)
        count = shape[0] if shape else 1
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


def row_buffers(rows: Rows) -> Iterator[memoryview]:
    """Yield the bytes of a tensor, window by window. A view is valid until the next one is requested.

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
    """Return the whole tensor as one array, for the JSON form.

    Raises:
        LocalProtocolError: the windows are not what was declared, or are asynchronous.
    """
    array = np.empty(rows.shape, DATATYPES[rows.datatype].dtype)
    target, position = byte_view(array), 0
    for view in row_buffers(rows):
        target[position : position + len(view)] = view
        position += len(view)
    return array
