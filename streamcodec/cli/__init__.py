"""Command line: `streamcodec serve`, `infer`, `encode`, `bench`, `guard`, `demo`, `fuzz` and `inspect`.

`main` runs a command. `program` is the process around it, and handles two more cases. The first is Ctrl-C: at any
moment it ends the program with status 130 and without a message. While modules are imported there is nothing to clean
up, so the process ends at once. A running command gets a `KeyboardInterrupt`. So no slow module is imported here.

The second case is a reader of the output that closes the pipe, such as `head`. Then the program ends like a program
that SIGPIPE has ended, with status 141.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from streamcodec.cli.interruption import Interruption, leave
from streamcodec.cli.statuses import INTERRUPTED


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
    sys.exit(commands.finished(status))
