"""Output: what commands print. It may contain text from a server: names, errors, descriptions.

A terminal obeys control characters, and direction marks can make a text look like another one. So everything that is
printed is escaped, each on one line. Characters that the terminal does not have are escaped too, so they end no
command.

Output may fail at any point: in a pipe that nobody reads any more, on a full disk, or because a shell has closed it.
Python would then print a traceback at its end and set its own exit status.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import TextIO

from streamcodec.engine.errors import printable


def say(*lines: str) -> None:
    """Print lines, without buffering."""
    say_escaped(*map(printable, lines))


def say_escaped(*lines: str) -> None:
    """Print lines whose text from elsewhere has been escaped already, such as lines with colours."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = "".join(f"{line}\n" for line in lines)
    print(text.encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)


def complain(line: str) -> None:
    """Print a line about an error, if anybody can read it."""
    with suppress(AttributeError, OSError):
        sys.stderr.write(f"streamcodec: {printable(line)}\n")


def is_read(stream: TextIO) -> bool:
    """Tell whether somebody may read the output; False for a broken pipe, if the system tells that."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # it is closed, or has no file descriptor
        return True
    return not poll.poll(0)


def flush(stream: TextIO | None) -> None:
    """Write the buffered output; if that fails, drop it.

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
    """Discard the buffered output, and everything that is still printed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
