"""wrk: a program that sends one request over and over, on several connections at once.

The request is a file. The Lua scripts beside this module send it as it is, or with a number in its head and its JSON.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamcodec import Tensor, encode_request
from tests.benchmarks import load
from tests.benchmarks.peers import Running

_SCRIPTS: Final = Path(__file__).with_name("wrk")
_MARK: Final = "x" * 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of wrk has found; times in seconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def write_request(work: Path, server: Running, model: str, nbytes: int, *, head: str) -> Path:
    """Write a whole request to a file.

    Args:
        work: directory of the file.
        server: which gets it.
        model: of the server, with the input `x`.
        nbytes: of the tensor.
        head: `constant`; or `changing`, then the file has marks where the script writes a number.
    """
    is_changing = head == "changing"
    message = encode_request(
        [Tensor(name="x", array=load.floats(nbytes))],
        parameters={"binary_data_output": True},
        request_id=_MARK if is_changing else None,
    )
    fields = [*message.headers]
    if is_changing:
        fields.append(("traceparent", f"00-0123456789abcdef{_MARK}-0123456789abcdef-01"))
    path = work / f"{server.name}-{model}-{nbytes}-{head}.http"
    path.write_bytes(b"".join([load.head_of(server, model, fields), *message.buffers]))
    return path


def run(program: str, server: Running, request: Path, *, connections: int, seconds: int) -> Run:
    """Send a request over and over, with one thread.

    Args:
        program: path of wrk.
        server: which gets the requests.
        request: a file from `write_request`.
        connections: how many at once.
        seconds: how long.

    Raises:
        RuntimeError: a request failed, or its status was not 200.
    """
    script = _SCRIPTS / f"{request.stem.rpartition('-')[2]}.lua"
    command = [program, "--threads=1", f"--connections={connections}", f"--duration={seconds}s", "--timeout=10s"]
    command += ["--script", str(script), server.url, "--", str(request)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result = Run(**json.loads(output.splitlines()[-1]))
    if result.errors:
        msg = f"{result.errors} of {result.requests} requests to {server.name} failed:\n{output}"
        raise RuntimeError(msg)
    return result
