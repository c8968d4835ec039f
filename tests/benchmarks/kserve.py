"""KServe's ModelServer with our decoder and encoder, against the same server without them.

    STREAMCODEC_KSERVE_PYTHON=... python -m tests.benchmarks.kserve [MIB]

Both run at the same time, each in a process of its own, and are asked by turns, by the same client: one tensor of 64
MiB, which is counted (`sink`) or comes back (`identity`), in binary; and small ones of 16 floats. The models are the
same, and know nothing of ours. Times are medians as the client sees them; memory is the server's peak above what it had
before the request.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec.client import Client
from tests.interop.servers.processes import Peer, running
from tests.processes import cpu_clock, forget_peak, peak_resident, resident

_MIB: Final = 1 << 20
_ROUNDS: Final = {"ours": 7, "theirs": 2}
"""KServe takes seconds for one request."""
_SMALL_COUNT: Final = 300
_TIMEOUT: Final = 300.0


@dataclass
class Figures:
    """Of one server with one model."""

    milliseconds: list[float] = field(default_factory=list)
    cpu_milliseconds: list[float] = field(default_factory=list)
    """Of the server."""
    mebibytes: list[float] = field(default_factory=list)
    """More than before the request, at most."""


def measure(peer: Peer, model: str, array: np.ndarray[tuple[int], np.dtype[np.float32]], figures: Figures) -> None:
    """Ask once."""
    pid = peer.process.pid
    clock = cpu_clock(pid)
    with Client(peer.url, timeout=_TIMEOUT) as client:
        forget_peak(pid)
        before = resident(pid)
        began, cpu_began = time.perf_counter(), clock()
        client.infer(model, {"x": array})
        figures.milliseconds.append((time.perf_counter() - began) * 1e3)
        figures.cpu_milliseconds.append((clock() - cpu_began) * 1e3)
        figures.mebibytes.append((peak_resident(pid) - before) / _MIB)


def measure_small(peer: Peer) -> float:
    """Return how many small requests a second one connection gets answered."""
    array = np.zeros(16, np.float32)
    with Client(peer.url) as client:
        client.infer("identity", {"x": array})
        began = time.perf_counter()
        for _ in range(_SMALL_COUNT):
            client.infer("identity", {"x": array})
        return _SMALL_COUNT / (time.perf_counter() - began)


def measure_model(peers: dict[str, Peer], model: str, nbytes: int) -> dict[str, Figures]:
    """Ask both by turns, as often as each may be asked."""
    array = np.arange(nbytes // 4, dtype=np.float32)
    figures = {name: Figures() for name in peers}
    for number in range(max(_ROUNDS.values())):
        for name, peer in peers.items():
            if number < _ROUNDS[name]:
                measure(peer, model, array, figures[name])
    return figures


def line(name: str, figures: dict[str, Figures]) -> str:
    """Return a line of the table: ours, theirs, and how many times as much that is."""
    cells = [name]
    for what in ("milliseconds", "cpu_milliseconds", "mebibytes"):
        # Memory that is used again costs nothing the second time; so it is the first time that counts.
        middle = max if what == "mebibytes" else statistics.median
        ours, theirs = (middle(getattr(figures[peer], what)) for peer in ("ours", "theirs"))
        cells.append(f"{ours:,.0f} / {theirs:,.0f} ({theirs / ours:,.1f})")
    return f"| {' | '.join(cells)} |"


@contextmanager
def both() -> Iterator[dict[str, Peer]]:
    """Run both servers."""
    with ExitStack() as stack:
        peers = {}
        for name in _ROUNDS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "settings.json").write_text(json.dumps({"installs": name == "ours"}))
            peers[name] = stack.enter_context(
                running(os.environ["STREAMCODEC_KSERVE_PYTHON"], "tests.kserve.program", folder)
            )
        for peer in peers.values():
            measure_small(peer)  # all is imported by then
        yield peers


def main(mebibytes: int) -> None:
    """Print the table."""
    print("| model | ms: ours / KServe | CPU ms | MiB |\n| --- | --- | --- | --- |")
    for model in ("sink", "identity"):
        with both() as peers:
            print(line(f"{model}, {mebibytes} MiB", measure_model(peers, model, mebibytes * _MIB)), flush=True)
    with both() as peers:
        small: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(5):
            for name, peer in peers.items():
                small[name].append(measure_small(peer))
    ours, theirs = (statistics.median(small[name]) for name in ("ours", "theirs"))
    print(f"\nsmall requests a second: {ours:,.0f} / {theirs:,.0f} ({ours / theirs:.2f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
