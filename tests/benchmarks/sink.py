"""The whole server at work: a large tensor sent to the model `sink`, which answers 8 bytes.

What a user waits for who sends a tensor and gets a small result. The client is a raw socket, the same for each server:
it sends bytes that were made beforehand and throws the answer away. Triton's model is a C function that does not touch
the data, so this is its own front end against ours; both go on with a kept connection. KServe takes seconds and is run
once; its answers end with the connection, which is made anew before the clock starts. The bare receiver is no server:
it receives as many bytes into memory that it has from the beginning, and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tests.benchmarks import bare, load
from tests.benchmarks.figures import INLINE, MIB, OURS, Bound, Chart, Figures, Options, Scenario, at_least
from tests.benchmarks.measure import Sample, in_turn, ratios
from tests.benchmarks.peers import KSERVE, TRITON, Running

_SIZES = {"64 MiB": 64 * MIB, "256 MiB": 256 * MIB}
_KSERVE_BYTES = 64 * MIB
NO_BOUNDS: Mapping[str, Bound] = {}


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    servers = [options.peers.ours(), *options.peers.found([TRITON, KSERVE], found.missing)]
    found.name(servers)
    for server in servers:
        load.check(server)
    for case, nbytes in _SIZES.items():
        with bare.receiving("sink", load.message_for(nbytes)) as yardstick:
            samples = compare([*servers, yardstick], "sink", nbytes, rounds=options.choose(21, 5))
        report(found, case, samples, nbytes, bounds={TRITON: at_least(4), bare.BARE: at_least(0.95)})
    found.charts.append(Chart(quantity="time", title="A tensor sent to a model that answers 8 bytes"))
    return found


def compare(servers: Sequence[Running], model: str, nbytes: int, *, rounds: int) -> dict[str, list[Sample]]:
    """Measure one model with one size on each server, in turn; KServe only for what it can do in seconds."""
    message = load.message_for(nbytes)
    with load.senders(servers, model, message) as variants:
        slow = {name: variants.pop(name) for name in (KSERVE,) if name in variants}
        samples = in_turn(variants, rounds)
        if nbytes <= _KSERVE_BYTES:
            samples |= in_turn(slow, 1, warm_up=False)
    return samples


def report(
    found: Figures, case: str, samples: dict[str, list[Sample]], nbytes: int, *, bounds: Mapping[str, Bound] = NO_BOUNDS
) -> None:
    """Report time and CPU of several servers, and the peers' times by ours, some of which have bounds."""
    for name, taken in samples.items():
        found.add(case, "time", name, "s", [sample.wall for sample in taken])
    for name, taken in samples.items():
        found.add(case, "CPU per byte", name, "s/B", [sample.cpu / nbytes for sample in taken])
    ours = [sample.wall for sample in samples[OURS]]
    for name, taken in samples.items():
        same_rounds = ours if len(taken) == len(ours) else [median(ours)] * len(taken)
        times = ratios([sample.wall for sample in taken], same_rounds)
        if name != OURS:
            who = f"{name} / {OURS}"
            found.add(case, "time, ratio", who, "ratio", times, bound=bounds.get(name))


SCENARIO = Scenario(title="Whole server, large tensors in", about=__doc__, run=run, served=INLINE)
