"""Health checks are answered while models sleep and while large bodies come. The figures are printed (`pytest -rP`)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.server.programs import ROOT, Program
from tests.server.wire import GET_LIVE, Wire, post

pytestmark = pytest.mark.quiet

BOUND = 0.25
"""Seconds. Usual figures are a few milliseconds."""

_SEND = """
import sys, socket
from tests.server.wire import Wire, head

host, port, kind, nbytes = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
block = bytes(1 << 20)
with Wire((host, port)) as wire:
    wire.sock.settimeout(60)
    start = b'{"inputs":[{"name":"x","shape":[%d],"datatype":' % (nbytes if kind == "binary" else nbytes // 4)
    if kind == "binary":
        text = start + b'"UINT8","parameters":{"binary_data_size":%d}}]}' % nbytes
        fields = [f"Content-Length: {len(text) + nbytes}", f"Inference-Header-Content-Length: {len(text)}"]
        wire.send(head("/v2/models/sink/infer", *fields), text)
        for _ in range(nbytes >> 20):
            wire.send(block)
    else:
        text = start + b'"FP32","data":[' + b"1.5," * (nbytes // 4 - 1) + b"1.5]}]}"
        wire.send(head("/v2/models/sink/infer", f"Content-Length: {len(text)}"), text)
    answer = wire.response()
    assert answer.status == 200, answer
    assert answer.document["outputs"][0]["data"] == [nbytes], answer
"""


def _ask_until(is_over: Callable[[], bool], program: Program) -> list[float]:
    """Ask for health again and again; return how long each answer took."""
    seconds = []
    with Wire(program.address) as wire:
        while not is_over():
            began = time.perf_counter()
            assert wire.send(GET_LIVE).response().status == 200
            seconds.append(time.perf_counter() - began)
            time.sleep(0.002)
    return seconds


def _report(while_what: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    print(  # noqa: T201 - a figure
        f"health checks while {while_what}: {len(ordered)} answered, median {ordered[len(ordered) // 2] * 1e3:.1f} ms, "
        f"maximum {ordered[-1] * 1e3:.1f} ms"
    )


def _send_elsewhere(program: Program, kind: str, nbytes: int) -> list[float]:
    """Send a tensor from another process, and ask meanwhile."""
    host, port = program.address
    command = [sys.executable, "-c", _SEND, host, str(port), kind, str(nbytes)]
    with subprocess.Popen(command, cwd=ROOT) as sender:
        seconds = _ask_until(lambda: sender.poll() is not None, program)
    assert sender.returncode == 0
    return seconds


def test_while_all_workers_but_none_of_the_loop_are_asleep(program: Program) -> None:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [2.0]}]}).encode()

    def sleep() -> None:
        with Wire(program.address) as wire:
            assert wire.send(post(body, model="sleep")).response().status == 200

    sleepers = [threading.Thread(target=sleep) for _ in range(8)]
    for thread in sleepers:
        thread.start()
    seconds = _ask_until(lambda: not any(thread.is_alive() for thread in sleepers), program)
    _report("8 models sleep 2 s", seconds)
    assert len(seconds) > 100
    assert max(seconds) < BOUND


def test_while_a_gigabyte_arrives(program: Program) -> None:
    seconds = _send_elsewhere(program, "binary", 1 << 30)
    _report("1 GiB arrives", seconds)
    assert len(seconds) > 20
    assert max(seconds) < BOUND


def test_while_a_large_json_tensor_is_read(program: Program) -> None:
    """Parsing JSON holds the interpreter; this says for how long, with a bound for accidents only."""
    seconds = _send_elsewhere(program, "json", 16 << 20)
    _report("16 MB of JSON are read", seconds)
    assert max(seconds) < 4
