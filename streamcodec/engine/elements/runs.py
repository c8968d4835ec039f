"""Runs: many short ranges of one buffer, converted to objects or copied, without a Python loop over them.

numpy copies items of one size at C speed, and converts items of plain memory (`V32`) to `bytes`. So runs are handled
some thousand at a time, sorted by length. Each length is one operation: a view has a *window* of that length at each
place of the buffer, and the windows at the wanted places are selected. If the runs are long, or nearly all have
different lengths, they are handled one by one. Runs of one length at equal distances need no sorting and no windows:
they are already an array.

Runs have any length and any place. This module does not know prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
"""Where runs start, or how long they are."""

_BLOCK_BYTES: Final = 1 << 20
"""Runs that are handled at a time: some thousand for each length, and few enough bytes for the processor's cache."""

_LEAST_COUNT: Final = 32
"""With this number of runs for each length, on average, or more, numpy is quicker than a Python loop."""

_MAX_LENGTH: Final = (1 << 16) - 1
"""A length of 16 bits. numpy sorts those in linear time, and longer runs would need much temporary memory."""


def cut(memory: npt.NDArray[np.uint8], places: Places, lengths: Places) -> np.ndarray[Any, Any]:
    """Make objects of runs.

    Args:
        memory: bytes.
        places: where each run starts, ascending.
        lengths: of each run.

    Returns:
        An object array of `bytes`.
    """
    objects = np.empty(len(places), object)
    view = memory.data
    for block in _blocks(places):
        starts, sizes, target = places[block], lengths[block], objects[block]
        groups = _by_length(sizes)
        if groups is None:
            runs = zip(starts.tolist(), sizes.tolist(), strict=True)
            target[:] = [bytes(view[start : start + size]) for start, size in runs]
            continue
        for length, chosen in groups:
            target[chosen] = _windows(memory, length)[starts[chosen]] if length else b""
    return objects


def move(
    source: npt.NDArray[np.uint8], places: Places, lengths: Places, target: npt.NDArray[np.uint8], targets: Places
) -> None:
    """Copy runs to other memory.

    Args:
        source: bytes.
        places: where each run starts, ascending.
        lengths: of each run.
        target: bytes, other memory.
        targets: where each run goes; they do not overlap.
    """
    source_view, target_view = source.data, target.data
    for block in _blocks(places):
        starts, ends, sizes = places[block], targets[block], lengths[block]
        groups = _by_length(sizes)
        if groups is None:
            for start, end, size in zip(starts.tolist(), ends.tolist(), sizes.tolist(), strict=True):
                target_view[end : end + size] = source_view[start : start + size]
            continue
        for length, chosen in groups:
            if length:
                _windows(target, length)[ends[chosen]] = _windows(source, length)[starts[chosen]]


def common_length(lengths: Places) -> int:
    """Return the length of all runs; 0 if the lengths differ, or are too long for a numpy item."""
    longest = int(lengths.max(initial=0))
    return longest if longest <= _MAX_LENGTH and longest == lengths.min(initial=longest) else 0


def spaced(memory: npt.NDArray[np.uint8], length: int, *, start: int, step: int, count: int) -> np.ndarray[Any, Any]:
    """Return runs of one length, at equal distances, as items of one array that shares the memory."""
    return np.ndarray((count,), np.dtype((np.void, length)), memory, start, (step,))


def _blocks(places: Places) -> Iterator[slice]:
    """Yield the range of runs to handle at a time."""
    if len(places) < _LEAST_COUNT:
        yield slice(None)
    else:
        edges = np.arange(places[0], places[-1] + 1, _BLOCK_BYTES)
        starts = np.unique(np.searchsorted(places, edges)).tolist()
        yield from map(slice, starts, [*starts[1:], len(places)])


def _by_length(lengths: Places) -> list[tuple[int, npt.NDArray[np.intp]]] | None:
    """Return each length with the indices of its runs; None if sorting does not help."""
    if len(lengths) < _LEAST_COUNT or lengths.max() > _MAX_LENGTH:
        return None
    order = np.argsort(lengths.astype(np.uint16), kind="stable")
    ascending = lengths[order]
    edges = [0, *(np.flatnonzero(np.diff(ascending)) + 1).tolist()]
    if len(edges) * _LEAST_COUNT > len(lengths):
        return None
    return list(zip(ascending[edges].tolist(), np.split(order, edges[1:]), strict=True))


def _windows(memory: npt.NDArray[np.uint8], length: int) -> np.ndarray[Any, Any]:
    """Return, for each place in memory, the bytes from there on as one item."""
    return np.ndarray((len(memory) - length + 1,), np.dtype((np.void, length)), memory, strides=(1,))
