"""Several workers: KServe spawns processes, and each of them has ours."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from streamcodec import encode_request
from tests.interop.servers.exchanges import post
from tests.kserve.conftest import Start

X = encode_request({"x": np.arange(4, dtype=np.float32)}, parameters={"binary_data_output": True})


def asked(url: str) -> int:
    """Return which process has answered; only ours tells the length of a binary answer."""
    answer = post(url, "process/infer", X)
    assert answer.value(b"content-length") is not None
    assert answer.value(b"content-type") == "application/octet-stream"
    return int(answer.outputs["PID"][0])


def workers_of(url: str, count: int, *, without: int | None = None) -> set[int]:
    """Ask until that many processes have answered."""
    found: set[int] = set()
    deadline = time.monotonic() + 120
    while len(found) < count:
        assert time.monotonic() < deadline, found
        try:
            found |= {asked(url)} - {without}
        except ConnectionError:
            time.sleep(0.05)
    return found


def test_every_worker_has_it_and_so_has_the_one_that_follows_a_dead_one(start: Start) -> None:
    with start(workers=2) as peer:
        workers = workers_of(peer.url, 2)
        assert peer.process.pid not in workers
        dead = min(workers)
        os.kill(dead, signal.SIGKILL)
        others = workers_of(peer.url, 2, without=dead)
        assert others != workers
