"""Imports: what a program takes that has imported a part, and done nothing yet. `python -m tests.devices.imports`.

Each figure is the median of fresh interpreters, one of each part in turn, whose modules are compiled. Time is the
processor's, for the import alone, and memory is the most that has been resident.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_ROUNDS: Final = 11
PARTS: Final = {
    "an interpreter": "pass",
    "`streamcodec`": "import streamcodec",
    "`streamcodec.http`": "import streamcodec.http",
    "`streamcodec.formats.frame`": "import streamcodec.formats.frame",
    "`streamcodec.client`": "import streamcodec.client",
    "`frames_forward.py`": "import frames_forward",
}
_PROGRAM: Final = """
import sys, time
start = time.process_time()
{part}
seconds = time.process_time() - start
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
print(f"[{{seconds * 1e3}}, {{peak / 1024}}, {{int('numpy' in sys.modules)}}]")
"""


def measured(part: str, root: Path = ROOT) -> tuple[float, float, bool]:
    """Return the milliseconds of an import, the MiB of its process, and whether it has imported numpy."""
    settings = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'docs' / 'examples'}"}
    command = [sys.executable, "-P", "-c", _PROGRAM.format(part=part)]
    printed = subprocess.run(command, env=settings, capture_output=True, check=True).stdout
    milliseconds, mebibytes, has_numpy = json.loads(printed)
    return milliseconds, mebibytes, bool(has_numpy)


def main() -> None:
    """Print a table."""
    rounds = [{name: measured(part) for name, part in PARTS.items()} for _ in range(_ROUNDS)]
    sys.stdout.write("| imported | CPU time, ms | memory, MiB | numpy |\n| --- | --- | --- | --- |\n")
    for name in PARTS:
        times, peaks, numpy = zip(*(found[name] for found in rounds), strict=True)
        told = "yes" if numpy[0] else "no"
        sys.stdout.write(f"| {name} | {median(times):.0f} | {median(peaks):.1f} | {told} |\n")


if __name__ == "__main__":
    main()
