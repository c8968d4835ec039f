"""Four answers of 8 MiB, into new arrays and into one array of the caller's: `python own_memory.py`."""

import os

import numpy as np
from measured import MIB, compare, server

from streamcodec.client import Client

URL = os.environ.get("URL", "http://127.0.0.1:8000")
BATCHES = [np.full((2, MIB), number, np.float32) for number in range(4)]


def before() -> list[float]:
    with Client(URL) as client:
        results = [client.infer("identity", {"x": batch})["x"] for batch in BATCHES]
    return [float(result[0, 0]) for result in results]


def after() -> list[float]:
    memory, firsts = np.empty((2, MIB), np.float32), []
    with Client(URL) as client:
        for batch in BATCHES:
            client.infer("identity", {"x": batch}, out={"x": memory})
            firsts.append(float(memory[0, 0]))
    return firsts


if __name__ == "__main__":
    with server() as URL:
        compare({"new arrays": before, "one array": after})
