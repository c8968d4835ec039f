"""Your own model by tritonclient and by ours: `python tritonclient_yours.py [HOST:PORT MODEL [SIZE]]`.

Inputs are zeros, of the names, datatypes and shapes that the server tells; SIZE takes the place of -1. Without
arguments it is a model of our own server. The time is the least of calls in turn; then eight threads share one client.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from measured import server, table

from streamcodec.tritonclient.utils import triton_to_np_dtype

PACKAGES = ("tritonclient", "streamcodec.tritonclient")
ROUNDS = 50
THREADS = 8
CALLS_OF_A_THREAD = 8
ANY_MODEL = {"name": "x", "datatype": "FP32", "shape": [-1]}


def compare(address: str, model: str, size: int) -> None:
    """Time calls of both packages in turn, count what threads get, and print both."""
    calls = {name: call(importlib.import_module(f"{name}.http"), address, model, size) for name in PACKAGES}
    seconds: dict[str, list[float]] = {name: [] for name in PACKAGES}
    for _ in range(ROUNDS):
        for name, infer in calls.items():
            began = time.perf_counter()
            infer()
            seconds[name].append(time.perf_counter() - began)
    rows = [
        (name, f"{min(seconds[name]) * 1000:.3f} ms", f"{failed(infer)} of {THREADS * CALLS_OF_A_THREAD}")
        for name, infer in calls.items()
    ]
    table(("", "time of a call", f"failed, {THREADS} threads on one client"), rows)


def call(httpclient: ModuleType, address: str, model: str, size: int) -> Callable[[], object]:
    """Make a client, and return a call of it."""
    client = httpclient.InferenceServerClient(address, concurrency=THREADS)
    tensors = []
    for given in client.get_model_metadata(model)["inputs"] or [ANY_MODEL]:
        shape = [size if length < 0 else length for length in given["shape"]]
        tensor = httpclient.InferInput(given["name"], shape, given["datatype"])
        tensors.append(tensor.set_data_from_numpy(zeros(shape, given["datatype"])))
    return lambda: client.infer(model, tensors)


def zeros(shape: list[int], datatype: str) -> np.ndarray[Any, Any]:
    """Return an input."""
    return np.full(shape, b"", object) if datatype == "BYTES" else np.zeros(shape, triton_to_np_dtype(datatype))


def failed(infer: Callable[[], object]) -> int:
    """Have threads share a client; return how many calls have not succeeded within ten seconds."""
    succeeded = []

    def run() -> None:
        for _ in range(CALLS_OF_A_THREAD):
            try:
                succeeded.append(infer())
            except Exception as error:  # noqa: BLE001 - of either package
                print(f"{type(error).__name__}: {error}", file=sys.stderr)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 10
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    return THREADS * CALLS_OF_A_THREAD - len(succeeded)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        compare(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)  # noqa: PLR2004
    else:
        with server() as url:
            compare(url.removeprefix("http://"), "identity", 1 << 18)
