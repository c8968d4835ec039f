"""Statuses: the exit statuses of interrupted commands, as a shell reports them for programs ended by a signal."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130
"""Ended by Ctrl-C: SIGINT."""

BROKEN_PIPE: Final = 141
"""Ended because the reader of the output has gone: SIGPIPE."""
