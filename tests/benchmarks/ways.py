"""Ways of asking: `python -m tests.benchmarks.ways`.

16 floats to `identity` over kept connections, over a new connection for each request, and in a body of one chunk;
refused requests, whose datatype the model does not take, or whose model is not there; and requests for the server's
health and the model's metadata. wrk sends them by 16 connections, the same to both servers, which take turns.

Whoever attacks sends what is refused. So a refusal may cost no more than an answer.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.benchmarks import alone, requests
from tests.benchmarks.beside import Row, compare
from tests.benchmarks.figures import INLINE, Bound, Figures, Options, Scenario, at_least

_PLAIN: Final = requests.floats(64)
_WAYS: Final[dict[str, tuple[bytes, Bound | None]]] = {
    "kept": (_PLAIN, at_least(1.2)),
    "a connection each": (requests.floats(64, fields=[("Connection", "close")]), at_least(0.5)),
    "chunked": (requests.chunked(), at_least(1)),
    "health": (requests.get("/v2/health/ready"), at_least(1)),
    "metadata": (requests.get("/v2/models/identity"), None),
}
_REFUSED: Final = {
    "wrong datatype": _PLAIN.replace(b'"FP32"', b'"INT8"'),
    "unknown model": requests.floats(64, model="nobody"),
}


def rows() -> list[Row]:
    """Return what is measured."""
    answered = [Row(case=case, requests=partial(list, [one]), bound=bound) for case, (one, bound) in _WAYS.items()]
    refused = [
        Row(case=f"refused: {case}", requests=partial(list, [one]), bound=at_least(0.5), is_refused=True)
        for case, one in _REFUSED.items()
    ]
    return [*answered, *refused]


def run(options: Options) -> Figures:
    """Measure."""
    return compare(options, rows(), connections=(16,))


SCENARIO = Scenario(title="Ways of asking", about=__doc__, run=run, served=INLINE, is_wide=True)

if __name__ == "__main__":
    alone.main(SCENARIO)
