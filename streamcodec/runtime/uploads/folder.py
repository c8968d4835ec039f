"""UploadFolder: the files of uploads, in a directory that several processes share.

The directory belongs to the user of the server, and nobody else may look into it: a file has the tensors of a client.
A directory of another user is refused. The name of a file is a digest of the id of its upload, so who reads the names
cannot go on with an upload.

Their number and their bytes are limited, for all processes together. If there is no room for a new one, those that
nobody brings make room: first those without a byte, then the one that has waited longest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.uploads.file import DamagedFileError, UploadFile

with suppress(ImportError):  # of Windows
    import fcntl

_SUFFIX: Final = ".upload"
_NAME_DIGITS: Final = 40
_OTHERS: Final = 0o077

_HAS_LOCKS: Final = hasattr(os, "O_NOFOLLOW") and hasattr(os, "geteuid")

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def _boot() -> bytes:
    """Return what tells one run of the machine from another; 16 bytes."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text("ascii").strip().replace("-", ""))
    except (OSError, ValueError):  # not Linux: one run of the server, with all its processes
        return os.urandom(16)


_BOOT: Final = _boot()


def open_folder(path: str | os.PathLike[str]) -> int:
    """Open a directory of uploads, which is made if there is none; return its descriptor.

    Raises:
        LocalProtocolError: it cannot be opened or written to; or it belongs to somebody else, or others may look into
            it; or this system has no locks of files.
    """
    if not _HAS_LOCKS:
        msg = "upload_dir: this system has no locks of files; leave it out, and uploads are kept in memory"
        raise LocalProtocolError(msg)
    try:
        with suppress(FileExistsError):
            Path(path).mkdir(0o700)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        msg = f"upload_dir: {os.fspath(path)}: {error.strerror or error}"
        raise LocalProtocolError(msg) from None
    status = os.fstat(folder)
    if not os.access(path, os.W_OK | os.X_OK):  # as on a disk that is read-only
        os.close(folder)
        msg = f"upload_dir: {os.fspath(path)}: no file can be made here"
        raise LocalProtocolError(msg)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & _OTHERS:
        os.close(folder)
        msg = f"upload_dir: {os.fspath(path)} must belong to the user of the server alone: chown it, and chmod 700"
        raise LocalProtocolError(msg)
    return folder


class UploadFolder:
    """The directory of one server, opened by one of its processes."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_files: int,
        max_bytes: int,
        keep_seconds: float,
        lifetime_seconds: float,
        clock: Callable[[], float],
        boot: bytes = _BOOT,
    ) -> None:
        """Open a directory; it is made if there is none.

        Args:
            path: of the directory.
            max_files: uploads at once.
            max_bytes: of all files together; 0 for half of what is free on the disk now, or is taken by uploads.
            keep_seconds: for an upload that nobody brings.
            lifetime_seconds: from the beginning of an upload to that of its last message.
            clock: returns the seconds since the machine was started, or since another moment that all processes share.
            boot: tells this run of the machine from others; 16 bytes.

        Raises:
            LocalProtocolError: it cannot be opened; see `open_folder`.
        """
        self._folder = open_folder(path)
        self._max_files = max_files
        self._keep_seconds = keep_seconds
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        self._boot = boot
        disk = os.fstatvfs(self._folder)
        taken = sum(self._sizes().values())
        self.max_bytes: int = max_bytes or (disk.f_bavail * disk.f_frsize + taken) // 2

    def __len__(self) -> int:
        """Return how many files there are."""
        return len(self._sizes())

    def create(self, upload_id: str, head: RequestHead) -> UploadFile | None:
        """Make the file of an upload; None if there is no room for it.

        Args:
            upload_id: of the upload.
            head: of its request, with the length of the whole body.
        """
        with suppress(OSError, DamagedFileError), self._locked():  # the disk is full, or the head is huge
            if self._has_room(head.content_length or 0):
                now = self._clock()
                times = now + self._keep_seconds, now + self._lifetime_seconds
                return UploadFile.create(self._folder, _name_of(upload_id), head, self._boot, times)
        return None

    def find(self, upload_id: str) -> UploadFile | None:
        """Open the file of an upload; None if another process has it, which gives it back soon.

        Raises:
            FileNotFoundError: there is no such upload, or its time is over.
        """
        try:
            file = UploadFile.open(self._folder, _name_of(upload_id))
        except (OSError, DamagedFileError):
            raise FileNotFoundError from None
        if file is not None and self._entered(file).expires <= self._clock():
            file.remove()
            raise FileNotFoundError
        return file

    def use(self, file: UploadFile) -> None:
        """Keep a file that is in use for some time from now on, if this process ends."""
        file.expire(self._clock() + self._keep_seconds)

    def keep(self, file: UploadFile) -> None:
        """Let others have a file, and keep it for some time."""
        self.use(file)
        file.close()

    def seconds_left(self, file: UploadFile) -> int:
        """Return for how many seconds it is kept at least if nobody goes on with it."""
        return max(0, int(min(self._keep_seconds, file.ends - self._clock())))

    def sweep(self) -> None:
        """Remove the files whose time is over, and what is not one of ours; or the next time, if the disk fails."""
        now = self._clock()
        with suppress(OSError), self._locked():
            for file in self._free_files():
                (file.remove if file.expires <= now else file.close)()

    def sync(self) -> None:
        """Have all uploads on the disk, if it does not fail: the server stops, and perhaps the machine."""
        with suppress(OSError), self._locked():
            for file in self._free_files():
                file.sync()
                file.close()

    def close(self) -> None:
        """Close the directory."""
        os.close(self._folder)

    def _has_room(self, nbytes: int) -> bool:
        """Whether there is room for another file, perhaps after some have been removed."""
        sizes = self._sizes()

        def fits() -> bool:
            return len(sizes) < self._max_files and sum(sizes.values()) + nbytes <= self.max_bytes

        if fits() or nbytes > self.max_bytes:
            return fits()
        free = sorted(self._free_files(), key=lambda file: (bool(file.received), file.expires))
        for file in free:
            if fits():
                file.close()
            else:
                file.remove()
                del sizes[file.name]
        return fits()

    def _free_files(self) -> Iterator[UploadFile]:
        """Open the files that nobody has; what is no upload is removed."""
        for name in self._names():
            with suppress(OSError, DamagedFileError):
                file = UploadFile.open(self._folder, name, asks=False)
                if file is not None:
                    yield self._entered(file)

    def _entered(self, file: UploadFile) -> UploadFile:
        now = self._clock()
        file.enter(self._boot, now + self._keep_seconds, now + self._lifetime_seconds)
        return file

    def _names(self) -> list[str]:
        return [name for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]  # noqa: PTH208 - a descriptor

    def _sizes(self) -> dict[str, int]:
        """Return the bytes of each file; links, directories and files of others take no place of an upload."""
        sizes = {}
        for name in self._names():
            with suppress(FileNotFoundError):  # removed in this moment
                status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                    sizes[name] = status.st_size
        return sizes

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time count and make files; each takes milliseconds."""
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _name_of(upload_id: str) -> str:
    return sha256(upload_id.encode()).hexdigest()[:_NAME_DIGITS] + _SUFFIX
