"""Folders: temporary directories that the processes of a server share, and those that dead servers have left.

The name of a directory has the number of the first process. If that was killed, the next server of this user removes
what it has left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


def temporary_folder(prefix: str) -> Path:
    """Make a directory that only this user can read; remove those that servers of this user have left.

    Args:
        prefix: of their names, the same for all servers.

    Raises:
        FileNotFoundError: there is no place for it.
    """
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError:
        msg = "processes share files in a temporary directory, and none can be written to; TMPDIR names one"
        raise FileNotFoundError(msg) from None
    _remove_left_behind(Path(place), prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


def _remove_left_behind(place: Path, prefix: str) -> None:
    for folder in place.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        with suppress(OSError):
            is_ours = folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
            if is_ours and pid.isdecimal() and not _is_there(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
