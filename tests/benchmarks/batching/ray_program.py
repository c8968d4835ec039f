"""Ray Serve with the model: `python -m tests.benchmarks.batching.ray_program PORT`.

A row comes and goes as the bytes of its values.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from tests.benchmarks.batching.net import MAX_DELAY, MAX_ROWS, Rows, net, row_of


@serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0.1})
class Net:
    """The model."""

    @serve.batch(max_batch_size=MAX_ROWS, batch_wait_timeout_s=MAX_DELAY)  # type: ignore[untyped-decorator]
    async def compute(self, rows: list[Rows]) -> list[Rows]:
        """Compute all rows."""
        return list(net(np.stack(rows)))

    async def __call__(self, request: Request) -> Response:
        """Answer one row."""
        y = await self.compute(row_of(await request.body()))
        return Response(y.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Net.bind())  # type: ignore[attr-defined]  # the decorator makes a deployment
    while True:
        time.sleep(60)
