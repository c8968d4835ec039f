"""Supervised servers: several processes on one port, as `serve --workers` starts them, and what their models tell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes import announced
from tests.server.wire import Wire, post

Address = tuple[str, int]
SECONDS = 60

MODELS = """
import os, signal, sys, time
import numpy as np
from streamcodec.service import Model

def pid(request):
    return {"pid": np.array([os.getpid()])}

def sleep(request):
    time.sleep(float(request.inputs["x"][0]))
    return {}

def die(request):
    os.kill(os.getpid(), signal.SIGKILL)

models = [Model(name="pid", predict=pid), Model(name="sleep", predict=sleep), Model(name="die", predict=die)]
"""


class Running:
    """The first process."""

    def __init__(self, process: subprocess.Popen[str], url: str, count: int) -> None:
        self.process = process
        self.url = url
        self.count = count

    @property
    def address(self) -> Address:
        found = re.search(r":(\d+)$", self.url)
        assert found is not None
        return "127.0.0.1", int(found[1])

    @property
    def workers(self) -> set[int]:
        pid = self.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def has_replaced(self, pids: set[int]) -> bool:
        """Whether none of these is there any more, and as many workers as before."""
        return not pids & self.workers and len(self.workers) == self.count

    def ends(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal; return the exit status, and what was complained."""
        if number is not None:
            self.process.send_signal(number)
        _, complaints = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, complaints


@contextmanager
def running_workers(tmp_path: Path, *options: str, code: str = MODELS, count: int = 2) -> Iterator[Running]:
    """Serve models in so many processes until the block ends."""
    (tmp_path / "mine.py").write_text(code)
    command = [sys.executable, "-m", "streamcodec", "serve", "mine", "--port", "0", "--no-access-log"]
    command += ["--workers", str(count), *options]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Running(process, announced(process.stdout), count)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def pid_of(wire: Wire) -> int:
    """Return which worker answers on a connection."""
    answer = wire.send(post(b'{"inputs":[]}', model="pid")).response()
    assert answer.status == 200
    return int(answer.document["outputs"][0]["data"][0])


def sleep_request(seconds: float) -> bytes:
    """Make a request that takes so long, in a thread."""
    return post(b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[%f]}]}' % seconds, model="sleep")


def pids_of(address: Address) -> set[int]:
    """Return which workers answer new connections."""
    found = set()
    for _ in range(16):
        with Wire(address) as wire:
            found.add(pid_of(wire))
    return found
