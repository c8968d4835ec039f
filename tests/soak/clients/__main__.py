"""The soak by one command: see `tests.soak.clients`."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.soak.clients.calling import KINDS
from tests.soak.clients.soaking import soaked


def main() -> None:
    """Soak all kinds of clients at once, each with a server of its own; end with status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.clients", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="of calls (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what the servers do (default: %(default)s)")
    options = parser.parse_args()
    with ThreadPoolExecutor(len(KINDS)) as pool:
        reports = [*pool.map(lambda kind: soaked(kind, options.seconds, options.seed), KINDS)]
    for report in reports:
        print(report.table())
    sys.exit(0 if all(report.is_kept for report in reports) else 1)


if __name__ == "__main__":
    main()
