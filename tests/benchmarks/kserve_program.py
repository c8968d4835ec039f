"""A KServe ModelServer with `identity` and `sink`: `python -m tests.benchmarks.kserve_program DIRECTORY PORT`.

Runs with the Python of KServe's own environment. DIRECTORY is not used.
"""

from __future__ import annotations

import sys

import numpy as np
from kserve import InferOutput, InferRequest

from tests.interop.servers.kserve_program import Identity, output, serve


class _Sink(Identity):
    def _outputs(self, payload: InferRequest) -> list[InferOutput]:
        sizes = [tensor.as_numpy().nbytes for tensor in payload.inputs]
        return [output("COUNT", "INT64", np.array([sum(sizes)]))]


if __name__ == "__main__":
    serve([Identity("identity"), _Sink("sink")], int(sys.argv[2]))
