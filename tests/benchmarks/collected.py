"""Scenarios whose measuring stands in files that are also programs of their own: the codec alone, and BYTES."""

from __future__ import annotations

from importlib.metadata import version

from tests.benchmarks import codec
from tests.benchmarks.figures import OURS, Chart, Figures, Options, Scenario, at_most

_OTHER = "tritonclient"
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
    found.charts.append(Chart(quantity=codec.ENCODE, title="One FP32 tensor into a message", is_log=True))
    found.charts.append(Chart(quantity=codec.DECODE, title="One FP32 tensor out of a message", is_log=True))
    return found


CODEC = Scenario(title="Codec alone", about=codec.__doc__, run=run_codec)
