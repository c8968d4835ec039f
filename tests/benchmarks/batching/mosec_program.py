"""mosec with the model: `python -m tests.benchmarks.batching.mosec_program --port PORT --address 127.0.0.1`.

A row comes and goes as the bytes of its values.
"""

from __future__ import annotations

import numpy as np
from mosec import Server, Worker

from tests.benchmarks.batching.net import MAX_DELAY, MAX_ROWS, Rows, net, row_of


class Net(Worker):  # type: ignore[misc]  # it has no types
    """The model."""

    def deserialize(self, data: bytes) -> Rows:
        """Return the row of a request."""
        return row_of(data)

    def serialize(self, data: Rows) -> bytes:
        """Return the answer of a row."""
        return bytes(data.tobytes())

    def forward(self, data: list[Rows]) -> list[Rows]:
        """Compute all rows."""
        return list(net(np.stack(data)))


if __name__ == "__main__":
    server = Server()
    server.append_worker(Net, max_batch_size=MAX_ROWS, max_wait_time=int(MAX_DELAY * 1e3))
    server.run()
