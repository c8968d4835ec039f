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
from functools import partial
from pathlib import Path

import pytest

from streamcodec.cli import main
from streamcodec.client import Client
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server import ServerOptions, open_listener, run_workers
from streamcodec.server.processes.workers import reserve, share_out
from streamcodec.server.sockets.opening import open_place
from streamcodec.service import Service
from tests.processes import announced
from tests.server.asking import Asked, asking
from tests.server.models import models
from tests.server.supervised import MODELS, SECONDS, pid_of, pids_of, running_workers, sleep_request
from tests.server.wire import GET_LIVE, Answer, Wire, infer_request, post
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks at processes in /proc"),  # noqa: PTH112
]

# Serving


def test_connections_are_shared_out(tmp_path: Path) -> None:
    """Of 64, the larger share was 38 at most in six trials; a fair coin gives more than 48 once in 12,000."""
    with running_workers(tmp_path) as running:
        wires = [Wire(running.address) for _ in range(64)]
        shares = Counter(pid_of(wire) for wire in wires)
        assert set(shares) == running.workers
        assert max(shares.values()) <= 48
        for wire in wires:
            wire.sock.close()
        assert running.ends(signal.SIGTERM) == (0, "")


def test_the_announcement_comes_once_and_says_what_is_served(tmp_path: Path) -> None:
    with running_workers(tmp_path, count=3) as running:
        assert len(running.workers) == 3
        running.process.terminate()
        assert running.process.wait(SECONDS) == 0
        assert running.process.stdout is not None
        first, *others, found = running.process.stdout.read().splitlines()
        assert found.startswith("found: ")
        assert first.startswith("serving 'models' of ")
        assert [line.split(",")[0] for line in others] == ["  pid", "  sleep", "  die"]


def test_the_memory_is_shared_out() -> None:
    assert share_out(ServerOptions(max_memory_bytes=10), 3).max_memory_bytes == 3
    assert share_out(ServerOptions(max_memory_bytes=1), 3).max_memory_bytes == 1


def test_a_request_that_does_not_fit_into_one_part_is_refused(tmp_path: Path) -> None:
    with running_workers(tmp_path, "--max-memory", "2M") as running, Wire(running.address) as wire:
        answer = wire.send(infer_request("pid", count=(1 << 20) // 4 + 1000)[:2000]).response()
        assert answer.status == 413


# Who dies


def test_a_worker_that_is_killed_under_load_is_replaced(tmp_path: Path) -> None:
    """What fails is what it had; the other worker goes on, and a second one is there again soon."""
    failed: list[BaseException] = []
    answered: list[int] = []
    is_over = threading.Event()
    with running_workers(tmp_path) as running:

        def ask() -> None:
            while not is_over.is_set():
                try:
                    with Wire(running.address) as wire:
                        while not is_over.is_set():
                            answered.append(pid_of(wire))
                except (OSError, AssertionError) as error:
                    failed.append(error)

        clients = [threading.Thread(target=ask) for _ in range(16)]
        for client in clients:
            client.start()
        before = running.workers
        until(lambda: set(answered) == before)
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(running.workers) == 2 and running.workers != before)
        until(lambda: pids_of(running.address) == running.workers)
        is_over.set()
        for client in clients:
            client.join()
        status, complaints = running.ends(signal.SIGTERM)
    assert status == 0
    assert len(failed) <= 32, "a connection of the dead one fails; who comes back at once may still meet its socket"
    assert "was ended by signal 9; another one starts in 0.0 s" in complaints


def test_a_worker_that_dies_soon_again_has_to_wait_while_another_serves(tmp_path: Path) -> None:
    with running_workers(tmp_path) as running, Wire(running.address) as kept:
        lives = pid_of(kept)
        for _ in range(2):
            (dies,) = running.workers - {lives}
            until(partial(_serves, running.address, dies))
            os.kill(dies, signal.SIGKILL)
            until(partial(running.has_replaced, {dies}))
        _, complaints = running.ends(signal.SIGTERM)
    assert "another one starts in 0.5 s" in complaints


def test_a_new_worker_gets_its_share_of_clients_that_keep_their_connections(tmp_path: Path) -> None:
    """The clients of the one that has died give up here; so all that come to the new one were at the other one."""
    with (
        running_workers(tmp_path) as running,
        asking(lambda: Wire(running.address), infer_request("pid"), is_kept=True, count=32) as asked,
    ):
        dies, lives = running.workers
        until(lambda: {_pid_in(answer) for answer in asked.answered} == {dies, lives})
        for _ in range(3):  # one of fifty times, beside other work, nobody had come; a client is lost each time
            os.kill(dies, signal.SIGKILL)
            until(partial(running.has_replaced, {dies}))
            (dies,) = running.workers - {lives}
            if _comes(asked, dies):
                break
        assert _comes(asked, dies)
    assert {answer.status for answer in asked.answered} == {200}
    assert len(asked.lost) < 32


def _comes(asked: Asked, pid: int) -> bool:
    """Whether a client gets an answer of a worker within some seconds."""
    end = time.monotonic() + 15
    while _pid_in(asked.answered[-1]) != pid:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _pid_in(answer: Answer) -> int:
    return int.from_bytes(answer.body[-8:], "little")


def _serves(address: tuple[str, int], pid: int) -> bool:
    return pid in pids_of(address)


def test_nobody_waits_while_nobody_serves(tmp_path: Path) -> None:
    with running_workers(tmp_path) as running:
        for _ in range(6):
            before = running.workers
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            until(partial(running.has_replaced, before))
            until(lambda: pids_of(running.address) == running.workers)  # both are ready: else it is a false start
        _, complaints = running.ends(signal.SIGTERM)
    found = re.findall(r"another one starts in ([0-9.]+) s", complaints)
    assert len(found) == 12
    assert found[1::2] == ["0.0"] * 6, "the first of two may wait, because the other one is still there"


def test_a_worker_that_is_told_to_stop_ends_its_requests_and_is_replaced(tmp_path: Path) -> None:
    with running_workers(tmp_path) as running, Wire(running.address) as busy:
        worker = pid_of(busy)
        busy.send(sleep_request(0.6))
        time.sleep(0.2)
        for _ in range(2):  # a second signal changes nothing
            os.kill(worker, signal.SIGTERM)
            time.sleep(0.1)
        answer = busy.response()
        assert (answer.status, answer.is_last) == (200, True)
        until(lambda: worker not in running.workers and len(running.workers) == 2)
        assert running.ends(signal.SIGTERM)[0] == 0


def test_workers_stop_if_the_first_process_dies(tmp_path: Path) -> None:
    with running_workers(tmp_path, "--shutdown-timeout", "2") as running, Wire(running.address) as busy:
        workers = running.workers
        busy.send(sleep_request(0.5))
        time.sleep(0.2)
        running.process.kill()
        assert busy.response().status == 200
        until(lambda: not any(_is_there(pid) for pid in workers))


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
    with running_workers(tmp_path, code=code) as running:
        found, complaints = running.ends()
        assert (found, running.url) == (status, "")
        assert complaints.count(said) == 1


def test_a_worker_that_cannot_start_any_more_ends_nobody_who_serves(tmp_path: Path) -> None:
    """The file has gone that its models are made of. When nobody serves any more, everything ends."""
    code = MODELS + "\nopen('weights').close()\n"
    (tmp_path / "weights").touch()
    with running_workers(tmp_path, code=code) as running, Wire(running.address) as kept:
        lives = pid_of(kept)
        (dies,) = running.workers - {lives}
        (tmp_path / "weights").unlink()
        os.kill(dies, signal.SIGKILL)
        assert running.process.stderr is not None
        for _ in range(5):
            until(lambda: "another one starts" in running.process.stderr.readline())  # type: ignore[union-attr]
        assert pid_of(kept) == lives
        (tmp_path / "weights").touch()
        until(lambda: len(running.workers) == 2 and len(pids_of(running.address)) == 2)
        (tmp_path / "weights").unlink()
        for pid in running.workers:
            os.kill(pid, signal.SIGKILL)
        status, complaints = running.ends()
        assert status == 1
        assert "before it was ready; the server ends" in complaints


def test_a_worker_that_is_not_ready_for_long_is_complained_of_once(tmp_path: Path) -> None:
    """The time is shortened: nobody waits for a minute here."""
    (tmp_path / "mine.py").write_text(f"{MODELS}\ntime.sleep(2)\n")
    program = """
import sys
from streamcodec.cli import main
from streamcodec.server.processes import workerprocess
workerprocess.LATE_SECONDS = 0.5
main(["serve", "mine", "--port", "0", "--workers", "2"])
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert announced(process.stdout)
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert complaints.count("is not ready after") == 2


def test_a_port_that_is_in_use_is_not_shared() -> None:
    with open_listener("127.0.0.1", 0, reuse_port=True) as other, pytest.raises(OSError, match="in use"):
        reserve("127.0.0.1", other.getsockname()[1])


def test_a_port_that_is_not_to_be_shared_is_in_use_for_those_who_would_share_it() -> None:
    with open_listener("127.0.0.1", 0) as other, pytest.raises(OSError, match="is in use; stop its user"):
        reserve("127.0.0.1", other.getsockname()[1], reuse_port=True)


def test_a_port_is_shared_only_with_those_who_ask_for_it() -> None:
    with open_place(port=0) as one, pytest.raises(OSError, match="in use"):
        open_place(port=one.getsockname()[1])


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
    with running_workers(tmp_path) as running, Wire(running.address) as busy:
        busy.send(sleep_request(0.8))
        time.sleep(0.3)
        os.killpg(running.process.pid, number)  # as a terminal does, and a service manager
        answer = busy.response()
        assert (answer.status, answer.is_last) == (200, True)
        assert running.ends() == (expected, "")


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with running_workers(tmp_path, "--shutdown-timeout", "600") as running, Wire(running.address) as busy:
        busy.send(sleep_request(3600))
        time.sleep(0.3)
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert running.process.poll() is None
        assert running.ends(signal.SIGINT)[0] == 130
        assert busy.is_closed()


def test_the_time_to_stop_has_an_end(tmp_path: Path) -> None:
    with running_workers(tmp_path, "--shutdown-timeout", "0.5") as running, Wire(running.address) as busy:
        busy.send(sleep_request(3600))
        time.sleep(0.3)
        began = time.monotonic()
        running.ends(signal.SIGTERM)
        assert time.monotonic() - began > 0.5


@pytest.mark.parametrize("delay", ["0", "0.5"])
def test_a_stop_under_load_loses_nothing(delay: str, tmp_path: Path) -> None:
    answered: list[int] = []
    lost: list[BaseException] = []
    with running_workers(tmp_path, "--drain-delay", delay) as running:

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
        until(lambda: len(answered) > 100)
        status, complaints = running.ends(signal.SIGTERM)
        for client in clients:
            client.join()
    assert (status, complaints) == (0, "")
    assert set(answered) <= {200, 503}
    assert not lost


def test_the_command_speaks_https_in_all_of_them(tmp_path: Path) -> None:
    from tests.transports.certificates import AUTHORITY, client_side  # noqa: PLC0415 - makes keys

    both = AUTHORITY.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.bytes()
    (tmp_path / "both").write_bytes(both)
    with running_workers(tmp_path, "--ssl-certfile", "both") as running:
        assert running.url.startswith("https://")
        for _ in range(8):
            with Client(running.url, ssl_context=client_side()) as client:
                assert client.is_server_ready()


def test_one_is_killed_after_the_other_and_nothing_is_left(tmp_path: Path) -> None:
    with running_workers(tmp_path) as running:
        with Wire(running.address) as wire:
            wire.send(GET_LIVE).response()
        place = f"/proc/{running.process.pid}/fd"
        before = len(os.listdir(place))  # noqa: PTH208
        for _ in range(3):
            pid = max(running.workers)
            os.kill(pid, signal.SIGKILL)
            until(partial(running.has_replaced, {pid}))
        until(lambda: pids_of(running.address) == running.workers)
        assert len(os.listdir(place)) == before  # noqa: PTH208
