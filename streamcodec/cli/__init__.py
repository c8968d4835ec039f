"""Command line: `streamcodec serve`, `streamcodec infer`, `streamcodec demo`, `streamcodec fuzz`.

`main` runs a command; `program` is the process around it, which has two more concerns. The one is Ctrl-C: at any moment
it ends the program with status 130 and without a word. While modules are imported there is nothing to be put in order,
and the process ends at once. While a command runs, it gets a `KeyboardInterrupt`. So nothing heavy is imported here.

The other are readers who have had enough, as `head`: then the program ends as one that SIGPIPE has ended, status 141.
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
"""For a command to put things in order after Ctrl-C. Until then another Ctrl-C has no effect, then it ends all."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Raises:
        SystemExit: help was asked for, or arguments are wrong.
    """
    from streamcodec.cli import commands  # noqa: PLC0415 - it takes time, in which `program` minds Ctrl-C

    return commands.run(commands.parse(arguments))


def program() -> NoReturn:
    """Run a command as the whole of this process, and end it."""
    # A shell may have SIGINT ignored by what it starts in the background.
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
    """A handler that interrupts once: what puts things in order then is left alone, but where that hangs."""

    def __init__(self) -> None:
        self._end = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._end:
            self._end = time.monotonic() + _ORDER_SECONDS
            raise KeyboardInterrupt
        if time.monotonic() > self._end:
            _leave(number, frame)
