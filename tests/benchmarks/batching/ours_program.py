"""Our server with the model, with batches and without: `python -m tests.benchmarks.batching.ours_program PORT`."""

from __future__ import annotations

import sys

import numpy as np

from streamcodec.server import run
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry, RowError, Service
from streamcodec.service.models.model import Outputs
from tests.benchmarks.batching.net import MAX_DELAY, MAX_ROWS, net


def predict(request: InferenceRequest) -> Outputs:
    """Compute all rows."""
    return {"y": net(request.inputs["x"])}


def predict_finite(request: InferenceRequest) -> Outputs:
    """Compute all rows, and refuse those that are not finite."""
    x = request.inputs["x"]
    outputs = {"y": net(x)}
    if bad := np.flatnonzero(~np.isfinite(x[:, -1])).tolist():
        raise RowError({row: ValueError("not finite") for row in bad}, outputs)
    return outputs


def main(port: int, max_delay: float) -> None:
    """Serve until the end."""
    batch = Batch(max_rows=MAX_ROWS, max_delay=max_delay)
    models = [
        Model(name="batched", predict=predict, batch=batch),
        Model(name="refusing", predict=predict_finite, batch=batch),
        Model(name="each", predict=predict),
        Model(name="inline", predict=predict, is_inline=True),
    ]
    run(Service(ModelRegistry.of(models)), port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else MAX_DELAY)
