"""Small requests, FP32 to `identity` and back, binary both ways: `python -m tests.benchmarks.vshape`.

The lengths of texts and batches vary, and so do shapes, the header, and all lengths: here among 1, 64, 512 or 4,096
shapes, from 16 floats on. With *new ids*, each request has a new `traceparent` in its HTTP head and a new `id` in its
JSON, as from a client that traces its requests. What a server remembers of earlier requests then helps little or not.

The rows below have 512 shapes, and: the default model, which is a function that the server may run in a thread; one of
200 models, another with each shape; a model of four tensors, of which each request asks for other ones; and heads as
real clients send them.

wrk sends the requests, the same to both servers, which take turns. It has one thread, and shares the machine with the
server that is measured: ours is one process with one thread, Triton may use all cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.benchmarks import alone, requests
from tests.benchmarks.beside import Row, compare
from tests.benchmarks.figures import DEFAULT_TOO, Figures, Options, Scenario, at_least
from tests.benchmarks.heads import HEADS

_COUNTS: Final = (1, 64, 512, 4_096)
_BOUND: Final = at_least(1.2)


def run(options: Options) -> Figures:
    """Measure."""
    return compare(options, rows(), connections=(1, 16))


def rows() -> Iterator[Row]:
    """Yield what is measured."""
    for count in _COUNTS:
        for is_new, words in ((False, ""), (True, ", new ids")):
            case = f"{count:,} shape{'s'[: count > 1]}{words}"
            yield Row(case=case, requests=partial(requests.shapes, count, is_new=is_new), bound=_BOUND)
    for is_new, words in ((False, ""), (True, ", new ids")):
        yield _of_512(f"default model{words}", model=lambda _: "default", is_new=is_new)
    yield _of_512("200 models", model=lambda length: f"m{length % 200:03}")
    yield Row(case="changing outputs", requests=partial(requests.changing_outputs, 512), bound=_BOUND)
    for client, fields in HEADS.items():
        yield _of_512(f"head of {client}", fields=fields)


def _of_512(case: str, **kind: object) -> Row:
    return Row(case=case, requests=partial(requests.shapes, 512, **kind), bound=_BOUND)  # type: ignore[arg-type]


SCENARIO = Scenario(title="Small requests", about=__doc__, run=run, served=DEFAULT_TOO, is_wide=True)

if __name__ == "__main__":
    alone.main(SCENARIO)
