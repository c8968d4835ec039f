"""Scenarios whose measuring stands in files that are also programs of their own: the codec alone, and BYTES."""

from __future__ import annotations

from importlib.metadata import version

from tests.benchmarks import codec, elements
from tests.benchmarks.figures import OURS, Chart, Figures, Options, Scenario, at_least, at_most

_OTHER = "tritonclient"
_ELEMENTS_ASKED_FOR = "32 bytes"
_CODEC_BOUNDS = {codec.ENCODE: at_most(4e-6), codec.DECODE: at_most(10e-6)}


def run_codec(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    for time in codec.measure_codec(rounds=options.choose(31, 5)):
        who, act = (_OTHER, time.act.removeprefix(f"{_OTHER}, ")) if time.act.startswith(_OTHER) else (OURS, time.act)
        if act == codec.LEAST:
            who, act = act, codec.DECODE
        bound = _CODEC_BOUNDS.get(act) if who == OURS else None
        found.add(time.size, act, who, "s", [sample.wall for sample in time.samples], bound=bound)
    if any(figure.who == _OTHER for figure in found.figures):
        found.versions[_OTHER] = version(_OTHER)
    else:
        found.missing.append(codec.MISSING)
    found.charts.append(Chart(quantity=codec.ENCODE, title="One FP32 tensor into a message"))
    found.charts.append(Chart(quantity=codec.DECODE, title="One FP32 tensor out of a message"))
    return found


def run_elements(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    times = elements.measure_elements(rounds=options.choose(15, 3))
    faster = elements.speeds(times)
    for time in times:
        case = f"{time.act}, {time.lengths}"
        found.add(case, "rate", time.who, "B/s", time.rates)
        speed = faster.get((time.lengths, time.act)) if time.who == OURS else None
        if speed:
            wanted = elements.WANTED.get(time.act) if time.lengths == _ELEMENTS_ASKED_FOR else None
            bound = None if wanted is None else at_least(wanted)
            found.add(case, "rate, ratio", f"{OURS} / {_OTHER}", "ratio", speed, bound=bound)
    if faster:
        found.versions[_OTHER] = version(_OTHER)
    else:
        found.missing.append(elements.MISSING)
    found.charts.append(Chart(quantity="rate", title="BYTES: payloads by CPU time"))
    return found


CODEC = Scenario(title="Codec alone", about=codec.__doc__, run=run_codec)
ELEMENTS = Scenario(title="BYTES", about=elements.__doc__, run=run_elements)
