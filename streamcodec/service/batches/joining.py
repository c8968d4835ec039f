"""Joining: one call for several requests: their rows are put together, and the outputs are cut again. Without I/O.

Rows that lie one after the other in a block are not moved, but for a few (`members`); all others are gathered by a
copy. The outputs of a request are views of the outputs of its batch, so nothing is copied. An output that does not have
one row for each row of the batch cannot be cut: nobody knows whose rows are missing, and a client must never get the
rows of another. So such a call has failed.

If a call fails, nobody knows whose rows were to blame either. So its requests are tried once again alone, and each gets
what it would have got without the others. More than 16 are tried a few at a time before, and alone only those whose
call has failed again. A few are the square root of their number: one bad row of 64 takes 16 further calls, and the good
rows are seen once more. To halve the batch until the row is found would take 12 calls, and show them twice more. A
model that knows the bad rows says so by a `RowError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from math import isqrt
from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.placement import aligned_bytes
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.record import replaced
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.service.batches.blocks import Blocks
from streamcodec.service.batches.keys import kept
from streamcodec.service.batches.members import Failed, Member, block_of
from streamcodec.service.models.batching import RowError
from streamcodec.service.models.model import InferenceRequest, Outputs
from streamcodec.service.request.inference import as_values

_Array = np.ndarray[Any, Any]

_ALONE: Final = 16
"""Most requests of a failed call that are tried alone at once."""

Calls = Generator[InferenceRequest, object, None]
"""Yields the argument of each call, and is sent what the model has returned, or what it has raised as `Failed`."""

Check = Callable[[object], Outputs]
"""Returns what a model has returned, if it is a mapping; or raises `LocalProtocolError`."""


def calls(
    members: Sequence[Member],
    check: Check,
    *,
    retry_alone: bool,
    may_copy: bool = True,
    blocks: Blocks | None = None,
) -> Calls:
    """Call a model for some requests, and give each its outcome.

    Args:
        members: the requests.
        check: of what the model returns.
        retry_alone: whether to try each request once again alone, after a failure that may be that of others; many of
            them a few at a time before.
        may_copy: whether there is memory to gather their rows; if not, each has a call of its own, unless that is not
            needed.
        blocks: of the model. If it fails with all rows of a block, which it cannot change, and with none of the
            requests alone, its batches are copies from then on: it seems to write into its inputs.
    """
    block, is_right = block_of(members), False
    few = isqrt(len(members)) if len(members) > _ALONE else 1
    groups = deque([members])
    while groups:
        group = groups.popleft()
        if all(member.has_left for member in group):
            continue
        if len(group) > 1 and not may_copy and block_of(group) is None:
            groups.extend([member] for member in group)
            continue
        error = yield from _together(group, check, may_copy=may_copy)
        left = [member for member in group if member.outcome is None and not member.has_left]
        if error is None:
            is_right |= len(group) > 1
            groups.extend([member] for member in left)
        elif len(group) == 1 or not retry_alone:
            for member in left:
                member.outcome = Failed(error)
        else:
            size = few if len(left) > few else 1
            groups.extend(left[start : start + size] for start in range(0, len(left), size))
        del error  # its traceback refers to the inputs of the call
    if block is not None and blocks is not None and not is_right:
        alone = [member.outcome for member in members if member.outcome is not None]
        blocks.is_written |= bool(alone) and not any(isinstance(outcome, Failed) for outcome in alone)


def _together(
    members: Sequence[Member], check: Check, *, may_copy: bool = True
) -> Generator[InferenceRequest, object, BaseException | None]:
    """Call a model with all of these, and again with those that are left after a `RowError`.

    Returns:
        The error for those that have no outcome yet; None if all have one, or have to be called alone.
    """
    while members and (may_copy or len(members) == 1 or block_of(members) is not None):
        try:
            request = _joined(members)
        except MemoryError as error:
            return error
        returned = yield request
        del request
        try:
            if not isinstance(returned, Failed):
                _cut(members, check(returned))
                return None
            if not isinstance(returned.error, RowError) or not _blame(members, returned.error):
                return returned.error
            if returned.error.outputs is not None:
                _cut(members, check(returned.error.outputs))
                return None
        except Exception as error:  # noqa: BLE001 - outputs that cannot be cut, whatever their class does
            return error
        members = [member for member in members if member.outcome is None and not member.has_left]
    return None


def _blame(members: Sequence[Member], error: RowError) -> bool:
    """Give those whose rows are named their errors; return whether there are any."""
    start, has_named = 0, False
    for member in members:
        end = start + member.rows
        own = next((error.errors[row] for row in sorted(error.errors) if start <= row < end), None)
        if own is not None:
            member.outcome = Failed(own)
            has_named = True
        start = end
    return has_named


def _joined(members: Sequence[Member]) -> InferenceRequest:
    """Return the argument of a call. Its header has what agrees: neither ids nor requested outputs."""
    first, block = members[0].request, block_of(members)
    rows = sum([member.rows for member in members])
    inputs: Mapping[str, _Array] = first.inputs
    for member in members:
        member.has_begun = True
        member.move()
    if block is not None:
        inputs = block.between(members[0].start, members[0].start + rows)
    elif len(members) > 1:
        inputs = {name: _gathered([member.request.inputs[name] for member in members]) for name in inputs}
    tensors = tuple([_spec(tensor, rows, inputs[tensor.name]) for tensor in first.header.tensors])
    header = RequestHeader(tensors=tensors, parameters=kept(first.header.parameters))
    return replaced(first, inputs=inputs, header=header)


def _spec(tensor: TensorSpec, rows: int, array: _Array) -> TensorSpec:
    shape = (rows, *tensor.shape[1:])
    nbytes = 0 if array.dtype.hasobject else array.nbytes
    return replaced(tensor, shape=shape, nbytes=nbytes, offset=None, data=None, parameters=kept(tensor.parameters))


def _gathered(arrays: Sequence[_Array]) -> _Array:
    """Copy rows to one block."""
    first = arrays[0]
    if first.dtype.hasobject:
        return np.concatenate(arrays)
    shape = (sum(map(len, arrays)), *first.shape[1:])
    block = aligned_bytes(sum([array.nbytes for array in arrays])).view(first.dtype).reshape(shape)
    return np.concatenate(arrays, out=block)


def _cut(members: Sequence[Member], outputs: Outputs) -> None:
    """Give each request its rows, unless it has an outcome.

    Raises:
        LocalProtocolError: an output does not have the rows of the batch.
    """
    rows = sum([member.rows for member in members])
    arrays = {name: _array(name, value, rows) for name, value in outputs.items()}
    start = 0
    for member in members:
        end = start + member.rows
        if member.outcome is None:
            member.outcome = {name: array[start:end] for name, array in arrays.items()}
        start = end


def _array(name: str, value: object, rows: int) -> _Array:
    if isinstance(value, Rows):
        msg = f"output {name!r} of a model with a batch is given as Rows, which cannot be cut; it has to be an array"
        raise LocalProtocolError(msg)
    values = as_values(value)  # type: ignore[arg-type]  # whatever the model has returned
    array = values.array if isinstance(values, Elements) else cast("_Array", values)
    if array.ndim and len(array) == rows:
        return array
    msg = f"output {name!r} has the shape {list(array.shape)}, and the batch has {rows} rows"
    raise LocalProtocolError(msg)
