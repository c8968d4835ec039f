"""Workers that are there and do nothing: others serve who waits for them, and the first process replaces them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from streamcodec.cli import main
from tests.processes import scheduled
from tests.server.supervised import (
    MODELS,
    SECONDS,
    Running,
    pid_of,
    pids_of,
    running_workers,
    sleep_request,
)
from tests.server.wire import GET_LIVE, Wire, post
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks at processes in /proc"),  # noqa: PTH112
]

_MODELS = f"""{MODELS}
import ctypes, re

async def blocks_the_loop(request):
    time.sleep(3600)

def keeps_the_interpreter(request):
    ctypes.PyDLL(None).sleep(3600)

def matches_for_ever(request):
    re.match("(a+)+$", "a" * 64 + "b")

def spin(request):
    end = time.monotonic() + 9
    while time.monotonic() < end:
        sum(range(1000))
    return {{}}

plain = [blocks_the_loop, keeps_the_interpreter, matches_for_ever, spin]
models += [Model(name=function.__name__, predict=function) for function in plain]
models += [Model(name="hangs_inline", predict=lambda request: time.sleep(3600), is_inline=True)]
"""

_NOTHING = b'{"inputs":[]}'
_CONNECTIONS = 24
_SAID = "has given no sign of life for"


def _all_are_answered(running: Running) -> None:
    """Some of them come to the worker that is stuck: of 24, none does once in 17,000 times with three workers."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(running.address)) for _ in range(_CONNECTIONS)]
        for wire in wires:
            wire.sock.settimeout(SECONDS)
            wire.send(GET_LIVE)
        for wire in wires:
            assert wire.response().status == 200


def _is_stopped(pid: int) -> bool:
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: _is_stopped(pid))


# Who is replaced


@pytest.mark.parametrize("count", [2, 3])
def test_a_stopped_worker_is_replaced(count: int, tmp_path: Path) -> None:
    with running_workers(tmp_path, "--worker-timeout", "1", count=count) as running:
        before = running.workers
        stuck = min(before)
        _stop(stuck)
        _all_are_answered(running)
        until(lambda: running.has_replaced({stuck}))
        assert before - running.workers == {stuck}
        until(lambda: pids_of(running.address) == running.workers)
        status, complaints = running.ends(signal.SIGTERM)
    assert status == 0
    (line,) = complaints.splitlines()
    assert f"worker {stuck} {_SAID} 1 s" in line


@pytest.mark.parametrize("model", ["blocks_the_loop", "hangs_inline", "keeps_the_interpreter", "matches_for_ever"])
def test_a_worker_whose_loop_stands_still_is_replaced(model: str, tmp_path: Path) -> None:
    """An `async def` that sleeps, an inline model, and native code in a thread that never lets the interpreter go."""
    with running_workers(tmp_path, "--worker-timeout", "1", code=_MODELS) as running, Wire(running.address) as client:
        stuck = pid_of(client)
        client.sock.settimeout(SECONDS)
        client.send(post(_NOTHING, model=model))
        with suppress(ConnectionResetError):
            assert client.is_closed()
        until(lambda: running.has_replaced({stuck}))
        _all_are_answered(running)
        until(lambda: pids_of(running.address) == running.workers)
        status, complaints = running.ends(signal.SIGTERM)
    assert status == 0
    assert complaints.count("\n") == complaints.count(f"worker {stuck} {_SAID}") == 1


def test_all_workers_that_are_stuck_are_replaced(tmp_path: Path) -> None:
    """There is nobody else meanwhile, so who comes has to wait."""
    with running_workers(tmp_path, "--worker-timeout", "1") as running:
        before = running.workers
        for pid in before:
            _stop(pid)
        _all_are_answered(running)
        until(lambda: running.has_replaced(before))
        status, complaints = running.ends(signal.SIGTERM)
    assert status == 0
    assert complaints.count(_SAID) == 2


# Who is not


def test_a_worker_with_slow_models_in_threads_is_not_replaced(tmp_path: Path) -> None:
    """The loop turns beside as many threads as there may be, half of which use the processor."""
    options = ("--worker-timeout", "3", "--max-workers", "8")
    with running_workers(tmp_path, *options, code=_MODELS) as running, ExitStack() as stack:
        before = running.workers
        wires = [stack.enter_context(Wire(running.address)) for _ in range(16)]
        for number, wire in enumerate(wires):
            wire.sock.settimeout(SECONDS)
            wire.send(sleep_request(9) if number % 2 else post(_NOTHING, model="spin"))
        for wire in wires:
            assert wire.response().status == 200
        assert running.workers == before
        assert running.ends(signal.SIGTERM) == (0, "")


def test_others_serve_for_a_worker_that_is_only_late(tmp_path: Path) -> None:
    """It has a time limit that does not end here; when it goes on, it is the same worker with the same connections."""
    with running_workers(tmp_path, "--worker-timeout", "0") as running, Wire(running.address) as kept:
        before = running.workers
        late = pid_of(kept)
        _stop(late)
        _all_are_answered(running)
        assert pids_of(running.address) == before - {late}
        os.kill(late, signal.SIGCONT)
        assert pid_of(kept) == late
        until(lambda: pids_of(running.address) == before)
        assert running.workers == before
        assert running.ends(signal.SIGTERM) == (0, "")


def test_a_machine_that_stood_still_ends_nobody(tmp_path: Path) -> None:
    """All processes were stopped for longer than the limit, and the first one goes on before the others."""
    with running_workers(tmp_path, "--worker-timeout", "4") as running:
        before, first = running.workers, running.process.pid
        with Wire(running.address) as wire:
            wire.send(GET_LIVE).response()
        for pid in (first, *before):
            _stop(pid)
        time.sleep(9)
        ran, _ = scheduled(first)
        os.kill(first, signal.SIGCONT)
        until(lambda: scheduled(first)[0] > ran)
        for pid in before:
            os.kill(pid, signal.SIGCONT)
        _all_are_answered(running)
        assert running.workers == before
        assert running.ends(signal.SIGTERM) == (0, "")


# Who waits for a worker that has gone


def test_who_waits_for_a_worker_that_dies_is_served_by_another(tmp_path: Path) -> None:
    with running_workers(tmp_path, "--worker-timeout", "0") as running, ExitStack() as stack:
        dies = min(running.workers)
        _stop(dies)
        wires = [stack.enter_context(Wire(running.address)) for _ in range(_CONNECTIONS)]
        for wire in wires:
            wire.sock.settimeout(SECONDS)
            wire.send(GET_LIVE)
        os.kill(dies, signal.SIGKILL)
        for wire in wires:
            assert wire.response().status == 200


def test_a_worker_that_stops_alone_is_sent_nobody(tmp_path: Path) -> None:
    """It still has a request; the first process has a reference to its listener, at which nobody may wait any more."""
    with running_workers(tmp_path) as running, Wire(running.address) as busy:
        stops = pid_of(busy)
        busy.send(sleep_request(2))
        os.kill(stops, signal.SIGTERM)
        until(lambda: pids_of(running.address) == running.workers - {stops})
        answer = busy.response()
        assert (answer.status, answer.is_last) == (200, True)
        until(lambda: running.has_replaced({stops}))
        until(lambda: pids_of(running.address) == running.workers)
        assert running.ends(signal.SIGTERM)[0] == 0


def test_a_stop_serves_who_waits_for_a_worker_that_is_stuck(tmp_path: Path) -> None:
    options = ("--worker-timeout", "0", "--shutdown-timeout", "1")
    with running_workers(tmp_path, *options) as running, Wire(running.address) as kept:
        late = pid_of(kept)
        _stop(late)
        _all_are_answered(running)
        assert running.ends(signal.SIGTERM)[0] == 1, "it had to be killed"


def test_nobody_watches_a_server_in_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "--worker-timeout", "3"])
    assert raised.value.code == 2
    assert "--worker-timeout: nobody watches a server in one process" in capsys.readouterr().err
