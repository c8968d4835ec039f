"""Chaos by one command: `python -m tests.soak.chaos --seconds 600`.

A server with TLS, metrics, uploads and an access log is under load, on kept connections, on new ones, and with uploads
that are resumed, while every few seconds something happens to it: a worker is killed, or stopped, or its event loop is
blocked; a replacement cannot start; models and certificates are read anew; a new server takes over. The report says
what failed of how many, the longest time without any answer, how health checks and the page of metrics were answered,
and what is left over. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import trustme

from streamcodec import ProtocolError
from streamcodec.client import Client
from tests.processes import announced
from tests.server.wire import Wire, head, infer_request, post

_CLIENTS = 8
"""Of each kind: on kept connections, on new ones."""

_TIMEOUT = 8.0
_MODELS = """
import time
from streamcodec.service import Model

async def block(request):
    time.sleep(3600)

VERSION = 0
models = [
    Model(name="identity", predict=lambda request: request.inputs),
    Model(name="block", predict=block),
]
"""
_POISON = "raise SystemExit(3)\n"
_TIME = "%Y-%m-%d %H:%M:%S"
_OF_SERVER = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ streamcodec\.server\.processes")
_BEGINNINGS = ("20", "streamcodec: ", "Traceback ", "  ", "SystemExit: ")
"""Of lines of both logs, and of what is said about models that cannot be loaded."""
_REQUEST = infer_request("identity", count=1024)
_READY = head("/v2/health/ready", method="GET")
_METRICS = head("/metrics", method="GET")

_UPLOADERS = 3
_UPLOADED = np.arange(2 << 20, dtype=np.float32)
"""Sent by each uploader, again and again."""


@dataclass
class Found:
    """What has come of requests of one kind."""

    answered: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    by_event: Counter[str] = field(default_factory=Counter)


class Chaos:
    """One run."""

    def __init__(self, folder: Path, seconds: float, pause: float, workers: int, seed: int) -> None:
        self._folder = folder
        self._seconds = seconds
        self._pause = pause
        self._workers = workers
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._authority = trustme.CA()
        self._servers: list[subprocess.Popen[str]] = []
        self._port = 0
        self._is_over = threading.Event()
        self._event = "nothing"
        self._last = time.monotonic()
        self.longest: tuple[float, str, float] = (0.0, "nothing", 0.0)
        self.found = {kind: Found() for kind in ("kept", "new", "health", "metrics", "uploads")}
        self.events: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve, load, and let things happen."""
        self._issue()
        self._write(_MODELS)
        self._start()
        threads = [
            threading.Thread(target=self._ask, args=(kind,)) for kind in ("kept", "new") for _ in range(_CLIENTS)
        ]
        threads.append(threading.Thread(target=self._check, args=("health", _READY)))
        threads.append(threading.Thread(target=self._check, args=("metrics", _METRICS)))
        threads += [threading.Thread(target=self._upload) for _ in range(_UPLOADERS)]
        self._last = time.monotonic()
        for thread in threads:
            thread.start()
        happen: list[Callable[[], None]] = [self._renew, self._hand_over]
        if self._workers > 1:
            happen += [self._kill, self._stop, self._block, self._poison]
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            act = self._random.choice(happen)
            self._event = act.__name__.strip("_")
            self.events[self._event] += 1
            act()
            time.sleep(self._pause)
        self._is_over.set()
        for thread in threads:
            thread.join()
        for server in self._servers:
            server.send_signal(signal.SIGTERM)
            server.wait(60)

    def left_over(self) -> list[str]:
        """Return the processes that are still there after all."""
        command = f"streamcodec serve {self._folder.name}"
        listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)  # noqa: S607
        return [line for line in listing.stdout.splitlines() if command in line]

    @property
    def waiting_uploads(self) -> int:
        """Uploads whose clients have begun anew, because they did not get the first answer; they wait for 300 s."""
        return len([*(self._folder / "uploads").iterdir()])

    # The server

    def _start(self) -> None:
        command = [sys.executable, "-m", "streamcodec", "serve", str(self._folder / "mine.py"), "--reuse-port"]
        command += ["--port", str(self._port), "--workers", str(self._workers), "--log-level", "info"]
        command += ["--ssl-certfile", str(self._folder / "crt"), "--ssl-keyfile", str(self._folder / "key")]
        command += ["--metrics", "--resumable-uploads", "16", "--upload-dir", str(self._folder / "uploads")]
        command += ["--worker-timeout", "2"] * (self._workers > 1)
        with (self._folder / "log").open("ab") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout is not None
        self._port = int(announced(server.stdout).rpartition(":")[2])
        threading.Thread(target=server.stdout.read, daemon=True).start()
        self._servers.append(server)

    def _issue(self) -> None:
        certificate = self._authority.issue_cert("localhost")
        for name, blob in (("key", certificate.private_key_pem), ("crt", certificate.cert_chain_pems[0])):
            blob.write_to_path(str(self._folder / f"{name}.new"))
            (self._folder / f"{name}.new").replace(self._folder / name)

    def _write(self, code: str) -> None:
        (self._folder / "new.py").write_text(code + "#" * self.events.total())
        (self._folder / "new.py").replace(self._folder / "mine.py")

    def _children(self) -> list[int]:
        pid = self._servers[-1].pid
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    # What happens

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, IndexError):
            os.kill(self._random.choice(self._children()), number)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def _block(self) -> None:
        with suppress(OSError), self._connect() as wire:
            wire.send(post(b'{"inputs":[]}', model="block"))

    def _poison(self) -> None:
        self._write(_POISON)
        self._signal(signal.SIGKILL)
        time.sleep(2)
        self._write(_MODELS)

    def _renew(self) -> None:
        self._issue()
        self._write(_MODELS)
        self._servers[-1].send_signal(signal.SIGHUP)

    def _hand_over(self) -> None:
        self._start()
        before = self._servers.pop(0)
        before.send_signal(signal.SIGTERM)
        before.wait(60)

    # The load

    def _connect(self) -> Wire:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        wire = Wire(("127.0.0.1", self._port))
        wire.sock.settimeout(_TIMEOUT)
        try:
            wire.sock = context.wrap_socket(wire.sock, server_hostname="localhost", suppress_ragged_eofs=False)
        except BaseException:
            wire.sock.close()
            raise
        return wire

    def _ask(self, kind: str) -> None:
        while not self._is_over.is_set():
            self._try(kind, _REQUEST, times=1 if kind == "new" else 1000)
            time.sleep(0.002)

    def _check(self, kind: str, request: bytes) -> None:
        while not self._is_over.is_set():
            self._try(kind, request, times=1)
            time.sleep(0.05)

    def _upload(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        found = self.found["uploads"]
        with Client(f"https://localhost:{self._port}", ssl_context=context, timeout=_TIMEOUT) as client:
            while not self._is_over.is_set():
                event = self._event
                try:
                    result = client.infer("identity", {"x": _UPLOADED}, resumable=True)
                    assert np.array_equal(result["x"], _UPLOADED), "other values"
                    self._answered(found)
                except (OSError, AssertionError, ProtocolError) as error:
                    with self._lock:
                        found.failed[str(error)[:80]] += 1
                        found.by_event[event] += 1

    def _try(self, kind: str, request: bytes, times: int) -> None:
        found, event = self.found[kind], self._event
        try:
            with self._connect() as wire:
                for _ in range(times):
                    event = self._event
                    answer = wire.send(request).response()
                    assert answer.status == 200, answer.status
                    self._answered(found)
                    if answer.is_last or self._is_over.is_set():
                        return
                    time.sleep(0.002)
        except (OSError, AssertionError) as error:
            with self._lock:
                found.failed[f"status {error}" if isinstance(error, AssertionError) else type(error).__name__] += 1
                found.by_event[event] += 1

    def _answered(self, found: Found) -> None:
        now = time.monotonic()
        with self._lock:
            found.answered += 1
            self.longest = max(self.longest, (now - self._last, self._event, time.time()))
            self._last = now


def main() -> None:
    """Run it, and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="of load (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=5, help="seconds between two events (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="1 for renewals and take-overs only (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of what happens (default: %(default)s)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chaos = Chaos(folder, options.seconds, options.pause, options.workers, options.seed)
        chaos.run()
        left_over, waiting = chaos.left_over(), chaos.waiting_uploads
        lines = (folder / "log").read_text().splitlines()
    print("events:", dict(chaos.events))
    for kind, found in chaos.found.items():
        total = found.answered + found.failed.total()
        print(f"{kind}: {found.failed.total()} of {total} failed: {dict(found.failed)}, during {dict(found.by_event)}")
    seconds, event, ended = chaos.longest
    print(f"longest time without any answer: {seconds:.3f} s, during {event}; the server's log of these seconds:")
    for line in lines:
        when = _OF_SERVER.match(line)
        if when is not None and ended - 10 < time.mktime(time.strptime(when[1], _TIME)) < ended + 1:
            print(f"  {line}")
    cut = [line for line in lines if not line.startswith(_BEGINNINGS)]
    print(f"left over: {left_over}; uploads that wait: {waiting}")
    print(f"lines of the log that are cut: {len(cut)} of {len(lines)} {cut[:3]}")


if __name__ == "__main__":
    main()
