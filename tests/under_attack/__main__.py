"""A server under attack, by one command: `python -m tests.under_attack`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.stalls import STALL_SECONDS
from tests.under_attack.attacks import ATTACKS, CONNECTIONS
from tests.under_attack.trial import BUDGET_MIB, MAX_EXTRA_MIB, MAX_MS, MAX_P99_MS, Finding, attack, calm_server

_DESCRIPTION = f"""\
Attack a server in many ways, one after the other, each from {CONNECTIONS} connections or more, while honest clients
ask every 20 ms whether it is alive, each on a new connection. A second server, which nobody attacks, is asked as
often: what it takes longer than nothing, the machine adds. Bounds: p99 of {MAX_P99_MS:g} ms, at most {MAX_MS:g} ms,
{MAX_EXTRA_MIB:g} MiB above idle and the budget of {BUDGET_MIB} MiB. Times are allowed for what the machine adds, and
are longer by as much as others had the processors while the server was ready (crowding), or by as much as it does less
in a second of CPU time (slowness). Prints a table; ends with status 1 if a bound was broken.
"""


def main() -> None:
    """Attack."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.under_attack",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    best = "asyncio" if find_spec("uvloop") is None else "uvloop"
    parser.add_argument("names", nargs="*", help="attacks whose names contain one of these (default: all)")
    parser.add_argument("--seconds", type=float, default=4, help="of each (default: %(default)s)")
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "trio"], default=best, help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found here, too")
    arguments = parser.parse_args()
    names = [name for name in ATTACKS if any(part in name for part in arguments.names or [""])]
    findings = []
    print(
        _line("attack", "p50", "p99", "max", "calm p99", "max", "MiB", "stall ms", "slowness", "crowding", "verdict"),
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, calm_server(Path(folder) / "calm", arguments.loop) as calm:
        for number, name in enumerate(names):
            place = Path(folder) / str(number)
            finding = attack(name, calm, place, loop=arguments.loop, seconds=arguments.seconds)
            findings.append(finding)
            print(_row(finding, arguments.loop), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([finding.document() for finding in findings], indent=2) + "\n")
    sys.exit(any(_complaints(finding, arguments.loop) for finding in findings))


def _complaints(finding: Finding, loop: str) -> list[str]:
    return finding.complaints(max_stall_ms=None if loop == "uvloop" else STALL_SECONDS * 1e3)


def _row(finding: Finding, loop: str) -> str:
    times = (finding.p50, finding.p99, finding.max, finding.calm_p99, finding.calm_max)
    verdict = "; ".join(_complaints(finding, loop)) or "kept"
    others = (finding.stall_ms, finding.slowness, finding.crowding)
    cells = (*(f"{ms:.1f}" for ms in times), f"{finding.extra_mib:.0f}", *(f"{value:.1f}" for value in others))
    return _line(finding.name, *cells, verdict)


def _line(name: str, *cells: str) -> str:
    return f"| {name:<58} | " + " | ".join(cell.rjust(8) for cell in cells) + " |"


if __name__ == "__main__":
    main()
