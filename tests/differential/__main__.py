"""Long runs: `python -m tests.differential --examples 2000 --front uvicorn --front asyncio`.

Prints a line for each way in, and each kind of difference with the first history that has shown it, without the steps
that it does not need. The status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import suppress
from dataclasses import replace
from time import process_time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.fronts import FRONTS, front_of
from tests.differential.machine import Finding, Machine, Script, scripts


def explore(machine: Machine, count: int, start: int) -> dict[str, tuple[int, Finding, Script]]:
    """Play so many histories; return by kind of finding which history has shown it first, and the finding itself."""
    found: dict[str, tuple[int, Finding, Script]] = {}

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(scripts(machine.front))
    def play(script: Script) -> None:
        try:
            machine.play(script)
        except Finding as finding:
            found.setdefault(type(finding).__name__, (machine.count["histories"], finding, script))

    play()
    return found


def shortest(machine: Machine, kind: str, script: Script) -> Script:
    """Leave out each step without which a history shows the same."""
    for index in reversed(range(len(script.steps))):
        shorter = replace(script, steps=script.steps[:index] + script.steps[index + 1 :])
        try:
            machine.play(shorter)
        except Finding as finding:
            if type(finding).__name__ == kind:
                script = shorter
    return script


def main() -> int:
    """Explore the chosen ways in, or all; return the status."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential")
    parser.add_argument("--examples", type=int, default=1000, help="histories for each way in (default: %(default)s)")
    parser.add_argument("--front", action="append", metavar="NAME", help=f"of {', '.join(FRONTS)}; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: %(default)s)")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # some models fail on purpose
    findings = 0
    for name in arguments.front or FRONTS:
        with front_of(name) as front:
            began, machine = process_time(), Machine(front)
            found = explore(machine, arguments.examples, arguments.seed)
            numbers = ", ".join(f"{number} {what}" for what, number in machine.count.items())
            print(f"{name}: {numbers}, {process_time() - began:.1f} s of CPU, {len(found)} findings", flush=True)
            for kind, (number, finding, script) in found.items():
                print(f"\n  history {number}: {finding}\n  {shortest(machine, kind, script)}\n", flush=True)
            findings += len(found)
    return int(findings > 0)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
