"""Command line: `streamcodec serve`, `infer`, `encode`, `bench`, `guard`, `demo`, `fuzz` and `inspect`.

`main` runs a command. `program` is the process around it, and handles two more cases. The first is Ctrl-C: at any
moment it ends the program with status 130 and without a message. While modules are imported there is nothing to clean
up, so the process ends at once. A running command gets a `KeyboardInterrupt`. So no slow module is imported here.

The second case is a reader of the output that closes the pipe, such as `head`. Then the program ends like a program
that SIGPIPE has ended, with status 141.

On a small device the address space may be limited (`RLIMIT_AS`). Numpy's OpenBLAS reserves some of it for each
processor, so here it gets one thread, unless the environment says otherwise. What does not fit even so ends in a line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from streamcodec.cli.interruption import Interruption, leave
from streamcodec.cli.statuses import INTERRUPTED

_SMALL_ADDRESS_SPACE: Final = 512 << 20
"""From so many bytes on, a thread of OpenBLAS for each processor finds room."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Raises:
        SystemExit: help was requested, or arguments are wrong.
    """
    from streamcodec.cli import commands  # noqa: PLC0415 - slow to import; `program` already handles Ctrl-C

    return commands.run(commands.parse(arguments))


def program() -> NoReturn:
    """Run a command as the whole of this process, and end it."""
    # A shell may start background processes with SIGINT ignored.
    minds_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if minds_interrupts:
        signal.signal(signal.SIGINT, leave)
    space = _small_address_space()
    if space is not None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from streamcodec.cli import commands  # noqa: PLC0415 - as in `main`

        interruption = Interruption()
        try:
            try:
                options = commands.parse(None)
                if minds_interrupts:
                    interruption.begin()
                status = commands.run(options)
            except SystemExit as end:
                status = commands.status_of(end)
            if minds_interrupts:
                interruption.end()
        except KeyboardInterrupt:
            interruption.end()
            status = INTERRUPTED
    except (ImportError, MemoryError):
        if space is None:
            raise
        sys.exit(f"streamcodec: error: an address space of {space >> 20} MiB (RLIMIT_AS, ulimit -v) is too small")
    sys.exit(commands.finished(status))


def _small_address_space() -> int | None:
    """Return the bytes of address space that this process may have; None if they are many, or not limited."""
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY or soft >= _SMALL_ADDRESS_SPACE else soft
