"""Our server with the model, in batches and inline: `python -m tests.benchmarks.batching.ours_program PORT`."""

from __future__ import annotations

import sys

from streamcodec.server import run
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry, Service
from streamcodec.service.models.model import Outputs
from tests.benchmarks.batching.net import MAX_DELAY, MAX_ROWS, net


def predict(request: InferenceRequest) -> Outputs:
    """Compute all rows."""
    return {"y": net(request.inputs["x"])}


def main(port: int, max_delay: float) -> None:
    """Serve until the end."""
    models = [
        Model(name="batched", predict=predict, batch=Batch(max_rows=MAX_ROWS, max_delay=max_delay)),
        Model(name="inline", predict=predict, is_inline=True),
    ]
    run(Service(ModelRegistry.of(models)), port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else MAX_DELAY)
