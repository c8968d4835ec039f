"""Output: what commands print, which may repeat what a server has chosen: names, errors, descriptions.

A terminal obeys control characters, and marks of direction make a text look like another; so whatever is printed is
escaped, on one line each. What the terminal has no character for is escaped, too, and ends no command.

Output may end anywhere: in a pipe that nobody reads any more, on a disk that is full, or nowhere, if a shell has closed
it. Python would complain about that when it ends, too, with a traceback and a status of its own.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import TextIO

from streamcodec.engine.errors import printable


def say(*lines: str) -> None:
    """Print lines, at once."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = "".join(f"{printable(line)}\n" for line in lines)
    print(text.encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)


def complain(line: str) -> None:
    """Print a line about what went wrong, if anybody can read it."""
    with suppress(AttributeError, OSError):
        sys.stderr.write(f"streamcodec: {printable(line)}\n")


def is_read(stream: TextIO) -> bool:
    """Tell whether somebody may read what is written, which is not so at the end of a broken pipe."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # it is closed, or no file of the system's
        return True
    return not poll.poll(0)


def flush(stream: TextIO | None) -> None:
    """Write out what is waiting; if that fails, drop it.

    Raises:
        OSError: it could not be written.
    """
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        drop(stream)
        raise


def drop(stream: TextIO) -> None:
    """Have what is waiting, and all that is still printed, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
