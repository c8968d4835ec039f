"""PyTriton's `ModelClient`, as a program for the Python of an environment that has nvidia-pytriton.

`pytriton_script.py URL MODEL ROWS` sends batches of 1 to ROWS rows of four values, and prints what came back as JSON.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from pytriton.client import ModelClient


def main(url: str, model: str, rows: int) -> None:
    with ModelClient(url, model) as client:
        batches = [np.full((count, 4), count, np.float32) for count in range(1, rows + 1)]
        found = {
            "max_batch_size": client.model_config.max_batch_size,
            "batches": [client.infer_batch(x)["y"].tolist() for x in batches],
            "sample": client.infer_sample(batches[0][0])["y"].tolist(),
        }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
