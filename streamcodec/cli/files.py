"""Files: writes files that are always complete, and outputs as .npy files.

A file is written under a temporary name, or in a temporary folder, in its target folder, and renamed when it is
complete. So neither Ctrl-C nor a full disk leaves an incomplete file, and a failure does not destroy an existing file.
SIGTERM and SIGHUP would end the process at once. While something is being written, they first remove it.
A command whose work is long sees first that its file can be made, and writes it when all of its content is there.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.elements.prefixes import PREFIX_BYTES
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import TensorReceived

_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of file systems without hard links, as on memory cards."""

_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a process by default: from a service manager, and from a terminal that is closed. Windows has no
SIGHUP."""


def write(path: Path, write_to: Callable[[BinaryIO], object], *, replaces: bool) -> None:
    """Write a file; a device or a pipe is written to as it is.

    Args:
        path: of the file.
        write_to: writes the content to an open file.
        replaces: whether to replace an existing file.

    Raises:
        FileExistsError: the file exists, and must not be replaced.
        OSError: it cannot be written.
    """
    check_free(path, replaces=replaces)
    if _is_stream(path):
        with _named(path), path.open("wb") as file:
            write_to(file)
        return
    unfinished = _unfinished(path.parent)
    with _removed_at_the_end(unfinished), _named(path):
        with unfinished.open("xb") as file:
            write_to(file)
        keep(unfinished, path, replaces=replaces)


def check_writable(path: Path, *, replaces: bool) -> None:
    """See that a file can be made; leave nothing. A disk can still become full, or be taken away.

    Raises:
        FileExistsError: the file exists, and must not be replaced.
        OSError: it cannot be written.
    """
    check_free(path, replaces=replaces)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not _is_stream(path):
        unfinished = _unfinished(path.parent)
        with _removed_at_the_end(unfinished), _named(path):
            unfinished.touch(exist_ok=False)


def _is_stream(path: Path) -> bool:
    """Tell whether a path is a device, a pipe, or a name of an open file, as /dev/stdout: a link that has to stay."""
    is_open = path.is_symlink() and path.absolute().parts[1] in {"dev", "proc"}
    return path.exists() and (is_open or not path.is_file())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in each error of the system, which knows only its descriptor, or its temporary name."""
    try:
        yield
    except FileExistsError:
        raise  # it says what to do
    except OSError as error:
        error.filename = os.fspath(path)
        raise


@contextmanager
def unfinished_folder(parent: Path) -> Iterator[Path]:
    """Make a folder for files that are not complete; it is removed at the end of the block, with all that is in it."""
    folder = _unfinished(parent)
    with _removed_at_the_end(folder):
        with _named(parent):
            folder.mkdir()
        yield folder


def keep(unfinished: Path, path: Path, *, replaces: bool) -> None:
    """Give a complete file its name.

    Args:
        unfinished: the file, in the same file system.
        path: its name.
        replaces: whether to replace an existing file.

    Raises:
        FileExistsError: the file exists, and must not be replaced.
    """
    check_free(path, replaces=replaces)
    if replaces:
        unfinished.replace(path)
        return
    try:
        path.hardlink_to(unfinished)  # unlike a rename, this never replaces a file, even one that comes at this moment
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        unfinished.rename(path)


def _unfinished(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(8)}.part"


def _remove(path: Path) -> None:
    """Remove a file, or a folder of files, if it is there."""
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    elif path.exists():  # on a read-only disk, it cannot be removed although it is not there
        path.unlink(missing_ok=True)


@contextmanager
def _removed_at_the_end(path: Path) -> Iterator[None]:
    """Remove a file or a folder when the block ends, or when a signal ends the process before that."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        _remove(path)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # the parent process learns which signal has ended it

    is_main = threading.current_thread() is threading.main_thread()  # no other thread may have handlers
    # A signal that nohup ignores stays ignored, and handlers of the program are not replaced.
    minded = [number for number in _ENDING if is_main and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in minded:
            signal.signal(number, end)
        yield
    finally:
        _remove(path)
        for number in minded:
            signal.signal(number, signal.SIG_DFL)


def check_free(path: Path, *, replaces: bool) -> None:
    """Raise FileExistsError if the file exists and must not be replaced."""
    if not replaces and os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists already; --force replaces it")


def savable(tensor: TensorReceived, max_padded_bytes: int) -> np.ndarray[Any, Any]:
    """Return an array that a .npy file can hold without pickling.

    Raises:
        LocalProtocolError: there is no such array, or it is too large.
    """
    if tensor.spec.datatype.is_bytes:
        return _padded(tensor.elements, max_padded_bytes)
    return tensor.array.view("<u2") if tensor.spec.datatype.name == "BF16" else tensor.array


def _padded(elements: Elements, max_bytes: int) -> np.ndarray[Any, Any]:
    """Return BYTES elements as items of one length, that of the longest.

    The length and the total size are checked before the array is made: one long element among many short ones makes a
    huge array from a small answer.

    Raises:
        LocalProtocolError: an element ends in NUL, which cannot be told from padding, or the array would be too large.
    """
    ends = elements.offsets[1:]
    lengths = np.diff(elements.offsets) - PREFIX_BYTES
    if not elements.data[ends[lengths > 0] - 1].all():
        raise LocalProtocolError("an element ends in NUL, which a .npy file cannot hold")
    longest = max(int(lengths.max(initial=0)), 1)
    nbytes = longest * len(lengths)
    if nbytes > max_bytes:
        raise LocalProtocolError(
            f"{len(lengths)} elements, padded to the {longest} bytes of the longest, take {nbytes} bytes; "
            f"--max-padded {nbytes} permits it, and the clients of the Python package need no padding"
        )
    return elements.array.astype(f"S{longest}")
