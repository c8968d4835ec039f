"""Whole bodies: the tensors of a message that has come as a whole, copied to new arrays in one step.

A decoder reads a body of any size in any pieces. A small one is usually there at once. Then its JSON header is read by
the same parser, and nothing has to be kept between two steps. What is unusual is left to the decoder, and so is every
refusal: this module never refuses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import HeaderT
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import ALIGNMENT, aligned_block, aligned_bytes
from streamcodec.engine.spec import TensorSpec

MAX_HEADER_BYTES: Final = 4 << 10
"""Most bytes of any JSON header that is read at once. A longer one may take too long for one turn of an event loop."""

CHECKED_KINDS: Final = "Ob"
"""Kinds of datatypes in whose bytes something can be wrong."""

_SHARED_BYTES: Final = 8 << 10
"""Bytes of a memory that several arrays may share. So one that is kept holds no more than this of the others."""

Array = np.ndarray[Any, Any]


def read_whole(
    parse: Callable[[bytes, Limits], HeaderT], header_length: int | None, body: memoryview, limits: Limits
) -> tuple[HeaderT, Mapping[str, Array | Elements]] | None:
    """Read a whole body.

    Args:
        parse: parses the JSON header.
        header_length: as it was declared; None if the whole body is the header.
        body: all of it. Nothing refers to it afterwards.
        limits: caps on what it may declare.

    Returns:
        The header, and the tensors by name; None if a decoder has to decide.
    """
    length = len(body) if header_length is None else header_length
    if not 0 < length <= min(len(body), MAX_HEADER_BYTES, limits.max_header_bytes):
        return None
    if len(body) > limits.max_message_bytes:
        return None
    try:
        header = parse(bytes(body[:length]), limits)
    except MessageError:
        return None
    is_fixed, nbytes = True, length
    for spec in header.tensors:
        nbytes += spec.nbytes
        if spec.data is not None or spec.datatype.kind in CHECKED_KINDS:
            is_fixed = False
    if nbytes != len(body):
        return None
    if is_fixed:
        return header, copied_arrays(header.tensors, body)
    values = whole_values(header.tensors, body, limits)
    return None if values is None else (header, values)


def copied_arrays(tensors: Sequence[TensorSpec], body: memoryview) -> dict[str, Array]:
    """Copy the tensors of a whole body, in which any bytes are valid, to new arrays.

    Small ones share their memory, which is then freed with the last of them: 20 take a third of the time.
    """
    arrays: dict[str, Array] = {}
    joint = 0
    for spec in tensors:
        joint += spec.nbytes + ALIGNMENT
    room = joint if joint <= _SHARED_BYTES else tensors[0].nbytes
    block, view, start = aligned_block(room)
    for spec in tensors:
        nbytes, offset = spec.nbytes, spec.offset or 0
        if room < nbytes or room <= 0:
            room = nbytes
            block, view, start = aligned_block(room)
        view[start : start + nbytes] = body[offset : offset + nbytes]
        arrays[spec.name] = np.ndarray(spec.shape, spec.datatype.dtype, block, start)
        taken = nbytes + -nbytes % ALIGNMENT
        start, room = start + taken, room - taken
    return arrays


def whole_values(tensors: Sequence[TensorSpec], body: memoryview, limits: Limits) -> dict[str, Array | Elements] | None:
    """Return the tensors of a whole body of any datatypes; None if a decoder has to refuse one."""
    values: dict[str, Array | Elements] = {}
    for spec in tensors:
        if spec.data is not None:
            values[spec.name] = spec.data
            continue
        start = spec.offset or 0
        memory = aligned_bytes(spec.nbytes)
        memory.data[:] = body[start : start + spec.nbytes]
        if spec.datatype.is_bytes:
            try:
                values[spec.name] = Elements.from_wire(memory, spec.shape)
            except MessageError:
                return None
            if spec.nbytes > limits.max_element_bytes:
                return None
        elif spec.datatype.kind == "b" and spec.nbytes and memory.max() > 1:
            return None
        else:
            values[spec.name] = np.ndarray(spec.shape, spec.datatype.dtype, memory)
    return values
