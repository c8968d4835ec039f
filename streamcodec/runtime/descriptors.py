"""Descriptors: how many connections this process can have open, by `RLIMIT_NOFILE`.

A server that accepts more than that fails at `accept`, and whoever waits there gets no answer. So the limit of
connections is lowered to what there is, with some left over for files, logs, and for connections that are told that
there is no place.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

with suppress(ImportError):  # of Windows
    import resource

SPARE_DESCRIPTORS: Final = 16
"""For the event loop, a listening socket, logs, files of models, and connections that are about to be refused."""

_OPEN: Final = (Path("/proc/self/fd"), Path("/dev/fd"))


def free_descriptors() -> int | None:
    """Return how many descriptors this process may still open; None if there is no limit, or none is known."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except NameError:
        return None
    if soft == resource.RLIM_INFINITY:
        return None
    for folder in _OPEN:
        with suppress(OSError):
            return max(0, soft - len([*folder.iterdir()]))
    return max(0, soft - SPARE_DESCRIPTORS)


def places_for(seats: int, reserved: int, descriptors: int | None) -> tuple[int, int]:
    """Return how many connections may be served at once, and how many others may be open besides.

    Args:
        seats: how many are to be served at once.
        reserved: how many others are to be open.
        descriptors: for connections, and what is to be left over; None for any number.
    """
    if descriptors is None or seats + reserved <= descriptors - SPARE_DESCRIPTORS:
        return seats, reserved
    room = max(2, descriptors - SPARE_DESCRIPTORS)
    reserved = min(reserved, max(1, room // 4))
    return min(seats, room - reserved), reserved


def spare_of(descriptors: int | None, places: int, most: int) -> int:
    """Return how many connections may wait besides those that are open, up to `most`."""
    return most if descriptors is None else min(most, max(0, descriptors - SPARE_DESCRIPTORS - places))
