"""There and back: a tensor sent to the model `identity`, which answers it.

600 KB is an image of 224 x 224 pixels in three channels. The client is the raw socket of the scenario above. Triton's
model copies the tensor once, in C, into memory that Triton gives it, which is the least that it can do; ours answers
the very array that it was given.
"""

from __future__ import annotations

from tests.benchmarks import load
from tests.benchmarks.figures import INLINE, MIB, Chart, Figures, Options, Scenario
from tests.benchmarks.peers import KSERVE, TRITON
from tests.benchmarks.sink import compare, report


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    servers = [options.peers.ours(), *options.peers.found([TRITON, KSERVE], found.missing)]
    found.name(servers)
    for server in servers:
        load.check(server)
    for case, (nbytes, rounds) in {"600 KB": (602_112, (101, 11)), "64 MiB": (64 * MIB, (21, 5))}.items():
        samples = compare(servers, "identity", nbytes, rounds=options.choose(*rounds))
        report(found, case, samples, nbytes)
    found.charts.append(Chart(quantity="time", title="A tensor there and back"))
    return found


SCENARIO = Scenario(title="Whole server, there and back", about=__doc__, run=run, served=INLINE)
