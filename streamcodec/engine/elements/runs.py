"""Runs: many short stretches of one memory, cut out as objects or moved elsewhere, without a loop over them.

numpy moves items of one size at C speed, from anywhere to anywhere, and makes `bytes` of items that are plain memory
(`V32`). So runs are taken some thousand at a time, sorted by length, and each length is one operation: a *window* of
that length at each place of the memory, of which those at the wanted places are taken. Only where nearly each run has a
length of its own, or where they are long, they are taken one by one; then a run has more bytes for its nanoseconds.
Runs of one length at equal distances need no sorting, and no windows: they are an array as they lie.

Runs are of any length and in any place; nothing here knows prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
"""Where runs start, or how long they are."""

_BLOCK_BYTES: Final = 1 << 20
"""Taken at a time: some thousand runs for each length, and few enough bytes for the processor's cache."""

_LEAST_COUNT: Final = 32
"""Runs of one length, on average, from which on numpy's operation costs less than as many of Python's."""

_MAX_LENGTH: Final = (1 << 16) - 1
"""Of 16 bits, which numpy sorts in linear time; and longer ones would want much memory in between."""


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
    """Return the length that all runs have; 0 if they have none, or one that is too long for an item of numpy's."""
    longest = int(lengths.max(initial=0))
    return longest if longest <= _MAX_LENGTH and longest == lengths.min(initial=longest) else 0


def spaced(memory: npt.NDArray[np.uint8], length: int, *, start: int, step: int, count: int) -> np.ndarray[Any, Any]:
    """Return runs of one length, at equal distances, as items of one array that shares the memory."""
    return np.ndarray((count,), np.dtype((np.void, length)), memory, start, (step,))


def _blocks(places: Places) -> Iterator[slice]:
    """Yield which runs to take at a time."""
    if len(places) < _LEAST_COUNT:
        yield slice(None)
    else:
        edges = np.arange(places[0], places[-1] + 1, _BLOCK_BYTES)
        starts = np.unique(np.searchsorted(places, edges)).tolist()
        yield from map(slice, starts, [*starts[1:], len(places)])


def _by_length(lengths: Places) -> list[tuple[int, npt.NDArray[np.intp]]] | None:
    """Sort runs by length: each length with the indices of its runs; None if that is no help."""
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
