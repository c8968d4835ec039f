"""Memory: how much memory this process may use, from its control group or its machine. It only reads files.

In a container the machine's memory is the wrong limit: the system kills a process that exceeds its control group. A
group is also limited by all groups that contain it, so each of them is read, up to the root. If a container sees its
own group as the root, the paths that the system gives do not exist there. Then only the root is read.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

_CGROUPS: Final = "proc/self/cgroup"
_MEMORY: Final = "proc/meminfo"

_ASSUMED_BYTES: Final = 16 << 30
"""Used if the system does not say how much it has. Most machines that serve models have at least this."""

_MIB: Final = 1 << 20


def default_budget(root: Path = Path("/")) -> int:
    """Return half of the memory that this process may use, in whole MiB. The other half is for models and the system.

    Args:
        root: where the system's files are.
    """
    return max(1, memory_bytes(root) // 2 // _MIB) * _MIB


def memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process may use: the smallest limit of its control groups and of the machine."""
    return min([_machine_bytes(root), *_group_limits(root)])


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
