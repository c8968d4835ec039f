"""32 MiB to `identity` and back, by tritonclient and by our two clients: `python tritonclient_calls.py`."""

import os
from functools import partial
from types import ModuleType

import numpy as np
import tritonclient.http
from measured import MIB, compare, server

import streamcodec.tritonclient.http
from streamcodec.client import Client

URL = os.environ.get("URL", "127.0.0.1:8000")
x = np.ones((8, MIB), np.float32)


def program(httpclient: ModuleType) -> float:
    client = httpclient.InferenceServerClient(URL)
    given = httpclient.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    wanted = httpclient.InferRequestedOutput("x", binary_data=True)
    result = client.infer("identity", [given], outputs=[wanted])
    return float(result.as_numpy("x")[-1, -1])


def rewritten() -> float:
    with Client(f"http://{URL}") as client:
        result = client.infer("identity", {"x": x})
    return float(result["x"][-1, -1])


if __name__ == "__main__":
    with server() as url:
        URL = url.removeprefix("http://")
        compare(
            {
                "tritonclient": partial(program, tritonclient.http),
                "streamcodec.tritonclient": partial(program, streamcodec.tritonclient.http),
                "streamcodec.client": rewritten,
            }
        )
