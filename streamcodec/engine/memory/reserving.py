"""Reserving: room on the disk for a whole file, before anything is written to it.

A write to mapped memory cannot report an error: if the disk is full, the system ends the process. So the room is
reserved first, where an error can still be reported.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_ZEROS_AT_ONCE: Final = 1 << 20

_UNSUPPORTED: Final = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems that cannot reserve room, if the C library does not write zeros itself."""


def reserve_bytes(descriptor: int, nbytes: int) -> None:
    """Give a new file its length, and room on the disk for it.

    Args:
        descriptor: of a file that can be written. What it holds may be overwritten with zeros.
        nbytes: the length of the whole file.

    Raises:
        OSError: the disk has no room.
    """
    os.ftruncate(descriptor, nbytes)
    if nbytes and not fill_holes(descriptor, nbytes):
        os.lseek(descriptor, 0, os.SEEK_SET)
        left = nbytes
        while left:
            left -= os.write(descriptor, bytes(min(left, _ZEROS_AT_ONCE)))


def fill_holes(descriptor: int, nbytes: int) -> bool:
    """Let the system reserve what a file has no room for yet, which changes no byte; return whether it can.

    Raises:
        OSError: the disk has no room.
    """
    if not hasattr(os, "posix_fallocate"):  # on macOS and Windows
        return False
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True
