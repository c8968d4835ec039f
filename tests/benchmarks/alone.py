"""One scenario by itself: `python -m tests.benchmarks.NAME` prints its table as Markdown, and leaves the page alone."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.comparing import asked_for, table_by_case
from tests.benchmarks.figures import Options, Scenario
from tests.benchmarks.peers import Peers


def main(scenario: Scenario) -> None:
    """Measure, and print; end with status 1 if a bound is missed.

    What cannot be measured, because wrk or a peer is not here, is named, with the command that brings it.
    """
    parser = argparse.ArgumentParser(description=scenario.about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    is_quick = parser.parse_args().quick
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that no server is left behind
    with tempfile.TemporaryDirectory() as work, Peers(Path(work)) as peers:
        found = scenario.run(Options(peers=peers, work=Path(work), is_quick=is_quick))
    if found.figures:
        print("\n".join(table_by_case(found.figures)))
    print("\n".join(["", f"Models: {scenario.served}.", *(f"Not measured: {reason}" for reason in found.missing)]))
    missed = [f"{figure.case}: {asked_for(figure)}" for figure in found.figures if not figure.is_reached]
    if missed:
        sys.exit("\n".join(["", f"missed {len(missed)}:", *missed]))
