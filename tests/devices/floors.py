"""Floors: what a server takes at rest, and the least memory with which it works. `python -m tests.devices.floors`.

Each figure is from a process of its own. The floors of address space (`RLIMIT_AS`) and of a control group are found by
halving. The groups are of version 1, and need the superuser; without them the command says so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tests.devices.processes import PROGRAMS, address_space, group, idle_connections, served, works
from tests.server.wire import GET_LIVE, infer_request

_MIB: Final = 1 << 20
_CONNECTIONS: Final = 500


def at_rest(name: str) -> tuple[int, int]:
    """Return the resident memory and the address space of a server that has answered a request, in KiB."""
    with served(PROGRAMS[name]):  # with -OO, Python compiles everything at the first start
        pass
    with served(PROGRAMS[name]) as server:
        assert works(server, is_large=False)
        return server.memory("VmRSS"), server.memory("VmSize")


def idle_cost(name: str, request: bytes, count: int = _CONNECTIONS) -> tuple[float, int]:
    """Return what an idle connection costs, and what all of them leave when they have gone, in KiB."""
    with served(PROGRAMS[name]) as server:
        assert works(server, is_large=False)
        before = server.memory("VmRSS")
        sockets = idle_connections(server, count, request)
        time.sleep(0.5)
        cost = (server.memory("VmRSS") - before) / count
        for sock in sockets:
            sock.close()
        time.sleep(0.5)
        return cost, server.memory("VmRSS") - before


def floor(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number of MiB with which a server works, to 4 MiB; `high` if it needs more."""
    while high - low > 4:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def fits_address_space(name: str, mebibytes: int, *, is_large: bool) -> bool:
    """Whether a server works in so much address space."""
    try:
        with served(PROGRAMS[name], limit=address_space(mebibytes * _MIB)) as server:
            return works(server, is_large=is_large)
    except OSError:
        return False


def fits_group(name: str, mebibytes: int, *, is_large: bool) -> bool:
    """Whether a server works in a control group with so much memory."""
    with group("memory", limit_in_bytes=mebibytes * _MIB) as limit:
        try:
            with served(PROGRAMS[name], limit=limit) as server:
                return works(server, is_large=is_large)
        except OSError:
            return False


def main() -> None:
    """Print the tables."""
    _say("| program | resident, MiB | address space, MiB | least RLIMIT_AS, 20 MB | least group, 20 MB |")
    _say("| --- | --- | --- | --- | --- |")
    for name in PROGRAMS:
        resident, size = (kib / 1024 for kib in at_rest(name))
        least = [floor(partial(fits_address_space, name, is_large=large), 24, 512) for large in (False, True)]
        groups: Sequence[object]
        try:
            groups = [floor(partial(fits_group, name, is_large=large), 8, 256) for large in (False, True)]
        except OSError as error:
            groups = [str(error)]
        _say(f"| {name} | {resident:.1f} | {size:.0f} | {_both(least)} | {_both(groups)} |")
    for text, request in (("nothing", b""), ("a health check", GET_LIVE), ("an inference", infer_request())):
        cost, left = idle_cost("serve", request)
        _say(f"{_CONNECTIONS} connections after {text}: {cost:.1f} KiB each; {left / 1024:.1f} MiB when they have gone")


def _both(figures: Sequence[object]) -> str:
    return ", ".join(map(str, figures))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
