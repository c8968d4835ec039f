"""Kinds of small requests: `python -m tests.benchmarks.kinds`.

Tensors as JSON and texts, as most users of KServe and of embeddings send them; 20 tensors; an answer as JSON; and 4 KiB
in a compressed request, whose answer is not compressed. JSON has 16 floats, a text 20 to 420 characters. Where values
are *new*, and in each text, there is a number that no request before had. The 20 tensors, and what is answered as JSON,
come with new ids. wrk sends them, the same to both servers, which take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.benchmarks import alone, requests
from tests.benchmarks.beside import Row, compare
from tests.benchmarks.figures import INLINE, Bound, Figures, Options, Scenario, at_least

_BOUND: Final = at_least(1)
_KINDS: Final[dict[str, tuple[Callable[[], list[bytes]], Bound]]] = {
    "JSON, always the same": (partial(requests.json_floats, is_same=True), _BOUND),
    "JSON, new values": (partial(requests.json_floats, is_same=False), _BOUND),
    "a text as JSON": (requests.json_texts, _BOUND),
    "a text as binary BYTES": (requests.binary_texts, _BOUND),
    "20 tensors, binary": (requests.many_tensors, _BOUND),
    "binary in, JSON out": (requests.json_answers, _BOUND),
    "4 KiB, gzip": (requests.compressed, at_least(1 / 1.2)),
}


def rows() -> list[Row]:
    """Return what is measured."""
    return [Row(case=case, requests=make, bound=bound) for case, (make, bound) in _KINDS.items()]


def run(options: Options) -> Figures:
    """Measure."""
    return compare(options, rows(), connections=(1, 16))


SCENARIO = Scenario(title="Kinds of requests", about=__doc__, run=run, served=INLINE, is_wide=True)

if __name__ == "__main__":
    alone.main(SCENARIO)
