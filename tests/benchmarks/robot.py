"""A robot and its policy: 50 times a second three camera images and a state go out, and an action comes back.

    python -m tests.benchmarks.robot

The images are UINT8 [224, 224, 3], the state is FP32 [32], the action FP32 [16, 7]. Both programs are on this machine,
each a process of its own, and connected by a Unix socket or a WebSocket. The same program runs with frames, with
msgpack-numpy, and with pickle, which must not be used with a peer that is not trusted. Over a Unix socket, these two
have the length before each message. Over a WebSocket, all of them have fragments of 128 KiB.

Latencies are those of the robot, from the first byte of the request to the arrays of the answer. Their percentiles need
a machine at rest. CPU is per request. Memory is the peak of a process, above that of a Python that has imported
nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
CODECS: Final = {"frames": "streamcodec", "msgpack-numpy": "msgpack_numpy", "pickle": "pickle"}
"""The codecs, and the module that each of them needs."""
TRANSPORTS: Final = ("Unix socket", "WebSocket")


def measured(transport: str, codec: str, count: int) -> dict[str, Any]:
    """Run both programs; return their figures."""
    command = [sys.executable, "-m", "tests.benchmarks.robot_program"]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "s"))
        policy = [*command, "policy", transport, codec, path, "0"]
        with subprocess.Popen(policy, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                output = iter(process.stdout or ())
                robot = [*command, "robot", transport, codec, next(output).strip(), str(count)]
                asked = json.loads(subprocess.check_output(robot, cwd=_ROOT, text=True, timeout=60 + count))
                answered = json.loads(next(output))
            finally:
                process.kill()
    return {"robot": asked, "policy": answered}


def bare_bytes() -> int:
    """Return the peak of a Python that has imported nothing."""
    script = "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])"
    return int(subprocess.check_output([sys.executable, "-c", script])) << 10


def row(found: dict[str, Any], bare: int) -> list[str]:
    """Return the cells of a table."""
    latencies = found["robot"]["latencies"]
    count = len(latencies)
    percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
    times = [percentiles[49], percentiles[98], max(latencies), found["robot"]["cpu"] / count]
    times.append(found["policy"]["cpu"] / count)
    peaks = [found[side]["peak"] - bare for side in ("robot", "policy")]
    return [*(f"{1e3 * value:.2f} ms" for value in times), *(f"{peak / 2**20:.1f} MiB" for peak in peaks)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500, help="requests of each run")
    count = parser.parse_args(arguments).count
    print("| link | codec | median | 99th percentile | longest | CPU, robot | CPU, policy | robot | policy |")
    print("|" + " --- |" * 9)
    for transport in TRANSPORTS:
        for codec, module in CODECS.items():
            if importlib.util.find_spec(module) is None:
                print(f"| {transport} | {codec} is not installed |")
                continue
            cells = row(measured(transport, codec, count), bare_bytes())
            print(f"| {transport} | {codec} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
