"""A differential by one command: `python -m tests.tritonclient --calls 20000`.

Makes random calls with tritonclient and with ours, blocking and asynchronous, to a server that records. Ends at the
first difference, with the smallest call that shows it; else it prints how the calls have ended.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec

from tests.tritonclient.comparing import compared
from tests.tritonclient.drawing import CALLS


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.tritonclient", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="by each package (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the calls (default: %(default)s)")
    options = parser.parse_args()
    if find_spec("tritonclient") is None:
        sys.exit("tritonclient is not here: pip install 'tritonclient[http]'")
    for kind in ("sync", "aio"):
        began = time.monotonic()
        with compared(kind) as pair:
            for name, drawn in CALLS.items():
                pair.play(name, options.calls * drawn.weight // 200, options.seed)
        calls = sum(count for name, count in pair.seen.items() if name != "the same requests")
        print(f"{kind}: {calls:,} calls by each package, no difference, {time.monotonic() - began:.0f} s")
        for name, count in sorted(pair.seen.items()):
            print(f"    {name}: {count:,}")


if __name__ == "__main__":
    main()
