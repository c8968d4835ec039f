"""What `import streamcodec` costs on top of `import numpy`, which a program has anyway.

Each round is a fresh interpreter with compiled modules. It imports numpy, then streamcodec, and says what the second
took: time by the clock, and memory as it grew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.figures import OURS, Figures, Options, Scenario, at_most

_PROGRAM = """
import json, os, time

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

moments = [(time.perf_counter(), resident())]
import numpy
moments.append((time.perf_counter(), resident()))
import streamcodec
moments.append((time.perf_counter(), resident()))
print(json.dumps([[b - a for a, b in zip(*pair)] for pair in zip(moments, moments[1:])]))
"""


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    cache = options.work / "compiled"
    _import(cache)  # compiles what is not
    rounds = [_import(cache) for _ in range(options.choose(31, 5))]
    for index, name in enumerate(("numpy", OURS)):
        bounds = (at_most(15e-3), at_most(3e6)) if name == OURS else (None, None)
        found.add("import", "time", name, "s", [taken[index][0] for taken in rounds], bound=bounds[0])
        found.add("import", "memory", name, "B", [taken[index][1] for taken in rounds], bound=bounds[1])
    return found


def _import(cache: Path) -> list[list[float]]:
    """Return time and bytes for numpy, and for streamcodec after it."""
    command = [sys.executable, "-c", _PROGRAM]
    settings = os.environ | {"PYTHONPYCACHEPREFIX": str(cache), "PYTHONDONTWRITEBYTECODE": ""}
    output = subprocess.run(command, env=settings, capture_output=True, check=True).stdout
    result: list[list[float]] = json.loads(output)
    return result


SCENARIO = Scenario(title="Import", about=__doc__, run=run)
