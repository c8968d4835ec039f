"""Signals: what the signals mean for a server that is a program."""

from __future__ import annotations

import signal
from typing import Final

STOPS: Final = (signal.SIGINT, signal.SIGTERM)
"""They stop the server; another one of them ends it at once."""

RENEWS: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
"""It has models and certificates read anew; Windows has no such signal."""

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as of a shell."""
