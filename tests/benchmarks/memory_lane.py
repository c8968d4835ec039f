"""The memory lane next to the socket, and to the system shared memory of Triton's client and server.

    python -m tests.benchmarks.memory_lane

A tensor of 256 MiB there and back, in memory that is used again. Our server is a process of its own, and each way is
asked by turns in one run. *Returned* is a model that answers with its input: nothing is moved in the lane. *Written* is
one that answers with other memory of its own, which the server copies once. The client does not touch the values.

With `STREAMCODEC_TRITON_PYTHON`, a Python that has `pytriton` and `tritonclient`, Triton's identity is asked the same
way, with regions that are registered before; its server copies the input to the output.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np

from streamcodec.client import Client, MemoryLane
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from tests.benchmarks.peers import TRITON, Peers
from tests.processes import announced

_ROOT: Final = Path(__file__).parents[2]
_NBYTES: Final = 256 << 20
_ROUNDS: Final = 9
_ANSWER: Final[list[np.ndarray[tuple[int], np.dtype[np.float32]]]] = []


def _written(request: InferenceRequest) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    if not _ANSWER:
        _ANSWER.append(np.ones(request.inputs["x"].shape, np.float32))
    return {"x": _ANSWER[0]}


def models() -> ModelRegistry:
    """The models that are asked."""
    return ModelRegistry.of(
        [
            Model(name="returned", predict=lambda request: {"x": request.inputs["x"]}, shared_inputs=True),
            Model(name="copied", predict=lambda request: {"x": request.inputs["x"]}),
            Model(name="written", predict=_written, shared_inputs=True),
        ]
    )


def main() -> None:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "streamcodec", "serve", "tests.benchmarks.memory_lane:models"]
        command += ["--no-access-log", "--uds", f"{folder}/s", "--memory-lane", "2G", "--max-memory", "8G"]
        with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                announced(process.stdout or ())
                _compare(f"http+unix://{quote(folder, safe='')}%2Fs")
            finally:
                process.kill()


def _compare(url: str) -> None:
    lane = MemoryLane(request_bytes=_NBYTES, answer_bytes=_NBYTES)
    x = lane.empty(_NBYTES // 4, np.float32)
    x[:] = 1.5
    out = np.empty_like(x)
    with Client(url, memory_lane=lane) as shared, Client(url) as plain:

        def ask(client: Client, model: str) -> Callable[[], object]:
            if client is shared:
                return lambda: client.infer(model, {"x": x})
            return lambda: client.infer(model, {"x": x}, out={"x": out})

        began = time.perf_counter()
        ask(shared, "returned")()
        first = time.perf_counter() - began
        ways = {
            "lane, returned": ask(shared, "returned"),
            "lane, written by the model elsewhere": ask(shared, "written"),
            "lane, inputs copied for the model": ask(shared, "copied"),
            "Unix socket, into an array of the client": ask(plain, "copied"),
            "one copy within a process": lambda: np.copyto(out, x),
        }
        found = _rounds(ways)
    print("| 256 MiB there and back | ms, median | least | most |\n| --- | --- | --- | --- |")
    print(f"| lane, the very first request with its opening | {first * 1e3:.1f} | | |")
    for name, seconds in found.items():
        _print(name, seconds)
    _compare_triton()


def _rounds(ways: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(_ROUNDS + 2):
        for name, ask in sorted(ways.items(), reverse=bool(number % 2)):
            began = time.perf_counter()
            ask()
            if number > 1:  # memory is used again only then
                found[name].append(time.perf_counter() - began)
    return found


def _print(name: str, seconds: list[float]) -> None:
    print(f"| {name} | {statistics.median(seconds) * 1e3:.1f} | {min(seconds) * 1e3:.1f} | {max(seconds) * 1e3:.1f} |")


def _compare_triton() -> None:
    """Ask Triton, which copies the input to the output."""
    with tempfile.TemporaryDirectory() as folder, Peers(Path(folder)) as peers:
        missing: list[str] = []
        for triton in peers.found([TRITON], missing):
            program = Path(__file__).parent / "triton" / "shared_memory.py"
            command = [os.environ["STREAMCODEC_TRITON_PYTHON"], str(program), f"{triton.host}:{triton.port}"]
            answer = subprocess.run(
                [*command, str(_NBYTES), str(_ROUNDS)], check=True, stdout=subprocess.PIPE, text=True
            )
            _print(f"Triton {triton.version}, system shared memory", [*map(float, answer.stdout.split())])
        print(*missing, sep="\n", end="")


if __name__ == "__main__":
    main()
