"""Planned: the memory of a body whose JSON header is known by its text, or of one that has come whole.

The ordinary way finds out what a body means while it arrives: a decoder reads the header, checks it, and places one
tensor after the other. Here a `Plan` says all of this before: how long the header is, and which tensors follow. So each
tensor has its memory from the beginning, and a byte of the body only has to be counted (`KnownBody`).

A body is received in this way only if nothing in it can be wrong: its length is that of the plan, its header has been
compared, its datatypes allow any bytes, and its tensors are placed in new memory or in the pool.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.memory.placement import ALIGNMENT, Place, aligned_block
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.bodies.known import KnownBody

_SHARED_BYTES: Final = 8 << 10
"""Bytes of a memory that several arrays may share. So one that is kept holds no more than this of the others."""


def planned_body(
    header: RequestHeader, header_length: int, place: Place
) -> tuple[KnownBody, dict[str, np.ndarray[Any, Any]]]:
    """Take memory for the tensors of a body; return the body, and the arrays that it fills, by name.

    Args:
        header: of the body.
        header_length: bytes before the first tensor. They have been compared, and do not come.
        place: gives each tensor one new array.

    Raises:
        OutOfMemoryError: there is none.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    targets = []
    for spec in header.tensors:
        slab = next(place(spec).slabs(spec))
        arrays[spec.name] = cast("np.ndarray[Any, Any]", slab.array)
        if slab.buffer:
            targets.append(slab.buffer)
    return KnownBody(targets, offset=header_length), arrays


def whole_body(header: RequestHeader, body: memoryview) -> tuple[KnownBody, dict[str, np.ndarray[Any, Any]]]:
    """Do the same for a body that is there already: it is copied to new arrays at once, and complete."""
    return KnownBody([], offset=len(body)), copied_arrays(header, body)


def copied_arrays(header: RequestHeader, body: memoryview) -> dict[str, np.ndarray[Any, Any]]:
    """Copy the tensors of a whole body, in which any bytes are valid, to new arrays.

    Small ones share their memory, which is then freed with the last of them: 20 take a third of the time.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    joint = sum([spec.nbytes + ALIGNMENT for spec in header.tensors])
    room = joint if joint <= _SHARED_BYTES else header.tensors[0].nbytes
    block, view, start = aligned_block(room)
    for spec in header.tensors:
        nbytes, offset = spec.nbytes, spec.offset or 0
        if room < nbytes or room <= 0:
            room = nbytes
            block, view, start = aligned_block(room)
        view[start : start + nbytes] = body[offset : offset + nbytes]
        arrays[spec.name] = np.ndarray(spec.shape, spec.datatype.dtype, block, start)
        taken = nbytes + -nbytes % ALIGNMENT
        start, room = start + taken, room - taken
    return arrays
