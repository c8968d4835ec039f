"""Windows: a tensor passes through constant memory, some rows at a time. Discard: a tensor is read and dropped.

The buffers are allocated for one tensor, and reused for all its rows. So the decoder must not go on before the consumer
has finished with a window. Only the consumer knows when that is, and says so by requesting the next event. With one
buffer, filling and consuming alternate. With two, the next window is filled while the consumer works on the previous
one, if the transport reads meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import Any, Final

import numpy as np

from streamcodec.engine.arguments import whole
from streamcodec.engine.errors import LimitExceededError, LocalProtocolError, kind_of
from streamcodec.engine.memory.placement import (
    Place,
    Placement,
    Slab,
    aligned_bytes,
    check_place,
    new_array,
    placed_bytes,
)
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec

_MAX_BUFFERS: Final = 2

_SCRATCH_BYTES: Final = 64 << 10


@record(eq=True)
class Windows:
    """Consecutive windows of whole rows, in buffers that are reused: constant memory for a tensor of any size.

    Each window is reported by a `WindowReceived`. From the `buffer_count`-th window of a tensor on, the decoder takes
    no data after a window (`needs_data` is False) until `next_event` is called again. That call says that the oldest
    window is no longer needed. So a window's array is valid until the next call of `next_event`. With two buffers, the
    last two windows are valid. A row is selected by the first index; a scalar is a single row. A tensor without
    elements comes in one empty window. JSON tensors pass through the same windows. BYTES tensors are not placed: they
    are received as a whole.

    Raises:
        LocalProtocolError: a number is out of its range.
    """

    max_window_bytes: int = 1 << 20
    """Bytes of one buffer; as many whole rows as fit."""
    buffer_count: int = 1
    """1, or 2 to fill one buffer while the other is being consumed."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        nbytes, count = self.max_window_bytes, self.buffer_count
        if (whole(nbytes) or 0) < 1 or not 1 <= (whole(count) or 0) <= _MAX_BUFFERS:
            msg = f"windows have at least 1 byte and 1 or 2 buffers, not {nbytes!r} and {count!r}"
            raise LocalProtocolError(msg)

    def row_bytes(self, spec: TensorSpec) -> int:
        """Return the bytes of one row of a tensor that has a fixed item size.

        Raises:
            LimitExceededError: the tensor has rows, and one is larger than a window.
        """
        row_bytes = prod(spec.shape[1:]) * spec.datatype.itemsize
        if row_bytes > self.max_window_bytes and (not spec.shape or spec.shape[0]):
            msg = f"a row of tensor {spec.name!r} has {row_bytes} bytes, a window at most {self.max_window_bytes}"
            raise LimitExceededError(msg, limit="max_window_bytes")
        return row_bytes

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the windows, in 1 or 2 buffers that start on 64-byte boundaries.

        Raises:
            LimitExceededError: a single row is larger than a window; before memory is taken.
        """
        row_count, row_shape = (spec.shape[0], spec.shape[1:]) if spec.shape else (1, ())
        row_bytes = self.row_bytes(spec)
        step = min(row_count, self.max_window_bytes // row_bytes) if row_bytes else row_count
        buffers: list[np.ndarray[Any, Any]] = []
        for number, row in enumerate(range(0, row_count, step) if step else (0,)):
            if number < self.buffer_count:
                buffers.append(aligned_bytes(step * row_bytes))
            rows = min(step, row_count - row)
            memory = buffers[number % self.buffer_count][: rows * row_bytes]
            shape = (rows, *row_shape) if spec.shape else ()
            yield Slab(
                buffer=memory.data,
                array=np.ndarray(shape, spec.datatype.dtype, memory),
                row=row,
                must_wait=number + 1 >= self.buffer_count,
                is_new=True,
            )


@record(eq=True)
class Discard:
    """The bytes are read, checked as usual, and dropped. No event reports the tensor."""

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield a small buffer until all bytes have gone through it."""
        size = placed_bytes(spec)
        scratch = aligned_bytes(min(size, _SCRATCH_BYTES)).data
        for position in range(0, size, _SCRATCH_BYTES):
            yield Slab(buffer=scratch[: size - position], array=None, is_new=True)


def chosen(names: Collection[str], place: Place = new_array) -> Place:
    """Place the tensors of these names, and discard all others, for which no memory is taken.

    A name that the message does not have is not an error: the header says which tensors there are. BYTES tensors are
    not placed, so they are received as a whole.

    Args:
        names: names of the wanted tensors.
        place: returns the placement of a wanted tensor.

    Raises:
        LocalProtocolError: the names are one text, or `place` is no function.

    Example:
        >>> from streamcodec.formats import safetensors
        >>> decoder = safetensors.decoder(place=chosen({"embedding", "norm"}))
    """
    if isinstance(names, str) or not isinstance(names, Collection):
        msg = f"names are a set or list of str, as {{'x'}}, not {kind_of(names)}"
        raise LocalProtocolError(msg)
    check_place(place)

    def place_chosen(spec: TensorSpec) -> Placement:
        return place(spec) if spec.name in names else _DISCARD

    return place_chosen


_DISCARD = Discard()
