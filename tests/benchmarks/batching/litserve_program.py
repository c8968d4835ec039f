"""LitServe with the model: `python -m tests.benchmarks.batching.litserve_program PORT`.

It reads JSON or forms. A row comes and goes as the base64 of its values, which takes less than a list of numbers.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode

import litserve
import numpy as np

from tests.benchmarks.batching.net import MAX_DELAY, MAX_ROWS, Rows, net, row_of


class Api(litserve.LitAPI):  # type: ignore[misc]  # it has no types
    """The model."""

    def setup(self, device: str) -> None:
        """Prepare nothing."""

    def decode_request(self, request: dict[str, str]) -> Rows:
        """Return the row."""
        return row_of(b64decode(request["x"]))

    def batch(self, inputs: list[Rows]) -> Rows:
        """Put rows together."""
        return np.stack(inputs)

    def predict(self, x: Rows) -> Rows:
        """Compute all rows."""
        return net(x)

    def unbatch(self, output: Rows) -> list[Rows]:
        """Take rows apart."""
        return list(output)

    def encode_response(self, output: Rows) -> dict[str, str]:
        """Return the answer of a row."""
        return {"y": b64encode(output.tobytes()).decode()}


if __name__ == "__main__":
    api = Api(max_batch_size=MAX_ROWS, batch_timeout=MAX_DELAY)
    litserve.LitServer(api, accelerator="cpu", timeout=60).run(
        host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False
    )
