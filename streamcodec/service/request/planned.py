"""Planned: the memory of a body whose JSON header is known by its text, or of one that has come whole.

The ordinary way finds out what a body means while it arrives: a decoder reads the header, checks it, and places one
tensor after the other. Here a `Plan` says all of this before: how long the header is, and which tensors follow. So each
tensor has its memory from the beginning, and a byte of the body only has to be counted (`KnownBody`).

A body is received in this way only if nothing in it can be wrong: its length is that of the plan, its header has been
compared, its datatypes allow any bytes, and its tensors are placed in new memory or in the pool.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from streamcodec.engine.memory.placement import Place
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.formats.v2.whole import copied_arrays
from streamcodec.http.bodies.known import KnownBody


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
    return KnownBody([], offset=len(body)), copied_arrays(header.tensors, body)
