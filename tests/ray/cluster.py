"""A cluster of Ray in a process of its own, from the interpreter that STREAMCODEC_RAY_PYTHON names.

python3 -m venv /tmp/ray_env && /tmp/ray_env/bin/pip install 'ray[serve]>=2.60' 'h11<1' 'anyio>=4.10' 'numpy>=2'
export STREAMCODEC_RAY_PYTHON=/tmp/ray_env/bin/python
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.peers import Running
from tests.ports import free_port
from tests.processes import cpu_clock

INTERPRETER: Final = "STREAMCODEC_RAY_PYTHON"
HOW: Final = f"{INTERPRETER} is not set; tests/ray/cluster.py says how to have it"
WAYS: Final = ("shared", "ingress", "naive")

PROXIED: Final = ("ingress", "naive")
"""Those whose requests pass Ray's proxy."""

_ROOT: Final = Path(__file__).parents[2]
_ANSWER: Final = "= "
_END_SECONDS: Final = 60


class Cluster:
    """A cluster that runs."""

    def __init__(self, process: subprocess.Popen[str], proxy_port: int) -> None:
        """Wait until it can be asked."""
        self._process = process
        self._proxy_port = proxy_port
        self.shared_port: int = free_port()
        self._answer()

    def deploy(self, way: str, replicas: int = 1, *, memory: int = 1 << 30, most: int = 0) -> Running:
        """Run one of the `WAYS`, or the `example` of the page, or replace it, replica by replica.

        Args:
            way: how clients reach the models.
            replicas: how many.
            memory: bytes that Ray reserves for each.
            most: replicas, if their number follows the load.
        """
        arguments = {"way": way, "replicas": replicas, "port": self.shared_port, "memory": memory, "most": most}
        self._ask("deploy", **arguments)
        address = f"http://127.0.0.1:{self._proxy_port if way in PROXIED else self.shared_port}"
        return Running(name=way, version="", url=address, pid=self.pids(way)[0], cpu=lambda: self.cpu(way))

    def delete(self, way: str) -> None:
        """Stop it."""
        self._ask("delete", name=way)

    def state(self) -> dict[str, int]:
        """Return what a replica of the shared port has."""
        found: dict[str, int] = self._ask("state")
        return found

    def pids(self, way: str) -> list[int]:
        """Return the processes of its replicas that live."""
        return _named(f"ray::ServeReplica:{way}:")

    def cpu(self, way: str) -> float:
        """Return the CPU seconds of its replicas, and of the proxy if it is used."""
        pids = self.pids(way) + (_named("ray::ProxyActor") if way in PROXIED else [])
        return sum(cpu_clock(pid)() for pid in pids)

    def _ask(self, act: str, **arguments: object) -> Any:  # noqa: ANN401 - as the program answers
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": act, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:  # noqa: ANN401 - as the program answers
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                answer = json.loads(line.removeprefix(_ANSWER))
                if isinstance(answer, dict) and "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer
        msg = "the cluster has ended"
        raise RuntimeError(msg)


@contextmanager
def running() -> Iterator[Cluster]:
    """Start a cluster, and stop it."""
    folder = tempfile.mkdtemp(prefix="ray")  # short, since the paths of sockets are
    port = free_port()
    command = [os.environ[INTERPRETER], "-m", "tests.ray.program", folder, str(port)]
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "RAY_DEDUP_LOGS": "0"}
    with (
        Path(folder, "errors").open("w") as errors,
        subprocess.Popen(
            command,
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield Cluster(process, port)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def until(condition: Callable[[], bool], seconds: float) -> float:
    """Wait for a condition; return how long that took.

    Raises:
        TimeoutError: it is not met in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError
        time.sleep(0.05)
    return time.monotonic() - began


def _named(title: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdecimal() and (path / "cmdline").read_text().startswith(title):
                found.append(int(path.name))
        except OSError:  # it has ended meanwhile
            continue
    return sorted(found)
