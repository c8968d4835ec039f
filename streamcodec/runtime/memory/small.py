"""Small: how a server is sized for the memory that is left, where that is little.

Nearly half of what is left is for requests. The rest has to hold what the budget does not count: scratch memory of
connections, answers that wait for their clients, threads, what models make, and what stays in pieces. By default these
are sized for a machine, and some hundred connections could take all of it. Here each of them has a part of what is
left.
"""

from __future__ import annotations

from typing import Any, Final

from streamcodec.engine.record import replaced
from streamcodec.runtime.memory.available import MemoryLeft

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20

_KEPT_BYTES: Final = 4 * _MIB
"""For what the interpreter and the C library keep in pieces after a load of objects, up to 15 MiB. It is taken off
before the rest is halved. With 8 MiB, a server in a group of 64 MiB refused ten times as many requests by 503 as
without."""

_PIPELINED_BYTES: Final = 16 * _KIB
"""Answers that wait for one client: some small ones."""

_CONNECTION_BYTES: Final = (72 + 16 + 8) * _KIB
"""Scratch memory of a connection, answers that wait for its client, and its objects."""

_WORKER_BYTES: Final = 32 * _MIB
"""One thread for models for so much memory: what a model makes of an input is about as large as that."""

_WINDOWED_BYTES: Final = 2 * _MIB
"""One request to models that take windows for so much: its thread, and the objects of the request."""

_SPACE_FOR_THREAD: Final = 8 * _MIB
"""The same where address space is what is limited: there the whole stack of a thread counts, 1 MiB."""

_PART_OF_CONNECTIONS: Final = 3
_PART_OF_POOL: Final = 8


def small_options(left: MemoryLeft) -> dict[str, Any]:
    """Return the fields of `ServerOptions` for a server that has only this memory."""
    least_windowed, windowed_bytes = (2, _SPACE_FOR_THREAD) if left.is_address_space else (4, _WINDOWED_BYTES)
    return {
        "max_memory_bytes": replaced(left, nbytes=max(0, left.nbytes - _KEPT_BYTES)).budget,
        "max_connections": _between(8, left.nbytes // _PART_OF_CONNECTIONS // _CONNECTION_BYTES, 512),
        "max_workers": _between(1, left.nbytes // _WORKER_BYTES, 8),
        "max_windowed_requests": _between(least_windowed, left.nbytes // windowed_bytes, 256),
        "max_pipelined_bytes": _PIPELINED_BYTES,
    }


def small_pool_bytes(left: MemoryLeft) -> int:
    """Return the `max_pool_bytes` of its service: idle memory is given back late where memory is in pieces."""
    return left.nbytes // _PART_OF_POOL


def _between(least: int, count: int, most: int) -> int:
    return max(least, min(count, most))
