"""Memory: how much memory this process may still use: of its control group, its machine, or its address space.

It reads files, and asks for one limit of the process. What the process has itself, before it serves, is taken off: its
resident memory from that of the group or the machine, and its address space from `RLIMIT_AS`. The least of these
counts.

In a container the machine's memory is the wrong limit: the system kills a process that exceeds its control group. A
group is also limited by all groups that contain it, so each of them is read, up to the root. If a container sees its
own group as the root, the paths that the system gives do not exist there. Then only the root is read.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from streamcodec.engine.record import record

with suppress(ImportError):  # of Windows
    import resource

_CGROUPS: Final = "proc/self/cgroup"
_MEMORY: Final = "proc/meminfo"
_PROCESS: Final = "proc/self/statm"

_ASSUMED_BYTES: Final = 16 << 30
"""Used if the system does not say how much it has. Most machines that serve models have at least this."""

_MIB: Final = 1 << 20


@record()
class MemoryLeft:
    """Memory that this process may still use."""

    nbytes: int
    """What is left."""
    limit_bytes: int
    """What it is left of."""
    own_bytes: int
    """What this process has of that itself, and others like it."""
    is_address_space: bool
    """Whether the limit is that of the address space, and not of resident memory."""

    @property
    def budget(self) -> int:
        """Half of it, in whole MiB: for requests. The other half is for models, threads and connections."""
        return max(1, self.nbytes // 2 // _MIB) * _MIB


def default_budget(root: Path = Path("/")) -> int:
    """Return half of the memory that this process may still use, in whole MiB; see `MemoryLeft.budget`.

    Args:
        root: where the system's files are.
    """
    return memory_left(root).budget


def memory_left(root: Path = Path("/"), *, processes: int = 1) -> MemoryLeft:
    """Return how much memory is left where it is least.

    Args:
        root: where the system's files are.
        processes: how many will share a group, each with as much memory of its own as this one has now.
    """
    size, resident = _own_bytes(root)
    limit, own = memory_bytes(root), processes * resident
    resident_left = MemoryLeft(nbytes=max(0, limit - own), limit_bytes=limit, own_bytes=own, is_address_space=False)
    space = _address_space()
    if space is None or space - size >= resident_left.nbytes:
        return resident_left
    return MemoryLeft(nbytes=max(0, space - size), limit_bytes=space, own_bytes=size, is_address_space=True)


def memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process may use: the smallest limit of its control groups and of the machine."""
    return min([_machine_bytes(root), *_group_limits(root)])


def _own_bytes(root: Path) -> tuple[int, int]:
    """Return the address space and the resident memory of this process; zeros if the system does not say."""
    words = _text(root / _PROCESS).split()[:2]
    if len(words) < 2 or not all(word.isdecimal() for word in words):  # noqa: PLR2004 - two words
        return 0, 0
    size, resident = (int(word) * mmap.PAGESIZE for word in words)
    return size, resident


def _address_space() -> int | None:
    """Return the limit of the address space; None if there is none."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    except NameError:
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def _machine_bytes(root: Path) -> int:
    for line in _text(root / _MEMORY).splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == "MemTotal" and words and words[0].isdecimal():
            return int(words[0]) << 10
    return _ASSUMED_BYTES


def _group_limits(root: Path) -> list[int]:
    """Return the limits of all groups that this process is in; of both versions, since both may be mounted."""
    limits = []
    for line in _text(root / _CGROUPS).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts, file = ("sys/fs/cgroup", "sys/fs/cgroup/unified"), "memory.max"
        elif "memory" in controllers.split(","):
            mounts, file = ("sys/fs/cgroup/memory", "sys/fs/cgroup"), "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath("/", path).relative_to("/")
        groups = [root / mount / parent for mount in mounts for parent in (group, *group.parents)]
        texts = [_text(folder / file).strip() for folder in groups]
        limits += [int(text) for text in texts if text.isdecimal() and int(text)]  # else "max", or no such file
    return limits


def _text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
