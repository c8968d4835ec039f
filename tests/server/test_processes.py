"""Several processes on one port: what dies is replaced, a stop loses nothing, and who cannot start says why."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from streamcodec.cli import main
from streamcodec.client import Client
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server import ServerOptions, open_listener, run_workers
from streamcodec.server.processes import reserve, share_out
from streamcodec.service import Service
from tests.processes import announced
from tests.server.models import models
from tests.server.wire import GET_LIVE, Wire, infer_request, post

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks at processes in /proc"),  # noqa: PTH112
]

Address = tuple[str, int]
SECONDS = 30

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

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    @property
    def address(self) -> Address:
        found = re.search(r":(\d+)$", self.url)
        assert found is not None
        return "127.0.0.1", int(found[1])

    @property
    def workers(self) -> set[int]:
        pid = self.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def ends(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal; return the exit status, and what was complained."""
        if number is not None:
            self.process.send_signal(number)
        _, complaints = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, complaints


@contextmanager
def _running(tmp_path: Path, *options: str, code: str = MODELS, count: int = 2) -> Iterator[Running]:
    (tmp_path / "mine.py").write_text(code)
    command = [sys.executable, "-m", "streamcodec", "serve", "mine", "--port", "0", "--no-access-log"]
    command += ["--workers", str(count), *options]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Running(process, announced(process.stdout))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _pid(wire: Wire) -> int:
    answer = wire.send(post(b'{"inputs":[]}', model="pid")).response()
    assert answer.status == 200
    return int(answer.document["outputs"][0]["data"][0])


def _sleep(seconds: float) -> bytes:
    return post(b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[%f]}]}' % seconds, model="sleep")


def _until(true: object, seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    assert callable(true)
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


# Serving


def test_connections_are_shared_out(tmp_path: Path) -> None:
    """Of 64, the larger share was 38 at most in six trials; a fair coin gives more than 48 once in 12,000."""
    with _running(tmp_path) as running:
        wires = [Wire(running.address) for _ in range(64)]
        shares = Counter(_pid(wire) for wire in wires)
        assert set(shares) == running.workers
        assert max(shares.values()) <= 48
        for wire in wires:
            wire.sock.close()
        assert running.ends(signal.SIGTERM) == (0, "")


def test_the_announcement_comes_once_and_says_what_is_served(tmp_path: Path) -> None:
    with _running(tmp_path, count=3) as running:
        assert len(running.workers) == 3
        running.process.terminate()
        assert running.process.wait(SECONDS) == 0
        assert running.process.stdout is not None
        first, *others = running.process.stdout.read().splitlines()
        assert first.startswith("serving 'models' of ")
        assert [line.split(",")[0] for line in others] == ["  pid", "  sleep", "  die"]


def test_the_memory_is_shared_out() -> None:
    assert share_out(ServerOptions(max_memory_bytes=10), 3).max_memory_bytes == 3
    assert share_out(ServerOptions(max_memory_bytes=1), 3).max_memory_bytes == 1


def test_a_request_that_does_not_fit_into_one_part_is_refused(tmp_path: Path) -> None:
    with _running(tmp_path, "--max-memory", "2M") as running, Wire(running.address) as wire:
        answer = wire.send(infer_request("pid", count=(1 << 20) // 4 + 1000)[:2000]).response()
        assert answer.status == 413


# Who dies


def test_a_worker_that_is_killed_under_load_is_replaced(tmp_path: Path) -> None:
    """What fails is what it had; the other worker goes on, and a second one is there again soon."""
    failed: list[float] = []
    answered: list[float] = []
    is_over = threading.Event()
    with _running(tmp_path) as running:

        def ask() -> None:
            while not is_over.is_set():
                try:
                    with Wire(running.address) as wire:
                        while not is_over.is_set():
                            _pid(wire)
                            answered.append(time.monotonic())
                except (OSError, AssertionError):
                    failed.append(time.monotonic())

        clients = [threading.Thread(target=ask) for _ in range(16)]
        for client in clients:
            client.start()
        time.sleep(0.5)
        before = running.workers
        killed = time.monotonic()
        os.kill(min(before), signal.SIGKILL)
        _until(lambda: len(running.workers) == 2 and running.workers != before)
        _until(lambda: _pids(running.address) == running.workers)
        is_there = time.monotonic() - killed
        is_over.set()
        for client in clients:
            client.join()
        status, complaints = running.ends(signal.SIGTERM)
    assert status == 0
    assert len(failed) <= 32, "a connection of the dead one fails; who comes back at once may still meet its socket"
    assert max(failed) - killed < 0.5
    assert is_there < 10
    assert "was ended by signal 9; another one starts in 0.0 s" in complaints


def _pids(address: Address) -> set[int]:
    found = set()
    for _ in range(16):
        with Wire(address) as wire:
            found.add(_pid(wire))
    return found


def test_a_worker_that_dies_soon_again_has_to_wait(tmp_path: Path) -> None:
    with _running(tmp_path) as running:
        for _ in range(2):
            before = running.workers
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            _until(lambda before=before: len(running.workers - before) == 2)
        _, complaints = running.ends(signal.SIGTERM)
    assert "another one starts in 0.5 s" in complaints


def test_a_worker_that_is_told_to_stop_ends_its_requests_and_is_replaced(tmp_path: Path) -> None:
    with _running(tmp_path) as running, Wire(running.address) as busy:
        worker = _pid(busy)
        busy.send(_sleep(0.6))
        time.sleep(0.2)
        for _ in range(2):  # a second signal changes nothing
            os.kill(worker, signal.SIGTERM)
            time.sleep(0.1)
        answer = busy.response()
        assert (answer.status, answer.is_last) == (200, True)
        _until(lambda: worker not in running.workers and len(running.workers) == 2)
        assert running.ends(signal.SIGTERM)[0] == 0


def test_workers_stop_if_the_first_process_dies(tmp_path: Path) -> None:
    with _running(tmp_path, "--shutdown-timeout", "2") as running, Wire(running.address) as busy:
        workers = running.workers
        busy.send(_sleep(0.5))
        time.sleep(0.2)
        running.process.kill()
        assert busy.response().status == 200
        _until(lambda: not any(_is_there(pid) for pid in workers))


def _is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# Who cannot start


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("import nowhere", 1, "No module named 'nowhere'"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV, "was ended by signal 11"),
        ("import os\nos._exit(3)", 3, "ended with status 3 before it was ready; the server ends"),
    ],
    ids=["error", "signal", "exit"],
)
def test_what_cannot_start_ends_everything(code: str, status: int, said: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with _running(tmp_path, code=code) as running:
        found, complaints = running.ends()
        assert (found, running.url) == (status, "")
        assert complaints.count(said) == 1
    assert time.monotonic() - began < 10


def test_a_worker_that_cannot_start_any_more_ends_everything(tmp_path: Path) -> None:
    """The file has gone that its models are made of."""
    code = MODELS + "\nopen('weights').close()\n"
    (tmp_path / "weights").touch()
    with _running(tmp_path, code=code) as running:
        (tmp_path / "weights").unlink()
        os.kill(min(running.workers), signal.SIGKILL)
        status, complaints = running.ends()
        assert status == 1
        assert complaints.count("another one starts") == 4
        assert "before it was ready; the server ends" in complaints


def test_a_port_that_is_in_use_is_not_shared() -> None:
    with open_listener("127.0.0.1", 0, reuse_port=True) as other, pytest.raises(OSError, match="in use"):
        reserve("127.0.0.1", other.getsockname()[1])


def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "x", "--workers", "2", "--reload"])
    assert raised.value.code == 2
    assert "--reload: not together with --workers" in capsys.readouterr().err


def test_processes_are_not_started_beside_threads() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        with pytest.raises(LocalProtocolError, match="before other threads"):
            run_workers(lambda: Service(models()), 2, port=0)
    finally:
        is_over.set()
        thread.join()


# The end


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_all_and_lets_requests_end(number: signal.Signals, expected: int, tmp_path: Path) -> None:
    with _running(tmp_path) as running, Wire(running.address) as busy:
        busy.send(_sleep(0.8))
        time.sleep(0.3)
        os.killpg(running.process.pid, number)  # as a terminal does, and a service manager
        answer = busy.response()
        assert (answer.status, answer.is_last) == (200, True)
        assert running.ends() == (expected, "")


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with _running(tmp_path) as running, Wire(running.address) as busy:
        busy.send(_sleep(20))
        time.sleep(0.3)
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert running.process.poll() is None
        began = time.monotonic()
        assert running.ends(signal.SIGINT)[0] == 130
        assert time.monotonic() - began < 2
        assert busy.is_closed()


def test_the_time_to_stop_has_an_end(tmp_path: Path) -> None:
    with _running(tmp_path, "--shutdown-timeout", "0.5") as running, Wire(running.address) as busy:
        busy.send(_sleep(20))
        time.sleep(0.3)
        began = time.monotonic()
        running.ends(signal.SIGTERM)
        assert 0.5 < time.monotonic() - began < 4


@pytest.mark.parametrize("delay", ["0", "0.5"])
def test_a_stop_under_load_loses_nothing(delay: str, tmp_path: Path) -> None:
    answered: list[int] = []
    lost: list[BaseException] = []
    with _running(tmp_path, "--drain-delay", delay) as running:

        def ask() -> None:
            while True:
                try:
                    wire = Wire(running.address)
                except ConnectionError:  # not one byte has been sent
                    return
                with wire:
                    try:
                        while True:
                            answer = wire.send(post(b'{"inputs":[]}', model="pid")).response()
                            answered.append(answer.status)
                            if answer.is_last:
                                break
                    except (OSError, AssertionError) as error:
                        lost.append(error)
                        return

        clients = [threading.Thread(target=ask) for _ in range(16)]
        for client in clients:
            client.start()
        time.sleep(1)
        status, complaints = running.ends(signal.SIGTERM)
        for client in clients:
            client.join()
    assert (status, complaints) == (0, "")
    assert len(answered) > 100
    assert set(answered) <= {200, 503}
    assert not lost


def test_the_command_speaks_https_in_all_of_them(tmp_path: Path) -> None:
    from tests.transports.certificates import AUTHORITY, client_side  # noqa: PLC0415 - makes keys

    both = AUTHORITY.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.bytes()
    (tmp_path / "both").write_bytes(both)
    with _running(tmp_path, "--ssl-certfile", "both") as running:
        assert running.url.startswith("https://")
        for _ in range(8):
            with Client(running.url, ssl_context=client_side()) as client:
                assert client.is_server_ready()


def test_one_is_killed_after_the_other_and_nothing_is_left(tmp_path: Path) -> None:
    with _running(tmp_path) as running:
        with Wire(running.address) as wire:
            wire.send(GET_LIVE).response()
        place = f"/proc/{running.process.pid}/fd"
        before = len(os.listdir(place))  # noqa: PTH208
        for _ in range(3):
            pids = running.workers
            os.kill(max(pids), signal.SIGKILL)
            _until(lambda pids=pids: len(running.workers) == 2 and running.workers != pids)
        _until(lambda: _pids(running.address) == running.workers)
        assert len(os.listdir(place)) == before  # noqa: PTH208
