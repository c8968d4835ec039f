"""Messages made to cost as much as possible: what four times as many bytes cost.

Each attack aims at one place where work could grow faster than the message: `tests/attacks.py` says which. The receiver
is a decoder, or a server's connection, in this process; nothing but its CPU time counts. Where the ratio is near 4, the
time is linear: whatever a peer sends, it pays for it in bytes. What grows with the square of the bytes would show 16.

The garbage collector is off meanwhile, as in `timeit`: when it goes through all objects depends on those of the whole
process. It does so each time that their number has grown by a quarter, so it takes a constant time for each, too.

The tests count calls in the same attacks, so that a release that makes more of them is noticed. Work within one call
shows here only.
"""

from __future__ import annotations

import gc
from typing import Final

from tests.attacks import ATTACKS, Attack
from tests.benchmarks.figures import OURS, Figures, Options, Scenario, at_most
from tests.benchmarks.measure import in_turn, ratios, timed

_SCALE: Final = 16
_GROWTH: Final = 4
_BOUND: Final = at_most(6)


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    for name, attack in ATTACKS.items():
        _measure(found, name, attack, options.choose(5, 2))
    return found


def _measure(found: Figures, name: str, attack: Attack, rounds: int) -> None:
    (nbytes, small), (_, large) = attack(_SCALE), attack(_GROWTH * _SCALE)
    gc.collect()
    gc.disable()
    try:
        taken = in_turn({"small": lambda: timed(small).cpu, "large": lambda: timed(large).cpu}, rounds)
    finally:
        gc.enable()
    found.add(name, "CPU per byte", OURS, "s/B", [seconds / nbytes for seconds in taken["small"]])
    # The quickest of each: what else happens on the machine only adds, and most to the shorter one.
    growth = ratios([min(taken["large"])], [min(taken["small"])])
    found.add(name, f"CPU, {_GROWTH} times the bytes", OURS, "ratio", growth, bound=_BOUND)


SCENARIO = Scenario(title="Attacks", about=__doc__, run=run)
