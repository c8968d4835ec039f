"""One client in a process of its own: `python -m tests.benchmarks.client_program KIND URL NBYTES ROUNDS`.

KIND is `streamcodec` or `tritonclient`. Sends an FP32 tensor to `identity` so often, after once for nothing, looks at
the answer, and prints one line of JSON: seconds of each round, and the peak of memory above what the process had when
the tensor was there and nothing had been sent.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.processes import forget_peak, peak_resident, resident

_Array = np.ndarray[Any, Any]


def ours(url: str, tensor: _Array) -> Callable[[], _Array]:
    """Return one call of our client."""
    from streamcodec.client import Client  # noqa: PLC0415 - memory and time of the other client shall not be ours

    client = Client(url)
    return lambda: client.infer("identity", {"x": tensor})["x"]


def tritonclient(url: str, tensor: _Array) -> Callable[[], _Array]:
    """Return one call of tritonclient, as its documentation has it."""
    from tritonclient import http  # noqa: PLC0415 - memory and time of the other client shall not be its

    client = http.InferenceServerClient(url.removeprefix("http://"), network_timeout=60.0)

    def call() -> _Array:
        given = http.InferInput("x", list(tensor.shape), "FP32")
        given.set_data_from_numpy(tensor)
        array: _Array = client.infer("identity", [given]).as_numpy("x")
        return array

    return call


def main(kind: str, url: str, nbytes: int, rounds: int) -> None:
    """Measure and print."""
    tensor = np.full(nbytes // 4, 1.5, np.float32)
    call = {"streamcodec": ours, "tritonclient": tritonclient}[kind](url, tensor)
    call()
    gc.collect()
    pid = os.getpid()
    idle = resident(pid)
    forget_peak(pid)
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        answer = call()
        seconds.append(time.perf_counter() - began)
        if answer[0] != tensor[0] or answer[-1] != tensor[-1] or answer.shape != tensor.shape:
            sys.exit("the tensor came back changed")
        del answer
    print(json.dumps({"seconds": seconds, "peak": peak_resident(pid) - idle}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
