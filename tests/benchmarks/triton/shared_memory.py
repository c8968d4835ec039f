"""Triton's client with system shared memory: `python shared_memory.py HOST:PORT NBYTES ROUNDS`.

Runs with a Python that has tritonclient. Asks the server's `identity`, and prints the seconds of each round.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from tritonclient import http
from tritonclient.utils import shared_memory


def main(place: str, nbytes: int, rounds: int) -> None:
    client = http.InferenceServerClient(place)
    names = {"requests": "/streamcodec_requests", "answers": "/streamcodec_answers"}
    regions = {name: shared_memory.create_shared_memory_region(name, key, nbytes) for name, key in names.items()}
    try:
        for name, key in names.items():
            client.register_system_shared_memory(name, key, nbytes)
        shared_memory.set_shared_memory_region(regions["requests"], [np.full(nbytes // 4, 1.5, np.float32)])
        tensor = http.InferInput("x", [nbytes // 4], "FP32")
        tensor.set_shared_memory("requests", nbytes)
        output = http.InferRequestedOutput("x", binary_data=True)
        output.set_shared_memory("answers", nbytes)
        for number in range(rounds + 2):
            began = time.perf_counter()
            client.infer("identity", [tensor], outputs=[output])
            if number > 1:
                print(time.perf_counter() - began)
        answer = shared_memory.get_contents_as_numpy(regions["answers"], np.float32, [nbytes // 4])
        if answer[0] != answer[-1] or answer[0] != np.float32(1.5):
            raise SystemExit("the answer is wrong")
    finally:
        client.unregister_system_shared_memory()
        for region in regions.values():
            shared_memory.destroy_shared_memory_region(region)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
