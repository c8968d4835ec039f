"""One client in a process of its own: `python -m tests.benchmarks.client_program KIND URL NBYTES ROUNDS`.

KIND is a name of `CLIENTS`. Sends an FP32 tensor to `identity` so often, after once for nothing, looks at
the answer, and prints one line of JSON: seconds of each round, and the peak of memory above what the process had when
the tensor was there and nothing had been sent.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from tests.processes import forget_peak, peak_resident, resident

MOST_CONNECTIONS: Final = 64
_Array = np.ndarray[Any, Any]


def ours(address: str) -> Callable[[_Array], _Array]:
    """Return a call of our client."""
    from streamcodec.client import Client  # noqa: PLC0415 - memory and time of the other clients shall not be ours

    client = Client(f"http://{address}", max_connections=MOST_CONNECTIONS)
    return lambda tensor: client.infer("identity", {"x": tensor})["x"]


def theirs(package: str, address: str) -> Callable[[_Array], _Array]:
    """Return a call of a package with tritonclient's names, as its documentation has it."""
    http = importlib.import_module(f"{package}.http")  # memory and time of the other clients shall not be its
    client = http.InferenceServerClient(address, concurrency=MOST_CONNECTIONS)

    def call(tensor: _Array) -> _Array:
        given = http.InferInput("x", tensor.shape, "FP32").set_data_from_numpy(tensor)
        array: _Array = client.infer("identity", [given]).as_numpy("x")
        return array

    return call


CLIENTS: Final[dict[str, Callable[[str], Callable[[_Array], _Array]]]] = {
    "streamcodec": ours,
    "drop-in": partial(theirs, "streamcodec.tritonclient"),
    "tritonclient": partial(theirs, "tritonclient"),
}


def main(kind: str, url: str, nbytes: int, rounds: int) -> None:
    """Measure and print."""
    tensor = np.full(nbytes // 4, 1.5, np.float32)
    call = partial(CLIENTS[kind](url.removeprefix("http://")), tensor)
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
