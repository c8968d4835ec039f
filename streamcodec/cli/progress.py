"""Progress: shows the progress of a transfer on a terminal, after its first second.

A client counts the bytes that it moves, and a thread reads the counters from time to time. So the transfer is the same
with and without a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

from streamcodec.client import Client

_QUIET_SECONDS: Final = 1.0
_INTERVAL: Final = 0.5
_WIDTH: Final = 70


class UploadProgress:
    """How much of a resumable request the server has, as far as the client knows."""

    def __init__(self, client: Client) -> None:
        """Begin before the request."""
        self._client = client
        self._offset = 0
        self._total = 0
        self._sent = 0

    def resumed(self, offset: int, total: int) -> None:
        """Report that the server has `offset` of `total` bytes, and gets the others from now on."""
        self._offset, self._total, self._sent = offset, total, self._client.sent_bytes

    def text(self, rate: float) -> str:
        """Return the percentage, and the time that is left at a rate in bytes a second; empty before the request."""
        if not self._total:
            return ""
        done = min(self._total, self._offset + self._client.sent_bytes - self._sent)
        left = f", {timedelta(seconds=round((self._total - done) / rate))} left" if rate else ""
        return f", {done / self._total:.0%}{left}"


@contextmanager
def shown_progress(client: Client, upload: UploadProgress) -> Iterator[None]:
    """Show how much a client has moved, and how much of its upload is done, until the block ends."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    has_ended = threading.Event()
    showing = threading.Thread(target=_show, args=(client, upload, has_ended), daemon=True)
    showing.start()
    try:
        yield
    finally:
        has_ended.set()
        showing.join()


def _show(client: Client, upload: UploadProgress, has_ended: threading.Event) -> None:
    before, then = 0, time.monotonic()
    pause = _QUIET_SECONDS
    while not has_ended.wait(pause):
        pause = _INTERVAL
        sent, received, now = client.sent_bytes, client.received_bytes, time.monotonic()
        rate = (sent + received - before) / (now - then)
        before, then = sent + received, now
        _write(f"sent {_size(sent)}, received {_size(received)}, {_size(rate)}/s{upload.text(rate)}")
    if pause == _INTERVAL:  # something was shown
        _write("")


def _write(text: str) -> None:
    """Overwrite the last text. The cursor stays at its beginning, where other output would start."""
    with suppress(OSError):
        sys.stderr.write(f"\r{text:{_WIDTH}}\r")
        sys.stderr.flush()


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1 << 10:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1 << 10
    return f"{nbytes:.2f} GiB"
