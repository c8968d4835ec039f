"""Prints the cost of each field of a head x each kind of value, in milliseconds of processor time.

Usage: `python -m tests.headcosts [door ...]`. It ends with status 1 if one is beyond the bound.
"""

from __future__ import annotations

import sys

from tests.cputime import cpu_seconds
from tests.headcosts.costs import BOUND, BOUND_SECONDS, Row, beyond, rows
from tests.headcosts.doors import ANSWER_DOORS, REQUEST_DOORS
from tests.headcosts.heads import KINDS, SIZES, UNKNOWN


def _print_table(found: list[Row]) -> None:
    print(f"{'':32}" + " ".join(f"{kind:>7}" for kind in KINDS))
    for row in found:
        costs = (f"{row.costs[kind] * 1e3:7.2f}" if kind in row.costs else f"{'-':>7}" for kind in KINDS)
        print(f"{row.field:32}" + " ".join(costs))


def main(doors: list[str]) -> int:
    """Print the tables, and what is beyond the bound."""
    wrong = []
    for door in doors or [*REQUEST_DOORS, *ANSWER_DOORS]:
        for nbytes in SIZES:
            found = rows(door, nbytes, cpu_seconds)
            print(f"\n{door}: values of {nbytes} bytes, milliseconds\n")
            _print_table(found)
            dearest = max(max(row.costs.values()) for row in found[1:])
            print(f"\ndearest {dearest * 1e3:.2f} ms, {UNKNOWN} at most {max(found[0].costs.values()) * 1e3:.2f} ms")
            wrong += [words for row in found[1:] for words in beyond(row, found[0], BOUND_SECONDS)]
    print(f"\nbound: {BOUND} times {UNKNOWN} of the same size and kind, and {BOUND_SECONDS * 1e3} ms")
    print("\n".join(wrong) or "nothing is beyond it")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
