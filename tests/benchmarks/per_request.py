"""CPU of a request, by kind of model: `python -m tests.benchmarks.per_request`.

FP32 to an identity and back, binary both ways, sent by wrk over 1 and 16 connections. The model is *inline*, which
promises to be quick; the *default*, a function as most users write it; or an *async def*. Next to them stands a naive
ASGI application under uvicorn, with httptools and uvloop. It reads the whole body, parses the JSON and answers, and
checks nothing.

Both have, if the row says so, an access log, which goes nowhere, and TLS. They run at the same time, each in a process
of its own, and are asked by turns. What counts is the CPU time of the process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trustme

from tests.benchmarks import alone, requests, wrk
from tests.benchmarks.figures import Figures, Options, Scenario
from tests.benchmarks.measure import in_turn, ratios
from tests.benchmarks.peers import ACCESS_LOG, Missing, Running, tool
from tests.ports import free_port
from tests.processes import cpu_clock

_ROOT: Final = Path(__file__).parents[2]
_SIZES: Final = {"64 B": 64, "4 KiB": 4 << 10, "64 KiB": 64 << 10}
_MODELS: Final = {"inline": "identity", "default": "default", "async def": "coroutine"}
_CONNECTIONS: Final = (1, 16)
_NAIVE: Final = "naive uvicorn"
_COMMAND: Final = [
    *(sys.executable, "-m", "uvicorn", "tests.embedding.measured:whole_asgi"),
    *("--http", "httptools", "--loop", "uvloop", "--timeout-keep-alive", "600"),
]
_LOG_SECONDS: Final = 0.12
"""For the log's thread to write what it has."""


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    try:
        program = tool("wrk", "wrk")
    except Missing as reason:
        found.missing.append(str(reason))
        return found
    with tempfile.TemporaryDirectory() as folder:
        certificate = Path(folder, "both")
        trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
        encrypted = [f"--ssl-certfile={certificate}", f"--ssl-keyfile={certificate}"]
        ways = {"plain": [], "access log": [ACCESS_LOG], "TLS": encrypted, "both": [ACCESS_LOG, *encrypted]}
        for way, settings in ways.items():
            with options.peers.fresh_ours(*settings) as ours, _naive(settings) as naive:
                for size, nbytes in _SIZES.items():
                    files = {
                        model: wrk.write(options.work, [requests.floats(nbytes, model=model)], name=model)
                        for model in _MODELS.values()
                    }
                    for count in _CONNECTIONS:
                        variants = {
                            kind: partial(_cpu, program, ours, files[model], count) for kind, model in _MODELS.items()
                        }
                        variants[_NAIVE] = partial(_cpu, program, naive, files["identity"], count)
                        case = f"{size}, {way}, {count} connection{'s'[: count > 1]}"
                        _report(found, case, in_turn(variants, options.choose(3, 2)))
    return found


def _report(found: Figures, case: str, taken: dict[str, list[float]]) -> None:
    for kind, seconds in taken.items():
        found.add(case, "CPU", kind, "s", seconds)
    for kind in _MODELS:
        found.add(case, "CPU", f"{kind} / naive", "ratio", ratios(taken[kind], taken[_NAIVE]))


def _cpu(program: str, server: Running, file: Path, connections: int) -> float:
    """Return the CPU seconds of the server for a request."""
    before = server.cpu()
    count = wrk.run(program, server, file, connections=connections, seconds=1).requests
    time.sleep(_LOG_SECONDS)
    return (server.cpu() - before) / count


@contextmanager
def _naive(settings: list[str]) -> Iterator[Running]:
    """Run the naive application."""
    port = free_port()
    command = [*_COMMAND, f"--port={port}", *(settings if ACCESS_LOG in settings else ["--no-access-log", *settings])]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(port)
            scheme = "https" if any("ssl" in setting for setting in settings) else "http"
            url = f"{scheme}://127.0.0.1:{port}"
            yield Running(name=_NAIVE, version="", url=url, pid=process.pid, cpu=cpu_clock(process.pid))
        finally:
            process.terminate()


def _wait(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise ConnectionError("the naive application does not start")


SCENARIO = Scenario(
    title="CPU by kind of model",
    about=__doc__,
    run=run,
    served="`identity`, `default` and `coroutine`; access log as the rows say",
    is_wide=True,
)

if __name__ == "__main__":
    alone.main(SCENARIO)
