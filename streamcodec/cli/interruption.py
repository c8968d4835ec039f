"""Interruption: what Ctrl-C does to a command.

It raises a `KeyboardInterrupt` in the command, which then cleans up. Some code swallows this exception: Python in
callbacks of weak references, C extensions while they are imported. So the exception is raised again, until the command
cleans up.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import Final, NoReturn

from streamcodec.cli.statuses import INTERRUPTED

_ORDER_SECONDS: Final = 1.0
"""Time for a command to clean up after Ctrl-C. Another Ctrl-C has no effect before it is over, and ends all after
it."""

_AGAIN_SECONDS: Final = 0.1
"""Time between two looks whether the exception has been swallowed."""

_ALARM: Final[signal.Signals | None] = getattr(signal, "SIGALRM", None) if hasattr(signal, "setitimer") else None
"""The signal of the timer; Windows has none, so that a swallowed exception is lost there."""


def leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    """End the process at once: a handler for the time when there is nothing to clean up."""
    os._exit(INTERRUPTED)


class Interruption:
    """The handler of SIGINT while a command runs. It leaves the clean-up alone, unless that takes too long."""

    def __init__(self) -> None:
        """Prepare; `begin` installs it."""
        self._end = 0.0

    def begin(self) -> None:
        """Interrupt the command from now on."""
        sys.unraisablehook = _report
        if _ALARM is not None:
            signal.signal(_ALARM, self._look)
        signal.signal(signal.SIGINT, self._press)

    def end(self) -> None:
        """End the process at Ctrl-C from now on."""
        signal.signal(signal.SIGINT, leave)
        if _ALARM is not None:
            signal.signal(_ALARM, signal.SIG_IGN)

    def _press(self, number: int, frame: FrameType | None) -> None:
        if not self._end:
            self._end = time.monotonic() + _ORDER_SECONDS
            _wait()
            raise KeyboardInterrupt
        if time.monotonic() > self._end:
            leave(number, frame)

    def _look(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        _wait()
        if not _is_being_handled():
            raise KeyboardInterrupt


def handled() -> None:
    """Report that a command has caught the exception, and ends in its own way: it is not raised again."""
    if _ALARM is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _wait() -> None:
    if _ALARM is not None:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _is_being_handled() -> bool:
    """Return whether this is called from an `except`, `finally` or `__exit__` that handles a `KeyboardInterrupt`."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _report(unraisable: sys.UnraisableHookArgs) -> None:
    """Report an exception that nobody can catch. A `KeyboardInterrupt` is raised again, so nothing is lost."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
