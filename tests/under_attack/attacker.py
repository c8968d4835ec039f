"""Attacker: a process that carries out one attack, from when a line comes until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from tests.under_attack.acts import Address, perform
from tests.under_attack.attacks import ATTACKS

_ROOT = Path(__file__).parents[2]


def main() -> None:
    """Attack."""
    parser = argparse.ArgumentParser(prog="python -m tests.under_attack.attacker")
    parser.add_argument("--address", type=json.loads, required=True)
    parser.add_argument("--name", choices=ATTACKS, required=True)
    arguments = parser.parse_args()
    attack = ATTACKS[arguments.name]
    acts = attack.make()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("ready", flush=True)
    sys.stdin.readline()
    host, port = arguments.address

    async def attack_at_once() -> None:
        await asyncio.gather(*(perform((host, port), act) for act in islice(cycle(acts), attack.connections)))

    asyncio.run(attack_at_once())


class Attacker:
    """The process, as who started it sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextmanager
def attacker_process(address: Address, name: str) -> Iterator[Attacker]:
    """Have an attack ready, until the block ends."""
    command = [sys.executable, "-m", "tests.under_attack.attacker", "--address", json.dumps(address), "--name", name]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the attacker has crashed"
            yield Attacker(process)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
