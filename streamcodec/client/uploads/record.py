"""Record: the file that keeps the name of an upload for the time after a restart of the program.

It knows nothing of exchanges. What is read is checked like what a server says: anybody may have written it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamcodec.client.connections.address import UNSENDABLE
from streamcodec.engine.errors import LocalProtocolError

_MAX_RECORD_BYTES: Final = 128 << 10
"""More than any answer's fields may have."""


class Record:
    """The file of one upload, which need not exist."""

    def __init__(self, path: str) -> None:
        """Use a file."""
        self._path = Path(path)

    def read(self, key: str) -> str | None:
        """Return the location that was kept for a request; None if there is none for this one.

        Raises:
            LocalProtocolError: the file has another purpose. It would be replaced, and removed at the end.
        """
        try:
            with self._path.open("rb") as file:
                text = file.read(_MAX_RECORD_BYTES + 1)
        except OSError:
            return None
        try:
            kept = json.loads(text or b"{}")
        except (ValueError, RecursionError):
            kept = None
        if len(text) > _MAX_RECORD_BYTES or not isinstance(kept, dict) or not kept.keys() <= {"request", "location"}:
            msg = f"{self._path} exists, and does not come from `resumable`, which would remove it; name a new file"
            raise LocalProtocolError(msg)
        location = kept.get("location") if kept.get("request") == key else None
        can_be_sent = isinstance(location, str) and is_path(location) and not UNSENDABLE.search(location)
        return location if can_be_sent else None

    def write(self, key: str, location: str) -> None:
        """Keep a location. Who can read the file can go on with the upload, so only its owner can.

        Raises:
            OSError: the file cannot be written.
        """
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"request": key, "location": location}, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            error.filename = os.fspath(self._path)  # a full disk names no file
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise

    def forget(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


def is_path(location: str) -> bool:
    """Whether a location is on the same server."""
    return location.startswith("/") and not location.startswith("//")
