"""Statuses: how commands end that somebody has ended. What a shell says of programs that a signal has ended."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130
"""By Ctrl-C: SIGINT."""

BROKEN_PIPE: Final = 141
"""By a reader of the output who has gone: SIGPIPE."""
