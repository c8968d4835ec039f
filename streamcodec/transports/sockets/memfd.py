"""Memory files: memory with a descriptor and without a name (`memfd_create`), which two processes share. Linux only.

A process that maps a file of another one can be ended by it. A page behind the end of the file, or one for which the
system finds no memory, is answered with SIGBUS. So a file is mapped only when none of that can happen any more:

- It is a memory file. Files of other kinds have no seals: pipes, devices, sockets, directories, and files with a name,
  of which those of FUSE can make a read wait for ever.
- Its pages have the usual size. A huge page can be missing although its file has been sealed.
- It can neither shrink nor grow (`F_SEAL_SHRINK`, `F_SEAL_GROW`). Its size is read after that.
- No page can be taken out of it: `F_SEAL_FUTURE_WRITE` or `F_SEAL_WRITE` also forbid to punch holes.
- Each page exists: `posix_fallocate` fails where an access would end the process.

`F_SEAL_FUTURE_WRITE` lets those write who have mapped the file before. Nobody else can from then on. So of two
memories, the sender of one seals it before it passes it on, and the receiver maps it for reading only. The receiver of
the other maps it for writing, and then seals it itself. Seals can never be removed.
"""

from __future__ import annotations

import array
import errno
import mmap
import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import numpy as np

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError

with suppress(ImportError):  # of Windows
    import fcntl

Octets = np.ndarray[Any, np.dtype[np.uint8]]

HAS_MEMORY_FILES: Final = sys.platform == "linux" and hasattr(os, "memfd_create") and hasattr(socket, "SCM_RIGHTS")
"""Whether this system has them."""

MIN_MEMORY_BYTES: Final = 1 << 20
"""The least size of a memory that is accepted. Each takes a descriptor, so this bounds their number."""

_F_SEAL_FUTURE_WRITE: Final = 0x10
"""Since Linux 5.1; Python does not name it."""

_MFD_NOEXEC_SEAL: Final = 0x08
"""Since Linux 6.3, where a system may demand it."""

_FD_BYTES: Final = array.array("i").itemsize


def new_memory(nbytes: int, *, seals_writing: bool) -> tuple[int, mmap.mmap]:
    """Make a memory file, and map it for reading and writing.

    Args:
        nbytes: size; rounded up to whole pages.
        seals_writing: whether nobody else shall be able to write to it. Else the receiver seals it.

    Returns:
        Its descriptor, which the caller closes, and the memory.

    Raises:
        LocalProtocolError: this system has no memory files.
        OSError: it has no memory for it, or is too old.
    """
    if not HAS_MEMORY_FILES:
        raise LocalProtocolError("this system has no memory files (memfd_create), so there is no memory lane")
    descriptor = _create()
    try:
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(descriptor, nbytes)
        memory = mmap.mmap(descriptor, nbytes)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals | (_F_SEAL_FUTURE_WRITE if seals_writing else 0))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, memory


def _create() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("streamcodec", flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("streamcodec", flags)


def check_memory(descriptor: int, max_bytes: int, *, is_written: bool) -> int:
    """Check a descriptor that another process has passed; return the size of its memory, which cannot change any more.

    Args:
        descriptor: of anything.
        max_bytes: the largest size that is accepted.
        is_written: whether this process will write to it. Else it must be sealed against that.

    Raises:
        RemoteProtocolError: `invalid-member`: it is no memory file, is not sealed as it must be, or has a wrong size.
    """
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        page_bytes = os.fstatvfs(descriptor).f_bsize
    except OSError:  # which says that this kind of file has no seals
        raise _unfit("is no memory file; it must be made with memfd_create and MFD_ALLOW_SEALING") from None
    if flags & os.O_ACCMODE != os.O_RDWR:
        raise _unfit("must be open for reading and writing, so that its pages can be allocated")
    if page_bytes != mmap.PAGESIZE:
        raise _unfit(f"has pages of {page_bytes} bytes; only those of {mmap.PAGESIZE} bytes are mapped")
    wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    if seals & wanted != wanted:
        raise _unfit("must be sealed with F_SEAL_SHRINK and F_SEAL_GROW, so that its size cannot change")
    has_sealed_writing = bool(seals & (_F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_WRITE))
    if is_written and (has_sealed_writing or seals & fcntl.F_SEAL_SEAL):
        raise _unfit("must not be sealed further: who writes answers to it maps it first, and seals it then")
    if not is_written and not has_sealed_writing:
        raise _unfit("must be sealed with F_SEAL_FUTURE_WRITE, so that its pages cannot be removed")
    nbytes = os.fstat(descriptor).st_size
    if not MIN_MEMORY_BYTES <= nbytes <= max_bytes or nbytes % mmap.PAGESIZE:
        raise _unfit(f"has {nbytes} bytes; whole pages from {MIN_MEMORY_BYTES} to {max_bytes} bytes are mapped")
    return nbytes


def map_memory(descriptor: int, nbytes: int, *, is_written: bool) -> tuple[mmap.mmap, Octets]:
    """Map a memory file that has been checked. This takes long, because all its pages are allocated.

    Args:
        descriptor: of the file; the caller closes it.
        nbytes: its size.
        is_written: whether the memory can be written to. Then nobody else can map the file for writing afterwards.

    Returns:
        The mapping, and its bytes. It is mapped as long as one of them exists, or another array of its memory.

    Raises:
        OSError: there is no memory for it, or its seals have been changed meanwhile.
    """
    memory = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_WRITE if is_written else mmap.ACCESS_READ)
    if is_written:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
    os.posix_fallocate(descriptor, 0, nbytes)
    return memory, np.frombuffer(memory, np.uint8)


def send_descriptors(sock: socket.socket, data: bytes, descriptors: Iterable[int]) -> int:
    """Send bytes with descriptors; return how many bytes the system has taken.

    Raises:
        OSError: the connection is broken.
    """
    rights = array.array("i", descriptors)
    return sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def receive_descriptors(sock: socket.socket, nbytes: int, count: int) -> tuple[bytes, list[int], bool]:
    """Receive bytes, and the descriptors that came with them. The system closes those for which there is no room.

    Args:
        sock: a Unix socket.
        nbytes: how many bytes to receive at most.
        count: how many descriptors are expected.

    Returns:
        The bytes; the descriptors, which the caller closes; and whether exactly `count` have come.

    Raises:
        OSError: the connection is broken, or this process has no free descriptors.
    """
    room = socket.CMSG_LEN(count * _FD_BYTES)  # `CMSG_SPACE` may have room for one more
    data, ancillary, flags, _ = sock.recvmsg(nbytes, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) // _FD_BYTES * _FD_BYTES])
    return data, descriptors.tolist(), len(descriptors) == count and not flags & socket.MSG_CTRUNC


def is_memory_file(descriptor: int) -> bool:
    """Whether a descriptor is that of a file which can have seals. To close it takes no time.

    To close another one can take for ever: the server of a FUSE file is asked, and answers when it likes.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        with suppress(OSError):  # closed in any case
            os.close(descriptor)


def _unfit(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the memory that came with the request {text}", code=ErrorCode.INVALID_MEMBER)
