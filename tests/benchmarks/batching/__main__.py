"""Batches next to PyTriton, LitServe, mosec and Ray Serve: `python -m tests.benchmarks.batching`.

Each server has the same model (`net.py`), batches of up to 64 rows, a delay of 2 ms, and one BLAS thread. wrk sends one
row per request over and over, on some connections at once. PyTriton and ours speak the V2 protocol. The others get and
send the bytes of the values, LitServe as base64 in JSON: the least that each can do. One server runs at a time. CPU and
memory are those of all its processes; memory is the most that was seen of their proportional set sizes.

STREAMCODEC_TRITON_PYTHON is a Python that has nvidia-pytriton, and STREAMCODEC_BATCH_PYTHON one that has litserve,
mosec and ray[serve]. A server whose Python is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec import Tensor, encode_request
from tests.benchmarks import wrk
from tests.benchmarks.measure import print_table
from tests.benchmarks.peers import Running, tool
from tests.ports import free_port

SIZES: Final = {"4 KiB": 1024, "600 KB": 150_528, "4 MiB": 1 << 20}
"""Values of a row."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SECONDS: Final = 120.0
"""In which each server has to be ready."""

_OTHERS: Final = "STREAMCODEC_BATCH_PYTHON"

_REFUSING: Final = "streamcodec, refusing"
"""For `hostile` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peer:
    program: str
    python: str | None
    target: str
    is_v2: bool = False
    is_json: bool = False
    arguments: Callable[[int, int], list[str]] = lambda port, _: [str(port)]


_PEERS: Final = {
    "streamcodec": _Peer(program="ours_program", python=sys.executable, target="/v2/models/batched/infer", is_v2=True),
    "streamcodec, inline": _Peer(
        program="ours_program", python=sys.executable, target="/v2/models/inline/infer", is_v2=True
    ),
    "streamcodec, a call each": _Peer(
        program="ours_program", python=sys.executable, target="/v2/models/each/infer", is_v2=True
    ),
    _REFUSING: _Peer(program="ours_program", python=sys.executable, target="/v2/models/refusing/infer", is_v2=True),
    "PyTriton": _Peer(
        program="pytriton_program",
        python=os.environ.get("STREAMCODEC_TRITON_PYTHON"),
        target="/v2/models/batched/infer",
        is_v2=True,
        arguments=lambda port, values: [str(port), str(values)],
    ),
    "LitServe": _Peer(program="litserve_program", python=os.environ.get(_OTHERS), target="/predict", is_json=True),
    "mosec": _Peer(
        program="mosec_program",
        python=os.environ.get(_OTHERS),
        target="/inference",
        arguments=lambda port, _: ["--port", str(port), "--address", "127.0.0.1"],
    ),
    "Ray Serve": _Peer(program="ray_program", python=os.environ.get(_OTHERS), target="/"),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="of each run (default: 5)")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--servers", nargs="+", choices=_PEERS, default=[name for name in _PEERS if name != _REFUSING])
    parser.add_argument("--rounds", type=int, default=1, help="of all servers in turn (default: 1)")
    options = parser.parse_args()
    program = tool("wrk", "wrk")
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as work:
        for size in options.sizes:
            for name in options.servers * options.rounds:
                if _PEERS[name].python is not None:
                    with serving(name, SIZES[size]) as server:
                        request = request_of(name, server, SIZES[size])
                        requests = wrk.write(Path(work), [request])
                        for count in options.connections:
                            send = partial(wrk.run, program, server, requests, connections=count)
                            rows.append(
                                [size, name, str(count), *_measured(server, partial(send, seconds=options.seconds))]
                            )
    print_table(["row", "server", "connections", "requests/s", "p50", "p99", "CPU", "memory"], rows)


def _measured(server: Running, send: Callable[[], wrk.Run]) -> list[str]:
    """Return the last cells of a line of the table."""
    before = server.cpu()
    with _memory(server.pid) as most:
        try:
            run = send()
        except (RuntimeError, subprocess.CalledProcessError) as error:
            return [str(error).splitlines()[0][:60], "", "", "", ""]
    cpu = (server.cpu() - before) / run.requests
    times = [f"{seconds * 1e3:.1f} ms" for seconds in (run.p50, run.p99)]
    return [f"{run.rate:,.0f}", *times, f"{cpu * 1e6:,.0f} us", f"{most[0] / 2**20:,.0f} MiB"]


def request_of(name: str, server: Running, values: int) -> bytes:
    """Return a whole request with one row of so many values."""
    peer = _PEERS[name]
    row = np.random.default_rng(1).standard_normal((1, values), dtype=np.float32)
    fields, body = [("Content-Type", "application/octet-stream")], row.tobytes()
    if peer.is_v2:
        message = encode_request([Tensor(name="x", array=row)], parameters={"binary_data_output": True})
        fields, body = [*message.headers], b"".join(map(bytes, message.buffers))
    elif peer.is_json:
        fields, body = [("Content-Type", "application/json")], json.dumps({"x": b64encode(body).decode()}).encode()
    fields = [field for field in fields if field[0] != "Content-Length"]
    lines = [f"POST {peer.target} HTTP/1.1", f"Host: {server.host}:{server.port}", f"Content-Length: {len(body)}"]
    lines += [f"{key}: {value}" for key, value in fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def serving(name: str, values: int, max_delay: float | None = None) -> Iterator[Running]:
    """Run a server for rows of so many values; ours may have another delay."""
    peer = _PEERS[name]
    port = free_port()
    command = [peer.python or "", "-m", f"tests.benchmarks.batching.{peer.program}", *peer.arguments(port, values)]
    command += [] if max_delay is None else [str(max_delay)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        url = f"http://127.0.0.1:{port}"
        server = Running(name=name, version="", url=url, pid=process.pid, cpu=lambda: _cpu_seconds(process.pid))
        try:
            _wait(server, request_of(name, server, values))
            yield server
        finally:
            tree = _tree(process.pid)
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            for pid in tree:  # what it has started, and not stopped
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _wait(server: Running, request: bytes) -> None:
    """Wait until the server has answered a request."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection((server.host, server.port), 30) as sock:
            sock.settimeout(30)
            sock.sendall(request)
            if sock.recv(12).endswith(b"200"):
                return
        time.sleep(0.2)
    msg = f"{server.name} is not ready after {_SECONDS:g} s"
    raise RuntimeError(msg)


def _tree(pid: int) -> list[int]:
    """Return the processes of a server."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a server. Processes that have ended are not counted."""
    ticks = 0
    for each in _tree(pid):
        with suppress(OSError):
            words = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += int(words[11]) + int(words[12])
    return ticks / _TICKS


@contextmanager
def _memory(pid: int) -> Iterator[list[int]]:
    """Keep the most memory that a server has meanwhile."""
    most, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(0.1):
            most[0] = max(most[0], sum(map(_pss_bytes, _tree(pid))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        is_over.set()
        thread.join()


def _pss_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    main()
