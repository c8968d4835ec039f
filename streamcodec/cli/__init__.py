"""Command line: `streamcodec serve`, `infer`, `encode`, `bench`, `demo`, `fuzz` and `inspect`.

`main` runs a command. `program` is the process around it, and handles two more cases. The first is Ctrl-C: at any
moment it ends the program with status 130 and without a message. While modules are imported there is nothing to clean
up, so the process ends at once. A running command gets a `KeyboardInterrupt`. So no slow module is imported here.

The second case is a reader of the output that closes the pipe, such as `head`. Then the program ends like a program
that SIGPIPE has ended, with status 141.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

from streamcodec.cli.statuses import INTERRUPTED

_ORDER_SECONDS: Final = 1.0
"""Time for a command to clean up after Ctrl-C. Another Ctrl-C has no effect before it is over, and ends all after
it."""


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
        signal.signal(signal.SIGINT, _leave)
    from streamcodec.cli import commands  # noqa: PLC0415 - as in `main`

    try:
        try:
            options = commands.parse(None)
            if minds_interrupts:
                signal.signal(signal.SIGINT, _Interruption())
            status = commands.run(options)
        except SystemExit as end:
            status = commands.status_of(end)
        if minds_interrupts:
            signal.signal(signal.SIGINT, _leave)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, _leave)
        status = INTERRUPTED
    sys.exit(commands.finished(status))


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    os._exit(INTERRUPTED)


class _Interruption:
    """A signal handler that interrupts once. It leaves the clean-up alone, unless that takes too long."""

    def __init__(self) -> None:
        self._end = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._end:
            self._end = time.monotonic() + _ORDER_SECONDS
            raise KeyboardInterrupt
        if time.monotonic() > self._end:
            _leave(number, frame)
