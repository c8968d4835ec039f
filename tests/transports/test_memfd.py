"""Memory files: each kind of descriptor that a peer can pass, and what it can do to memory that is mapped."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import mmap
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError, RemoteProtocolError
from streamcodec.transports.sockets import memfd
from streamcodec.transports.sockets.memfd import (
    MIN_MEMORY_BYTES,
    check_memory,
    close_all,
    is_memory_file,
    map_memory,
    new_memory,
    receive_descriptors,
    send_descriptors,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files exist on Linux only")

MIB = 1 << 20
SHRINK, GROW, WRITE, SEAL = 0x2, 0x4, 0x8, 0x1
FUTURE_WRITE = 0x10
PUNCH_HOLE = 0x1 | 0x2


def memory_file(nbytes: int = MIB, seals: int = 0, flags: int = 0) -> int:
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(descriptor, nbytes)
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def read_only(descriptor: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    finally:
        os.close(descriptor)


def a_socket() -> int:
    return socket.socket(socket.AF_UNIX).detach()


def a_pipe() -> int:
    reader, writer = os.pipe()
    os.close(writer)
    return reader


def a_file(folder: str) -> int:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.truncate(MIB)
        return os.dup(file.fileno())


WRONG: dict[str, tuple[Callable[[], int], str]] = {
    "a pipe": (a_pipe, "no memory file"),
    "a socket": (a_socket, "no memory file"),
    "a directory": (lambda: os.open("/", os.O_RDONLY), "no memory file"),
    "a device": (lambda: os.open("/dev/zero", os.O_RDWR), "no memory file"),
    "a path": (lambda: os.open("/", os.O_PATH), "no memory file"),
    "an eventfd": (lambda: os.eventfd(0), "no memory file"),
    "a file with a name in memory": (lambda: a_file("/dev/shm"), "F_SEAL_SHRINK"),  # noqa: S108 - it is tmpfs
    "no seals": (memory_file, "F_SEAL_SHRINK"),
    "a memory file without seals": (lambda: os.memfd_create("test"), "F_SEAL_SHRINK"),
    "may shrink": (lambda: memory_file(seals=GROW | FUTURE_WRITE), "F_SEAL_SHRINK"),
    "may grow": (lambda: memory_file(seals=SHRINK | FUTURE_WRITE), "F_SEAL_GROW"),
    "may have holes": (lambda: memory_file(seals=SHRINK | GROW), "F_SEAL_FUTURE_WRITE"),
    "empty": (lambda: memory_file(0, SHRINK | GROW | FUTURE_WRITE), "has 0 bytes"),
    "too small": (lambda: memory_file(MIB - mmap.PAGESIZE, SHRINK | GROW | FUTURE_WRITE), "whole pages from"),
    "too large": (lambda: memory_file(2 * MIB + 4096, SHRINK | GROW | FUTURE_WRITE), "whole pages from"),
    "a part of a page": (lambda: memory_file(MIB + 1, SHRINK | GROW | FUTURE_WRITE), "whole pages from"),
    "read-only": (lambda: read_only(memory_file(seals=SHRINK | GROW | FUTURE_WRITE)), "reading and writing"),
    "huge pages": (
        lambda: memory_file(2 * MIB, SHRINK | GROW | FUTURE_WRITE, os.MFD_HUGETLB),
        "pages of 2097152 bytes",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_refused(kind: str) -> None:
    make, text = WRONG[kind]
    descriptor = make()
    try:
        with pytest.raises(RemoteProtocolError, match=text):
            check_memory(descriptor, 2 * MIB, is_written=False)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("seals", [FUTURE_WRITE, WRITE, SEAL])
def test_memory_for_answers_that_cannot_be_written_to_or_sealed(seals: int) -> None:
    descriptor = memory_file(seals=SHRINK | GROW | seals)
    try:
        with pytest.raises(RemoteProtocolError, match="must not be sealed further"):
            check_memory(descriptor, 2 * MIB, is_written=True)
    finally:
        os.close(descriptor)


@pytest.fixture(params=[False, True], ids=["requests", "answers"])
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[int, mmap.mmap, np.ndarray[Any, Any]]]:
    """A memory as its maker has it, and as the other side has mapped it."""
    descriptor, memory = new_memory(MIB, seals_writing=not request.param)
    nbytes = check_memory(descriptor, MIB, is_written=request.param)
    _, octets = map_memory(descriptor, nbytes, is_written=request.param)
    yield descriptor, memory, octets
    os.close(descriptor)


def test_what_its_maker_cannot_do_any_more(shared: tuple[int, mmap.mmap, np.ndarray[Any, Any]]) -> None:
    """All that could end a process that has mapped the memory: make it shorter, or take a page out of it."""
    descriptor, memory, octets = shared
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    for size in (0, MIB - 4096, 2 * MIB):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    assert fallocate(descriptor, PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(4096)) == -1
    assert ctypes.get_errno() == errno.EPERM
    with pytest.raises(PermissionError):
        memory.madvise(mmap.MADV_REMOVE)
    with pytest.raises(PermissionError):
        mmap.mmap(descriptor, MIB)
    with pytest.raises(PermissionError):
        os.write(descriptor, b"x")
    memory[5] = 7  # what it has mapped, it can change
    assert octets[5] == 7


def test_all_pages_exist() -> None:
    """A page that is made when it is touched could fail then, and the system's answer is SIGBUS."""
    for is_written in (False, True):
        descriptor, _ = new_memory(MIB, seals_writing=not is_written)
        assert os.fstat(descriptor).st_blocks == 0
        map_memory(descriptor, MIB, is_written=is_written)
        assert os.fstat(descriptor).st_blocks * 512 == MIB
        os.close(descriptor)


def test_arrays_keep_the_memory_mapped() -> None:
    descriptor, memory = new_memory(MIB, seals_writing=True)
    memory[100] = 9
    octets = map_memory(descriptor, MIB, is_written=False)[1]
    os.close(descriptor)
    memory.close()
    array = octets[64:128].view(np.int32)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        octets.flags.writeable = True
    before = _mappings()
    del octets
    gc.collect()
    assert array.tobytes()[36] == 9
    assert _mappings() == before
    del array
    assert _mappings() == before - 1


def _mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:streamcodec")


def test_a_system_that_does_not_know_the_newest_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    create = os.memfd_create

    def old(name: str, flags: int) -> int:
        if flags & 0x08:
            raise OSError(errno.EINVAL, "unknown flag")
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", old)
    descriptor, memory = new_memory(5000, seals_writing=True)
    assert len(memory) == 8192
    os.close(descriptor)
    monkeypatch.setattr(os, "memfd_create", _no_descriptors)
    with pytest.raises(OSError, match="too many"):
        new_memory(5000, seals_writing=True)


def _open() -> set[str]:
    """The descriptors of this process."""
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def _no_descriptors(*_: object) -> int:
    raise OSError(errno.EMFILE, "too many")


def test_a_failure_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "ftruncate", _no_descriptors)
    before = _open()
    with pytest.raises(OSError, match="too many"):
        new_memory(5000, seals_writing=True)
    assert _open() == before


def test_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memfd, "HAS_MEMORY_FILES", False)
    with pytest.raises(LocalProtocolError, match="memfd_create"):
        new_memory(MIB, seals_writing=True)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 253])
def test_descriptors_on_their_way(count: int) -> None:
    """No more than as many as are expected are received; the system closes the others."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = _open()
        sent = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
        assert send_descriptors(theirs, b"opening", sent) == 7
        close_all(sent)
        data, descriptors, are_all = receive_descriptors(ours, 7, 2)
        assert (data, are_all) == (b"opening", count == 2)
        assert len(descriptors) == min(count, 2)
        assert not any(map(is_memory_file, descriptors))
        assert not any(os.get_inheritable(descriptor) for descriptor in descriptors)
        close_all([*descriptors, -1])
        assert _open() == before


def test_least_size() -> None:
    assert MIN_MEMORY_BYTES == MIB
