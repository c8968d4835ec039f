"""Progress: how far a transfer has come, on a terminal, from its second second on.

The system counts the bytes of a connection, so a thread asks it now and then, and the transfer is the same with and
without a terminal. Where the system does not tell, nothing is shown.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_QUIET_SECONDS: Final = 1.0
_INTERVAL: Final = 0.5
_WIDTH: Final = 70

_COUNTS: Final = struct.Struct("=QQ")
_COUNTS_OFFSET: Final = 120
"""Of `tcpi_bytes_acked` and `tcpi_bytes_received` in `struct tcp_info` of <linux/tcp.h>."""


@contextmanager
def shown_progress() -> Iterator[None]:
    """Show what the connections of this process have moved, until the block ends."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    has_ended = threading.Event()
    showing = threading.Thread(target=_show, args=(has_ended,), daemon=True)
    showing.start()
    try:
        yield
    finally:
        has_ended.set()
        showing.join()


def _show(has_ended: threading.Event) -> None:
    before, then = 0, time.monotonic()
    pause = _QUIET_SECONDS
    while not has_ended.wait(pause):
        pause = _INTERVAL
        if (counts := moved_bytes()) is None:
            continue
        now = time.monotonic()
        rate = max(0.0, (sum(counts) - before) / (now - then))
        before, then = sum(counts), now
        _write(f"sent {_size(counts[0])}, received {_size(counts[1])}, {_size(rate)}/s")
    if before:
        _write("")


def _write(text: str) -> None:
    """Put a text in the place of the last one; the cursor is at its beginning, where other output would begin."""
    with suppress(OSError):
        sys.stderr.write(f"\r{text:{_WIDTH}}\r")
        sys.stderr.flush()


def moved_bytes() -> tuple[int, int] | None:
    """Return how many bytes all TCP connections of this process have sent, as far as they have arrived, and received.

    Returns:
        None if there is no connection, or the system does not tell.
    """
    counts: list[tuple[int, int]] = []
    with suppress(OSError, AttributeError):  # neither /proc nor TCP_INFO are everywhere
        for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers are wanted
            with suppress(OSError, struct.error):  # it is none of a connection
                counts.append(_counts(int(number)))
    return (sum(sent for sent, _ in counts), sum(received for _, received in counts)) if counts else None


def _counts(number: int) -> tuple[int, int]:
    with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS_OFFSET + _COUNTS.size)
    sent, received = _COUNTS.unpack_from(info, _COUNTS_OFFSET)
    return sent, received


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1 << 10:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1 << 10
    return f"{nbytes:.2f} GiB"
