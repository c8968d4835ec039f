"""UploadFile: one upload in a file, whose memory the tensors share.

The file has three parts: numbers at fixed places, the head of the request, and the body. It is mapped to memory. A
tensor whose bytes are its values lies in the body, so what the connection writes there is in the file at once. All
other bytes (the JSON header, BYTES, tensors that would not be aligned) are copied to their places in the body.

*Received* counts the bytes of the body that are there. It is written after them, so it is right whenever the process
ends. If the machine stops, the system may have written the number and not the bytes. So *synced* counts the bytes that
are on the disk for certain, and it is used if the machine has been started anew since.

Who has the lock of a file brings its bytes. The system frees the lock of a process that ends. A process that wants a
file of another one *asks* for it, by a byte in the file.

The model gets the tensors in a mapping of its own, which copies a page when it is written to. So a model may write to
its inputs, and if the process ends meanwhile, the next call has what the client has sent.

The disk has room for the whole file from the beginning: a write to mapped memory cannot report an error. A copy of a
file may have holes instead, so it gets its room again before it is mapped.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
import struct
from bisect import bisect_right
from contextlib import suppress
from typing import Final

from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.engine.memory.placement import ALIGNMENT, Into, Place, Placement, into_bytes
from streamcodec.engine.memory.reserving import fill_holes, reserve_bytes
from streamcodec.engine.receiving import Buffer
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.fields import header_form_of
from streamcodec.http.heads.messages import Fields, RequestHead

with suppress(ImportError):  # of Windows, where an upload cannot be kept in a file
    import fcntl

_MAGIC: Final = b"streamcodec uploads 1\0\0\0"
_BOOT_BYTES: Final = 16
_FIXED: Final = struct.Struct(f"<{len(_MAGIC)}s{_BOOT_BYTES}sQQQddI")
"""Magic, boot, length, received, synced, expires, ends, and the bytes of the head that follow."""

_BOOT_AT: Final = len(_MAGIC)
_RECEIVED_AT: Final = _BOOT_AT + _BOOT_BYTES + 8
_SYNCED_AT: Final = _RECEIVED_AT + 8
_EXPIRES_AT: Final = _SYNCED_AT + 8
_ASKED_AT: Final = _FIXED.size
_HEAD_AT: Final = _ASKED_AT + 1

_NUMBER: Final = struct.Struct("<Q")
_TIMES: Final = struct.Struct("<dd")

_MAX_HEAD_BYTES: Final = 1 << 20
"""A head of `max_head_bytes`, 32 KiB unless somebody wants more, takes a sixth of it if it is all escapes."""

_BLOCK_BYTES: Final = 512
"""Of `st_blocks`."""

_PERMISSIONS: Final = 0o600
_SECRETS: Final = frozenset({b"authorization", b"cookie", b"proxy-authorization"})
"""Fields that have been checked by whoever wanted them, and do not belong on a disk."""


class DamagedFileError(Exception):
    """A file is not one of ours, or is not complete."""


class UploadFile:
    """A file that this process has locked.

    Attributes:
        name: in its folder.
        head: of the request, with the length of the whole body.
        body: the bytes of the body.
        ends: when the upload is over at the latest, in seconds of the system's monotonic clock.
    """

    def __init__(self, folder: int, name: str, descriptor: int) -> None:
        """Map a file that has been locked.

        Raises:
            DamagedFileError: it is not complete.
            OSError: it cannot be mapped.
        """
        self.name: str = name
        self._folder = folder
        self._descriptor = descriptor
        if os.fstat(descriptor).st_size < _HEAD_AT:
            raise DamagedFileError
        self._pages = mmap.mmap(descriptor, 0)
        self.head, start = _read_head(self._pages)
        self.length: int = self.head.content_length or 0
        self.body: memoryview = memoryview(self._pages)[start : start + self.length]
        self._start = start
        self._held: list[tuple[int, int]] = []
        self._copied: memoryview | None = None
        self.expires: float
        self.ends: float
        self.expires, self.ends = _TIMES.unpack_from(self._pages, _EXPIRES_AT)
        self.received: int = _NUMBER.unpack_from(self._pages, _RECEIVED_AT)[0]
        self._pages[_ASKED_AT] = 0

    @classmethod
    def create(cls, folder: int, name: str, head: RequestHead, boot: bytes, times: tuple[float, float]) -> UploadFile:
        """Make a file, and lock it.

        Args:
            folder: descriptor of the directory.
            name: of the file.
            head: of the request, with the length of the whole body.
            boot: says since when the machine runs.
            times: when it expires, and when it ends.

        Raises:
            OSError: the disk has no room, or something else is wrong with it.
        """
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.fields.items]
        kept = [(name, value) for name, value in fields if name.encode("latin-1") not in _SECRETS]
        text = json.dumps({"target": head.target, "fields": kept}).encode()
        start = _start_of(head, len(text))
        length = head.content_length or 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, _PERMISSIONS, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            reserve_bytes(descriptor, start + length)
            os.pwrite(descriptor, bytes(1) + text, _ASKED_AT)
            os.pwrite(descriptor, _FIXED.pack(_MAGIC, boot, length, 0, 0, *times, len(text)), 0)
            return cls(folder, name, descriptor)
        except BaseException:
            os.close(descriptor)
            os.unlink(name, dir_fd=folder)
            raise

    @classmethod
    def open(cls, folder: int, name: str, *, asks: bool = True) -> UploadFile | None:
        """Open a file that is there, and lock it; if another process has it, ask for it if `asks`, and return None.

        Raises:
            FileNotFoundError: there is no such file.
            DamagedFileError: it is not one of ours, or is not complete. It is removed.
            OSError: it cannot be read, or it has holes, and the disk has no room for them.
        """
        descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if asks:
                    os.pwrite(descriptor, b"\1", _ASKED_AT)
                os.close(descriptor)
                return None
            status = os.fstat(descriptor)
            _check(status)
            if asks and status.st_blocks * _BLOCK_BYTES < status.st_size:
                fill_holes(descriptor, status.st_size)
            return cls(folder, name, descriptor)
        except DamagedFileError:
            os.close(descriptor)
            os.unlink(name, dir_fd=folder)
            raise
        except OSError:
            os.close(descriptor)
            raise

    @property
    def is_asked_for(self) -> bool:
        """Whether another process wants it."""
        return bool(self._pages[_ASKED_AT])

    def enter(self, boot: bytes, expires: float, ends: float) -> bool:
        """Take over the times of a file that was made before the machine was started.

        Args:
            boot: says since when the machine runs.
            expires: when it expires now.
            ends: when it ends now.

        Returns:
            Whether it was such a file. Then only the bytes that were synced are there for certain.
        """
        if self._pages[_BOOT_AT:_RECEIVED_AT][:_BOOT_BYTES] == boot:
            return False
        self.count(_NUMBER.unpack_from(self._pages, _SYNCED_AT)[0])
        self.ends = ends
        self.expire(expires)
        self._pages[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] = boot
        return True

    def expire(self, at: float) -> None:
        """Say when it is over if nobody goes on with it."""
        self.expires = min(at, self.ends)
        _TIMES.pack_into(self._pages, _EXPIRES_AT, self.expires, self.ends)

    def place(self, spec: TensorSpec, otherwise: Place) -> Placement:
        """Place a tensor in the body, if its bytes are its values and it is aligned there."""
        start = self._start + (spec.offset or 0)
        if spec.offset is None or not spec.nbytes or start % spec.datatype.dtype.itemsize:
            return otherwise(spec)
        self._held.append((spec.offset, spec.offset + spec.nbytes))
        return into_bytes(spec, self.body[spec.offset : spec.offset + spec.nbytes])

    def for_model(self, spec: TensorSpec) -> Into | None:
        """Return the place of a tensor that has come, for a model to write to; None if it does not lie in the body.

        Raises:
            MemoryError: the system cannot map the file once more.
        """
        if spec.offset is None or not spec.nbytes or not self.holds(spec.offset):
            return None
        try:
            self._copied = self._copied or memoryview(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY))
        except OSError as error:
            raise MemoryError from error
        start = self._start + spec.offset
        return into_bytes(spec, self._copied[start : start + spec.nbytes])

    def holds(self, at: int) -> bool:
        """Whether the byte at `at` of the body is that of a tensor that was placed here."""
        before = bisect_right(self._held, (at, len(self.body)))
        return bool(before) and at < self._held[before - 1][1]

    def write(self, at: int, data: Buffer) -> None:
        """Copy bytes to the body; they have been taken by the decoder, too."""
        with memoryview(data) as view, view.cast("B") as source:
            self.body[at : at + len(source)] = source

    def count(self, received: int) -> None:
        """Say how many bytes of the body are there now."""
        self.received = received
        _NUMBER.pack_into(self._pages, _RECEIVED_AT, received)

    def sync(self) -> None:
        """Have what has been received on the disk, so that a stop of the machine does not lose it."""
        self._pages.flush()
        _NUMBER.pack_into(self._pages, _SYNCED_AT, self.received)
        self._pages.flush(0, mmap.PAGESIZE)

    def close(self) -> None:
        """Let others have it; the arrays of its tensors stay valid, and nothing may be written to them."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # the mapping keeps the file open
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Remove it, unless the disk is read-only by now; the arrays of its tensors stay valid."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.unlink(self.name, dir_fd=self._folder)
            self.close()


def _check(status: os.stat_result) -> None:
    """Refuse a file that has been removed by whoever had it, and what is no file of ours."""
    if not status.st_nlink:
        raise FileNotFoundError
    if not (stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid()):
        raise DamagedFileError


def _read_head(pages: mmap.mmap) -> tuple[RequestHead, int]:
    """Return the head of the request, and where the body begins."""
    magic, _, length, received, synced, expires, ends, size = _FIXED.unpack_from(pages)
    if magic != _MAGIC or size > _MAX_HEAD_BYTES or not expires <= ends < math.inf:
        raise DamagedFileError
    try:
        named = json.loads(pages[_HEAD_AT : _HEAD_AT + size])
        items = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in named["fields"])
        target = "" + named["target"]  # a TypeError, unless it is text
        head = RequestHead(method="POST", target=target, fields=Fields.of(items), content_length=length)
        start = _start_of(head, size)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, RemoteProtocolError):
        raise DamagedFileError from None
    if not max(received, synced) <= length == len(pages) - start:
        raise DamagedFileError
    return head, start


def _start_of(head: RequestHead, size: int) -> int:
    """Return where the body begins: so that its first tensor is aligned."""
    header_length = header_form_of(head.fields)[0] or 0
    start = _HEAD_AT + size
    return start + -(start + header_length) % ALIGNMENT
