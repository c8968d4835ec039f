"""A soak in little memory by one command: `python -m tests.soak.memory --seconds 150`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from random import Random

from tests.soak.memory.cells import HEAD, KINDS, ROOT, Cell, measure
from tests.soak.memory.requests import catalogue, tiny

_DESCRIPTION = """\
Serve in little memory, under random load of tensors, gzip, JSON, BYTES, windows, and what is hostile, and count what is
answered, refused, wrong, and how often the server is killed. Prints a table; ends with status 1 if an answer was wrong,
or a server was killed. Groups need the superuser and version 1.
"""


def main() -> None:
    """Measure each cell."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.memory", description=_DESCRIPTION)
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[64, 96, 128, 192], help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=150, help="for each cell (default: %(default)s)")
    parser.add_argument("--kind", choices=KINDS, default="group", help="of limit (default: %(default)s)")
    parser.add_argument("--options", nargs="+", default=["", "--small"], help="of serve; a cell for each text")
    parser.add_argument("--connections", type=int, default=12, help="at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose server is measured (default: this)")
    arguments = parser.parse_args()
    requests, small = catalogue(Random(arguments.seed)), tiny()  # noqa: S311 - to be the same again
    print(HEAD)
    is_kept = True
    for mebibytes in arguments.mebibytes:
        for text in arguments.options:
            cell = Cell(
                mebibytes=mebibytes,
                seconds=arguments.seconds,
                kind=arguments.kind,
                options=tuple(shlex.split(text)),
                connections=arguments.connections,
                seed=arguments.seed,
                checkout=arguments.checkout,
            )
            found = measure(cell, requests, small)
            print(found.row(cell), flush=True)
            sys.stderr.write(f"{dict(sorted(found.counts.items()))}\n{dict(found.broken)}\n{found.said[-2000:]}\n")
            is_kept = is_kept and not found.kills and not found.counts["wrong"]
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
