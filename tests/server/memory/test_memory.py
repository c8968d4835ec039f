"""Memory: what the system says of it, in trees of files as the versions of control groups have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamcodec.runtime.memory.available import default_budget, memory_bytes
from streamcodec.server import ServerOptions

GIB = 1 << 30
MACHINE = {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree:         1 kB\n"}
V2 = {"proc/self/cgroup": "0::/pod/box\n"}
V1 = {"proc/self/cgroup": "5:devices:/pod/box\n4:cpu,memory:/pod/box\n1:name=systemd:/\n"}
NO_LIMIT = "9223372036854771712"

TREES: dict[str, tuple[dict[str, str], int]] = {
    "nothing is told": ({}, 16 * GIB),
    "nothing of memory": ({"proc/meminfo": "MemTotal:\nSwapTotal: 1 kB\n"}, 16 * GIB),
    "a machine": (MACHINE, 16 * GIB),
    "no limit": ({**MACHINE, **V2, "sys/fs/cgroup/pod/box/memory.max": "max\n"}, 16 * GIB),
    "its group": ({**MACHINE, **V2, "sys/fs/cgroup/pod/box/memory.max": f"{GIB}\n"}, GIB),
    "a group that its own is in": (
        {
            **MACHINE,
            **V2,
            "sys/fs/cgroup/pod/box/memory.max": f"{3 * GIB}\n",
            "sys/fs/cgroup/pod/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        },
        GIB,
    ),
    "another's group": ({**MACHINE, **V2, "sys/fs/cgroup/other/memory.max": f"{GIB}\n"}, 16 * GIB),
    "a container that sees its group as the root": ({**MACHINE, **V2, "sys/fs/cgroup/memory.max": f"{GIB}\n"}, GIB),
    "a group with more than the machine": ({**MACHINE, **V2, "sys/fs/cgroup/memory.max": f"{99 * GIB}\n"}, 16 * GIB),
    "version 1": ({**MACHINE, **V1, "sys/fs/cgroup/memory/pod/box/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
    "version 1, a parent": ({**MACHINE, **V1, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
    "version 1 in a container": ({**MACHINE, **V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
    "version 1, no limit": (
        {**MACHINE, **V1, "sys/fs/cgroup/memory/pod/box/memory.limit_in_bytes": NO_LIMIT},
        16 * GIB,
    ),
    "both": (
        {
            **MACHINE,
            "proc/self/cgroup": V1["proc/self/cgroup"] + "0::/unit\n",
            "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/unified/unit/memory.max": f"{GIB}\n",
        },
        GIB,
    ),
    "both, the other less": (
        {
            **MACHINE,
            "proc/self/cgroup": V1["proc/self/cgroup"] + "0::/unit\n",
            "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/unified/unit/memory.max": f"{2 * GIB}\n",
        },
        GIB,
    ),
    "lines that mean nothing": ({**MACHINE, "proc/self/cgroup": "\n0\n::\n4:memory\n"}, 16 * GIB),
    "a path that leads elsewhere": ({**MACHINE, "proc/self/cgroup": "0::/../../elsewhere\n"}, 16 * GIB),
    "a limit of nothing": ({**MACHINE, **V2, "sys/fs/cgroup/memory.max": "0\n"}, 16 * GIB),
}


@pytest.mark.parametrize("name", TREES)
def test_the_least_of_all_limits_counts(name: str, tmp_path: Path) -> None:
    files, expected = TREES[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert memory_bytes(tmp_path) == expected
    assert default_budget(tmp_path) == expected // 2


@pytest.mark.parametrize(("kib", "budget"), [(1, 1 << 20), (5 << 10, 2 << 20), (8 << 10, 4 << 20)])
def test_a_budget_is_whole_and_never_nothing(tmp_path: Path, kib: int, budget: int) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: {kib} kB\n")
    assert default_budget(tmp_path) == budget


def test_a_server_takes_half_of_what_there_is() -> None:
    assert ServerOptions().max_memory_bytes == default_budget() <= memory_bytes() // 2
