"""PyTriton with the model, and its dynamic batcher.

`python -m tests.benchmarks.batching.pytriton_program PORT VALUES`, with nvidia-pytriton.
"""

from __future__ import annotations

import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from tests.benchmarks.batching.net import MAX_DELAY, MAX_ROWS, WIDTH, Rows, net


@batch  # type: ignore[untyped-decorator]  # PyTriton's
def infer(x: Rows) -> dict[str, Rows]:
    """Compute all rows."""
    return {"y": net(x)}


def main(port: int, values: int) -> None:
    """Serve until the end."""
    local = {"http_address": "127.0.0.1", "grpc_address": "127.0.0.1"}
    config = TritonConfig(http_port=port, grpc_port=port + 1, metrics_port=port + 2, log_verbose=0, **local)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="batched",
            infer_func=infer,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(values,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(WIDTH,))],
            config=ModelConfig(
                max_batch_size=MAX_ROWS, batcher=DynamicBatcher(max_queue_delay_microseconds=int(MAX_DELAY * 1e6))
            ),
        )
        triton.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
