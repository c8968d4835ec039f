"""Output: what commands print, which may repeat what a server has chosen: names, errors, descriptions.

A terminal obeys control characters, and marks of direction make a text look like another; so whatever is printed is
escaped, on one line each. What the terminal has no character for is escaped, too, and ends no command.
"""

from __future__ import annotations

import sys

from streamcodec.core.errors import printable


def say(line: str) -> None:
    """Print a line."""
    encoding = sys.stdout.encoding or "utf-8"
    print(printable(line).encode(encoding, "backslashreplace").decode(encoding), flush=True)


def complain(line: str) -> None:
    """Print a line about what went wrong."""
    print(f"streamcodec: {printable(line)}", file=sys.stderr)
