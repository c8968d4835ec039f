"""Memory of a server while it serves one large request, above what it has when idle.

Each round is a fresh server process. One small request comes first, so that what is loaded at the first use is there;
then the peak is reset, the large request is sent, and the peak is read when it has been answered. The system counts
(`VmHWM`), so buffers in the interpreter, in numpy and in C all show.

The model that takes *windows* is given 1 MiB of rows at a time and adds them up. What it is sent is never whole
anywhere: the client sends the same MiB over and over.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from streamcodec import EncodedMessage, Rows, Tensor, encode_request
from tests.benchmarks import load
from tests.benchmarks.figures import INLINE, MIB, OURS, Bound, Chart, Figures, Options, Scenario, at_most
from tests.benchmarks.peers import KSERVE, TRITON, Missing
from tests.processes import forget_peak, peak_resident, resident

_GIB: Final = 1 << 30
_PIECE: Final = np.full(MIB // 4, 1.5, np.float32)
_SMALL_BYTES: Final = 4096
_QUANTITY: Final = "peak above idle"


@dataclass(frozen=True, slots=True)
class _Case:
    """One server and one request."""

    who: str
    model: str
    nbytes: int
    rounds: int
    bound: Bound | None = None

    @property
    def name(self) -> str:
        """Model and size, for the page."""
        size = f"{self.nbytes // _GIB} GiB" if self.nbytes >= _GIB else f"{self.nbytes // MIB} MiB"
        return f"`{self.model}`, {size}"


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    for case in _cases(options):
        try:
            peaks = [_peak(options, found, case) for _ in range(case.rounds)]
        except Missing as reason:
            found.missing.append(str(reason))
            continue
        found.add(case.name, _QUANTITY, case.who, "B", peaks, bound=case.bound)
    found.missing = list(dict.fromkeys(found.missing))
    found.charts.append(Chart(quantity=_QUANTITY, title="Memory of the server for one request"))
    return found


def _cases(options: Options) -> Iterator[_Case]:
    rounds = options.choose(5, 2)
    for model in ("sink", "identity"):
        yield _Case(OURS, model, 256 * MIB, rounds, at_most(257 * MIB))
        yield _Case(TRITON, model, 256 * MIB, min(3, rounds))
        yield _Case(KSERVE, model, 64 * MIB, 1)
    for nbytes in (64 * MIB, options.choose(8 * _GIB, _GIB)):
        yield _Case(OURS, "windows", nbytes, rounds, at_most(4 * MIB))


def _peak(options: Options, found: Figures, case: _Case) -> int:
    """Start a server, send it a request, and return its peak above idle."""
    peers = options.peers
    starting = peers.fresh_ours() if case.who == OURS else peers.fresh(case.who)
    with starting as server, closing(load.Connection(server)) as connection:
        found.name([server])
        load.check(server)
        connection.timed(load.request_to(server, case.model, load.message_for(_SMALL_BYTES)))
        idle = resident(server.pid)
        forget_peak(server.pid)
        connection.timed(load.request_to(server, case.model, _repeated(case.nbytes)))
        return max(0, peak_resident(server.pid) - idle)


def _repeated(nbytes: int) -> EncodedMessage:
    """Return a request with a tensor of so many MiB, which are made while it is sent."""
    windows = _Repeated(nbytes // MIB)
    rows = Rows("FP32", (nbytes // 4,), windows)
    return encode_request([Tensor(name="x", array=rows)], parameters={"binary_data_output": True})


class _Repeated(Iterable[np.ndarray[Any, Any]]):
    """The same MiB so many times."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Any:  # noqa: ANN401 - an iterator of arrays
        return itertools.repeat(_PIECE, self._count)


SCENARIO = Scenario(
    title="Memory of the server", about=__doc__, run=run, served=f"windows where it says so, else {INLINE}"
)
