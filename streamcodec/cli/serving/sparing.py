"""Sparing: what `serve` and `guard` find of memory and descriptors, what they choose, and how the process takes little.

Only the C library and Python's threads are told something here; how a server is sized is the matter of `runtime`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import threading
from dataclasses import fields
from typing import Any, Final

from streamcodec.cli.arguments import given, judged
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.record import record, replaced
from streamcodec.runtime.descriptors import free_descriptors
from streamcodec.runtime.memory.available import MemoryLeft, memory_left
from streamcodec.runtime.memory.small import small_options, small_pool_bytes
from streamcodec.runtime.options import SLOW_LINKS
from streamcodec.server import ServerOptions

_MUCH_MEMORY_BYTES: Final = 1 << 30
"""From this budget on, the 64 MiB that the C library keeps do not matter, but it matters that models reuse them."""

_LITTLE_MEMORY_BYTES: Final = 256 << 20
"""With less than this left for a process, a server is small by itself. With the usual sizes, one in a group of 64 MiB
was killed twice in 20 minutes of random load, and one in 96 MiB once."""

_LEAST_SPACE_BYTES: Final = 32 << 20
"""Of address space, for requests and what goes with them. With less, a few requests at once take all of it. Then the
system and the interpreter fail at any place; 20 minutes of random load found one that ends the process."""

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""The names of these parameters in <malloc.h>."""

_LARGE_BLOCK_BYTES: Final = 1 << 20

_SMALL_BLOCK_BYTES: Final = 64 << 10
"""The same for a small server. After random load, the C library kept 6 MiB for itself, and 13 with blocks of 1 MiB."""

_STACK_BYTES: Final = 1 << 20
"""Of a thread, instead of 8 MiB as usual: enough for numpy, and for Python code of any depth."""

_MIB: Final = 1 << 20


@record()
class Sizes:
    """How a server is sized, and why."""

    options: ServerOptions
    """Of all its processes together, as `run_workers` takes them."""
    pool_bytes: int | None
    """The most idle memory of its service; None for the usual."""
    left: MemoryLeft
    """What was found."""

    def text(self, connections: int, *, has_models: bool = True) -> str:
        """Return what was found and chosen, in a line; `connections` are served at once in one process."""
        left, options = self.left, self.options
        free = free_descriptors()
        lacks = f" instead of {options.max_connections}, for want of descriptors"
        threads = f", {options.max_workers} threads for models" * has_models
        return (
            f"found: {_mebibytes(left.limit_bytes)} MiB of {'address space' if left.is_address_space else 'memory'}, "
            f"{_mebibytes(left.own_bytes)} of them taken before requests, and "
            f"{'any number of' if free is None else free} free descriptors; "
            f"chosen: {_mebibytes(options.max_memory_bytes)} MiB for requests, {connections} connections at once"
            f"{lacks if connections < options.max_connections else ''}{threads}"
        )


def add_small(group: argparse._ActionsContainer) -> None:
    """Add the option."""
    group.add_argument(
        "--small",
        action="store_true",
        help="for little memory: connections, threads, the idle memory and that of requests are sized by what is left "
        "of the control group, of RLIMIT_AS or of the machine; options that are given here besides take precedence; "
        "where less than 256 MiB are left for a process, this is the default",
    )


def sizes_of(options: argparse.Namespace, *, processes: int = 1) -> Sizes:
    """Return how a server is sized, by its options and by what is left; and have this process take little.

    Args:
        options: of the command.
        processes: that serve. If there are several, each takes as much before requests as this one, which stays.

    Raises:
        LocalProtocolError: too little address space is left.
    """
    left = memory_left(processes=processes + (processes > 1))
    if left.is_address_space and left.nbytes < _LEAST_SPACE_BYTES:
        raise LocalProtocolError(
            f"an address space of {_mebibytes(left.limit_bytes)} MiB (RLIMIT_AS, ulimit -v) leaves "
            f"{_mebibytes(left.nbytes)} MiB for requests, and at least {_mebibytes(_LEAST_SPACE_BYTES)} are needed; a "
            "control group limits memory without what is never touched"
        )
    own = given(options, [field.name for field in fields(ServerOptions)])
    chosen: dict[str, Any] = {**SLOW_LINKS} if getattr(options, "slow_links", False) else {}
    pool_bytes = None
    part = replaced(left, nbytes=left.nbytes // processes)
    is_small = options.small or part.nbytes < _LITTLE_MEMORY_BYTES
    if is_small:
        chosen |= small_options(part)
        chosen["max_memory_bytes"] *= processes
        pool_bytes = small_pool_bytes(part)
    with judged(options):
        server_options = ServerOptions(**{"max_memory_bytes": left.budget, **chosen, **own})
    if server_options.max_memory_bytes // processes < _MUCH_MEMORY_BYTES:
        # Large blocks always come from the system, and go back to it. Else the GNU C library keeps freed memory for the
        # next allocation: each freed large block raises the size from which blocks come from the system to its own
        # size, up to 32 MiB, and twice as much may then stay in each of its heaps.
        _tell_c_library(_M_MMAP_THRESHOLD, _SMALL_BLOCK_BYTES if is_small else _LARGE_BLOCK_BYTES)
    if is_small or left.is_address_space:
        # Threads have small stacks, and no heaps of their own: each would reserve 64 MiB, and keep what others lack.
        _tell_c_library(_M_ARENA_MAX, 1)
        with contextlib.suppress(ValueError, RuntimeError):  # a system whose stacks cannot be chosen
            threading.stack_size(_STACK_BYTES)
    return Sizes(options=server_options, pool_bytes=pool_bytes, left=left)


def _tell_c_library(parameter: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another system, or another C library
        ctypes.CDLL(None).mallopt(parameter, value)


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / _MIB:,.1f}".removesuffix(".0")
