"""Systems with less: what is used instead of calls that Windows does not have."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamcodec import NEED_DATA, LocalProtocolError, TensorReceived, encode_request, request_decoder
from streamcodec.cli import main
from streamcodec.server import run_workers
from streamcodec.server.processes import workers as processes
from streamcodec.service import Service, demo_models
from streamcodec.transports import sync
from streamcodec.transports.sockets import system, unix
from streamcodec.transports.sockets.system import SelectPoll
from streamcodec.transports.tls.sockets import POLLIN, POLLOUT
from tests.processes import announced
from tests.server.programs import server_here

ROOT = Path(__file__).parents[2]
BARE = [sys.executable, "-W", "error", "-m", "tests.transports.bare"]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_select_tells_what_poll_tells(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    for poll in (SelectPoll(), system.new_poll()):
        poll.register(one, POLLIN)
        assert poll.poll(0) == []
        other.send(b"x")
        assert poll.poll(1000) == poll.poll(None) == [(one.fileno(), POLLIN)]
        poll.register(one, POLLIN | POLLOUT)
        assert poll.poll(0) == [(one.fileno(), POLLIN | POLLOUT)]
        poll.register(one, POLLOUT)
        assert poll.poll(0) == [(one.fileno(), POLLOUT)]
        one.recv(1)
        poll.modify(one, POLLIN)
        assert poll.poll(0) == []
        poll.modify(one, POLLOUT)
        poll.unregister(one)
        assert poll.poll(0) == []
    poll.register(one.fileno(), POLLOUT)
    assert poll.poll(0) == [(one.fileno(), POLLOUT)]


def test_buffers_go_one_by_one(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "send_some", system._send_first)  # noqa: SLF001 - as chosen elsewhere
    monkeypatch.setattr(sync, "HAS_RECVMSG", False)
    inputs = {str(index): np.arange(index) for index in range(20)}
    message = encode_request(inputs)
    sync.send(pair[0], message.parts)
    decoder = request_decoder(header_length=message.header_length, body_length=message.body_length)
    found: dict[str, list[int]] = {}
    while not decoder.is_complete or len(found) < len(inputs):
        event = sync.next_event(pair[1], decoder)
        assert event is not NEED_DATA
        if isinstance(event, TensorReceived):
            found[event.spec.name] = event.array.tolist()
    assert found == {name: values.tolist() for name, values in inputs.items()}


def test_no_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix, "AF_UNIX", None)
    with pytest.raises(LocalProtocolError, match="has no Unix sockets"):
        unix.check_path("x")


def test_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_HAS_FORK", False)
    with pytest.raises(LocalProtocolError, match="cannot fork"):
        run_workers(lambda: Service(demo_models()), 2)


@pytest.mark.slow  # a new interpreter imports everything
def test_a_round_trip_without_all_of_them() -> None:
    done = subprocess.run(BARE, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "everything works"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_line_without_all_of_them(number: signal.Signals) -> None:
    command = [*BARE, "serve", "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert announced(process.stdout).startswith("http://")
            process.send_signal(number)
            assert process.wait(60) == (130 if number is signal.SIGINT else 0)
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "inspect x.npy",
        "infer URL identity --input x=x.npy --output-dir out",
        "bench URL --model identity --shape x:FP32:4 --warmup 0 --duration 0.1 --concurrency 2",
        "bench URL --model identity --shape x:FP32:4 --warmup 0 --duration 0.1 --rate 20",
    ],
)
def test_other_commands_without_all_of_them(command: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(1 << 19, np.float32))
    with server_here(demo_models()) as (_, (host, port)):
        arguments = command.replace("URL", f"http://{host}:{port}").replace("x.npy", f"{tmp_path}/x.npy").split()
        arguments = [str(tmp_path / "out") if word == "out" else word for word in arguments]
        done = subprocess.run([*BARE, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    if "infer" in command:
        assert np.load(tmp_path / "out" / "x.npy").sum() == 1 << 19


def test_processes_of_a_load_need_fork(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delattr(os, "fork", raising=False)
    with server_here(demo_models()) as (_, (host, port)):
        load = ["--shape", "x:FP32:4", "--duration", "0.1", "--concurrency", "2", "--processes", "2"]
        assert main(["bench", f"http://{host}:{port}", "--model", "identity", *load]) == 1
    assert "--processes needs a system with fork" in capsys.readouterr().err
