"""The guard: a server behind it, next to the same server without it, and behind nginx.

    python -m tests.benchmarks.guard [URL]

All are asked by turns over one connection each, by the same client. The server at URL has the models `identity` and
`sink`. Without URL it is Triton, if `STREAMCODEC_TRITON_PYTHON` names its Python (see `peers`), else our own. nginx,
if it is installed, passes requests on without looking at them and without collecting them: that is what a second hop
costs on this machine in any case. Times are medians of the rounds. The ratio is the median of the ratios of each round:
0.5 means that the throughput is half of that without a proxy. CPU and the largest memory are the guard's.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec.client.connections.address import Address
from tests.benchmarks.embedding import request
from tests.benchmarks.peers import TRITON, Peers
from tests.benchmarks.tls import Connection
from tests.processes import announced

_ROOT: Final = Path(__file__).parents[2]
CASES: Final = {
    "16 floats": ("identity", 64, 200, 21),
    "4 KiB": ("identity", 4 << 10, 200, 21),
    "64 KiB": ("identity", 64 << 10, 50, 21),
    "96 KiB": ("identity", 96 << 10, 50, 21),
    "256 KiB": ("identity", 256 << 10, 30, 21),
    "600 KiB": ("identity", 600 << 10, 15, 21),
    "1 MiB": ("identity", 1 << 20, 8, 21),
    "2 MiB": ("identity", 2 << 20, 4, 21),
    "64 MiB, both ways": ("identity", 64 << 20, 1, 9),
    "64 MiB, counted": ("sink", 64 << 20, 1, 9),
}
"""For each case: the model, the bytes of its tensor, how many requests are a round, and how many rounds."""

_NGINX: Final = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off; client_max_body_size 0; client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000;
    upstream behind {{ server {authority}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; {options}
            proxy_request_buffering off; proxy_buffering off;
        }}
    }}
}}
"""
_LONG_PIECES: Final = (
    "client_body_buffer_size 1m; proxy_buffer_size 1m; proxy_buffers 8 1m; proxy_busy_buffers_size 2m;"
)
"""Of its defaults, 16 KiB and 4 KiB, nginx takes longer for large tensors."""


@contextmanager
def _running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command that says where it listens."""
    command = [sys.executable, "-m", "streamcodec", *arguments, "--port", "0"]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, announced(process.stdout or ())
        finally:
            process.kill()


@contextmanager
def _server(work: Path) -> Iterator[tuple[str, str]]:
    """Find or run the server behind; yield its name and its URL."""
    if sys.argv[1:]:
        yield sys.argv[1], sys.argv[1]
        return
    with Peers(work) as peers:
        missing: list[str] = []
        for server in [*peers.found([TRITON], missing), peers.ours()]:
            yield f"{server.name} {server.version}".strip(), server.url
            return


@contextmanager
def _nginx(url: str, folder: Path) -> Iterator[tuple[int, str] | None]:
    """Run nginx in front of a server; yield its process id and URL, or None if it is not installed."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = Address.of(url)
    (folder / "configuration").write_text(
        _NGINX.format(folder=folder, port=port, authority=address.authority, options=_LONG_PIECES)
    )
    with subprocess.Popen([program, "-e", f"{folder}/errors", "-c", f"{folder}/configuration"]) as process:
        try:
            _wait_for(port)
            yield process.pid, f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return


@contextmanager
def _connected(url: str, pid: int) -> Iterator[Connection]:
    address = Address.of(url)
    with socket.create_connection((address.host, address.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Connection(sock, pid, bytearray(1 << 18))


def main() -> None:
    """Measure, and print the table."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        name, url = stack.enter_context(_server(work))
        guard, guarded_url = stack.enter_context(_running("guard", "--upstream", url, "--no-access-log"))
        nginx = stack.enter_context(_nginx(url, work))
        connections = {"alone": stack.enter_context(_connected(url, guard.pid))}
        if nginx is not None:
            connections["behind nginx"] = stack.enter_context(_connected(nginx[1], nginx[0]))
        connections["behind the guard"] = stack.enter_context(_connected(guarded_url, guard.pid))
        print(
            f"{name}:\n\n| tensor | | time | throughput | least time | CPU of the proxy |\n| --- | --- {'| ---: ' * 4}|"
        )
        for case, (model, nbytes, count, rounds) in CASES.items():
            parts = request(f"/v2/models/{model}/infer", np.full(nbytes // 4, 1.5, np.float32))
            if nbytes < 1 << 20:
                parts = [b"".join(parts)]
            for number in range(rounds + 1):
                for connection in sorted(connections.values(), key=id, reverse=bool(number % 2)):
                    connection.measure(case, parts, count)
            for way, connection in connections.items():
                print(_row(case, way, connections["alone"].found[case][1:], connection.found[case][1:]), flush=True)
        grown = max(found[2] for each in connections["behind the guard"].found.values() for found in each)
        print(f"\nThe guard's memory grew by {grown / 2**20:.1f} MiB at most during a round.")


def _row(case: str, way: str, alone: list[tuple[float, float, float]], found: list[tuple[float, float, float]]) -> str:
    """Describe the rounds of one way; the first round, which warmed up, is left out."""
    unit, name = (1e3, "ms") if "MiB" in case else (1e6, "us")
    seconds = [each[0] * unit for each in found]
    ratio = statistics.median(one[0] / other[0] for one, other in zip(alone, found, strict=True))
    cpu = "" if found is alone else f"{statistics.median(each[1] for each in found) * unit:.3g} {name}"
    times = f"{statistics.median(seconds):.3g} {name} | {ratio:.2f} | {min(seconds):.3g} {name}"
    return f"| {case} | {way} | {times} | {cpu} |"


if __name__ == "__main__":
    main()
