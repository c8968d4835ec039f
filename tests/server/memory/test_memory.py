"""Memory and descriptors: what the system says of them, in trees of files as each version of control groups has."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from streamcodec.engine.record import replaced
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.runtime import descriptors
from streamcodec.runtime.descriptors import SPARE_DESCRIPTORS, free_descriptors, places_for
from streamcodec.runtime.memory import available
from streamcodec.runtime.memory.available import MemoryLeft, default_budget, memory_bytes, memory_left
from streamcodec.runtime.memory.small import small_options, small_pool_bytes
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import MOST_WAITING, Admission

GIB = 1 << 30
MIB = 1 << 20
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


def _place(root: Path, *, group: int, size: int, resident: int) -> Path:
    """Make the files of a process in a group; `size` is its address space."""
    page = resource.getpagesize()
    files = {
        **MACHINE,
        **V2,
        "sys/fs/cgroup/pod/box/memory.max": f"{group}\n",
        "proc/self/statm": f"{size // page} {resident // page} 1 1 0 1 0\n",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_what_the_process_has_itself_is_taken_off(tmp_path: Path) -> None:
    root = _place(tmp_path, group=64 * MIB, size=160 * MIB, resident=40 * MIB)
    left = memory_left(root)
    assert (left.nbytes, left.limit_bytes, left.own_bytes) == (24 * MIB, 64 * MIB, 40 * MIB)
    assert (left.is_address_space, left.budget, default_budget(root)) == (False, 12 * MIB, 12 * MIB)


def test_processes_that_share_a_group_take_as_much_each(tmp_path: Path) -> None:
    root = _place(tmp_path, group=256 * MIB, size=160 * MIB, resident=40 * MIB)
    left = memory_left(root, processes=3)
    assert (left.nbytes, left.own_bytes) == (136 * MIB, 120 * MIB)
    assert memory_left(root, processes=9).nbytes == 0
    assert memory_left(root, processes=9).budget == MIB


@pytest.mark.parametrize(
    ("limit", "left", "of_space"), [(None, 24, False), (400, 24, False), (170, 10, True), (9, 0, True)]
)
def test_the_address_space_counts_where_it_is_less(
    limit: int | None, left: int, of_space: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = resource.RLIM_INFINITY if limit is None else limit * MIB
    monkeypatch.setattr(resource, "getrlimit", lambda _: (found, resource.RLIM_INFINITY))
    root = _place(tmp_path, group=64 * MIB, size=160 * MIB, resident=40 * MIB)
    assert (memory_left(root).nbytes, memory_left(root).is_address_space) == (left * MIB, of_space)


def test_a_system_without_such_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = _place(tmp_path, group=64 * MIB, size=160 * MIB, resident=40 * MIB)
    (root / "proc/self/statm").write_text("many words\n")
    monkeypatch.delattr(available, "resource")
    assert memory_left(root).nbytes == 64 * MIB
    monkeypatch.delattr(descriptors, "resource")
    assert free_descriptors() is None


def test_a_server_takes_half_of_what_is_left() -> None:
    """Other tests may change what this process has."""
    budget = ServerOptions().max_memory_bytes
    assert abs(budget - default_budget()) < 64 * MIB
    assert budget <= memory_bytes() // 2


# Little memory


@pytest.mark.parametrize("mebibytes", [0, 1, 8, 22, 50, 100, 1000, 100_000])
def test_a_small_server_is_sized_by_what_is_left(mebibytes: int) -> None:
    left = MemoryLeft(nbytes=mebibytes * MIB, limit_bytes=0, own_bytes=0, is_address_space=False)
    more = MemoryLeft(nbytes=4 * mebibytes * MIB, limit_bytes=0, own_bytes=0, is_address_space=False)
    sizes, larger, usual = small_options(left), small_options(more), ServerOptions()
    assert sizes["max_memory_bytes"] == max(MIB, (mebibytes - 4) // 2 * MIB)
    for name in ("max_connections", "max_workers", "max_windowed_requests", "max_pipelined_bytes"):
        assert 1 <= sizes[name] <= larger[name] <= getattr(usual, name)
    of_connections = sizes["max_connections"] * (SCRATCH_BYTES + sizes["max_pipelined_bytes"])
    assert of_connections <= max(left.nbytes // 3, 8 * (SCRATCH_BYTES + sizes["max_pipelined_bytes"]))
    assert small_pool_bytes(left) <= left.nbytes // 8
    of_space = small_options(replaced(left, is_address_space=True))
    stacks = (of_space["max_workers"] + of_space["max_windowed_requests"]) * MIB
    assert 2 <= of_space["max_windowed_requests"] <= sizes["max_windowed_requests"]
    assert stacks <= max(left.nbytes // 6, 3 * MIB)
    if mebibytes == 100_000:
        assert sizes["max_connections"] == usual.max_connections
        assert sizes["max_workers"] == usual.max_workers


def test_options_for_little_memory_may_differ_in_single_values() -> None:
    options = ServerOptions.for_little_memory(max_workers=3)
    assert options.max_workers == 3
    assert options.max_pipelined_bytes < ServerOptions().max_pipelined_bytes


# Descriptors


@pytest.mark.parametrize(
    ("free", "places"),
    [
        (None, (512, 64)),
        (100_000, (512, 64)),
        (512 + 64 + SPARE_DESCRIPTORS, (512, 64)),
        (511 + 64 + SPARE_DESCRIPTORS, (511, 64)),
        (100 + SPARE_DESCRIPTORS, (75, 25)),
        (10 + SPARE_DESCRIPTORS, (8, 2)),
        (SPARE_DESCRIPTORS, (1, 1)),
        (0, (1, 1)),
    ],
)
def test_there_are_no_more_places_than_descriptors(free: int | None, places: tuple[int, int]) -> None:
    assert places_for(512, 64, free) == places
    desk = Admission(ServerOptions(), descriptors=free)
    assert (desk.max_connections, desk.places) == (places[0], sum(places))


@pytest.mark.parametrize(
    ("free", "waiting"),
    [
        (None, MOST_WAITING),
        (100_000, MOST_WAITING),
        (586 + SPARE_DESCRIPTORS, 10),
        (576 + SPARE_DESCRIPTORS, 0),
        (0, 0),
    ],
)
def test_connections_are_accepted_when_all_places_are_taken_if_there_are_descriptors(
    free: int | None, waiting: int
) -> None:
    """Else a health check waits in the system's queue behind all others."""
    desk = Admission(ServerOptions(), descriptors=free)
    assert desk.room == desk.places + waiting


def test_few_connections_need_few_descriptors() -> None:
    assert places_for(2, 64, 66 + SPARE_DESCRIPTORS) == (2, 64)
    assert places_for(2, 64, 40 + SPARE_DESCRIPTORS) == (2, 10)


def test_free_descriptors_are_those_that_are_not_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    monkeypatch.setattr(descriptors, "_OPEN", (tmp_path / "none", tmp_path))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 20))
    assert free_descriptors() == 7
    monkeypatch.setattr(descriptors, "_OPEN", ())
    assert free_descriptors() == 0, "none is known to be free"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 20))
    assert free_descriptors() is None
