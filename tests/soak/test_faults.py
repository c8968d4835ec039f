"""Faults: the machine runs out of something, a model misbehaves, a client dies; the server answers others as before."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import MemoryMap, Pool, Rows
from streamcodec.engine.memory.placement import Placement
from streamcodec.engine.spec import TensorSpec
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service, demo_models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Answer, Wire, floats, infer_request, post
from tests.soak.models import models
from tests.soak.processes import server_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux what a process has"),
]

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])
Address = tuple[str, int]


def raises(kind: type[BaseException]) -> Callable[[InferenceRequest], Any]:
    def predict(_: InferenceRequest) -> Any:  # noqa: ANN401 - no outputs at all
        raise kind

    return predict


def raises_later(kind: type[BaseException]) -> Callable[[InferenceRequest], Any]:
    async def predict(_: InferenceRequest) -> Any:  # noqa: ANN401 - no outputs at all
        raise kind

    return predict


def answers(outputs: object) -> Callable[[InferenceRequest], Any]:
    return lambda _: outputs


def _recurse(request: InferenceRequest) -> Any:  # noqa: ANN401 - no outputs at all
    return _recurse(request)


class Stop(BaseException):
    """What some libraries end a program or a test with."""


IN_A_COROUTINE = [MemoryError, SystemExit, StopAsyncIteration, asyncio.CancelledError, GeneratorExit, Stop]
INLINE = [*IN_A_COROUTINE, StopIteration]
IN_A_THREAD = [*INLINE, KeyboardInterrupt]  # elsewhere somebody may have pressed the key
MODELS = {
    **{f"{kind.__name__} in a thread": Model(name="m", predict=raises(kind)) for kind in IN_A_THREAD},
    **{f"{kind.__name__} inline": Model(name="m", predict=raises(kind), is_inline=True) for kind in INLINE},
    **{f"{kind.__name__} in a coroutine": Model(name="m", predict=raises_later(kind)) for kind in IN_A_COROUTINE},
    "recursion": Model(name="m", predict=_recurse),
    "None": Model(name="m", predict=answers(None)),
    "an object": Model(name="m", predict=answers({"x": object()})),
    "names that are none": Model(name="m", predict=answers({1: np.zeros(1)})),
    "ragged lists": Model(name="m", predict=answers({"x": [[1], [1, 2]]})),
    "dates": Model(name="m", predict=answers({"x": np.zeros(2, "M8[s]")})),
}


def _serves(address: Address) -> bool:
    """Whether the server answers a new client as it should."""
    with Wire(address) as wire:
        assert wire.send(GET_LIVE).response().status == 200
        return floats(wire.send(infer_request()).response()) == [0, 1, 2, 3]


@BACKENDS
@pytest.mark.parametrize("name", MODELS)
def test_whatever_a_model_raises_or_returns_is_one_answer(
    name: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    status = 503 if name.startswith("MemoryError") else 500
    with server_here(ModelRegistry.of([*demo_models(), MODELS[name]]), backend=backend) as (_, address):
        with Wire(address) as wire:
            for _ in range(2):
                assert wire.send(infer_request("m")).response().status == status
        assert _serves(address)


def _rows_raise(error: BaseException | None) -> Iterator[np.ndarray[Any, Any]]:
    yield np.zeros(1, np.float32)
    if error:
        raise error


async def _rows_raise_later(error: BaseException | None) -> AsyncIterator[np.ndarray[Any, Any]]:
    for window in _rows_raise(error):
        yield window


ERRORS = [None, SystemExit(3), asyncio.CancelledError(), Stop(), FileNotFoundError("weights"), TimeoutError("disk")]


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("make", [_rows_raise, _rows_raise_later], ids=["plain", "async"])
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_rows_that_do_not_come_cut_the_answer_and_nothing_else_and_are_logged_as_a_failure(
    make: Callable[[BaseException | None], Any],
    error: BaseException | None,
    backend: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Model(name="m", predict=lambda _: {"x": Rows("FP32", (4,), make(error))})
    with (
        server_here(ModelRegistry.of([*demo_models(), model]), backend=backend) as (_, address),
        Wire(address) as other,
    ):
        assert other.send(GET_LIVE).response().status == 200
        with Wire(address) as wire, pytest.raises(ConnectionError):
            wire.send(infer_request("m")).response()
        assert other.send(GET_LIVE).response().status == 200
        assert _serves(address)
    assert [record.getMessage() for record in caplog.records] == ["connection failed"]


@BACKENDS
@pytest.mark.parametrize("name", ["crc", "mirror"])
def test_a_client_that_goes_while_its_windows_are_worked_on_is_no_failure_of_the_model(
    name: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    with server_here(models(), backend=backend) as (server, address):
        for _ in range(3):
            with Wire(address) as wire:
                wire.send(infer_request(name, count=500_000)[:-1])
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert _serves(address)
    assert server.abandoned_calls == 0
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@BACKENDS
def test_models_that_hang_hold_up_no_others(backend: str) -> None:
    go_on = threading.Event()

    def hang(request: InferenceRequest) -> Any:  # noqa: ANN401 - its inputs, in the end
        go_on.wait(20)
        return request.values

    registry = ModelRegistry.of([*demo_models(), Model(name="m", predict=hang)])
    with server_here(registry, ServerOptions(max_workers=2), backend=backend) as (_, address), ExitStack() as stack:
        wires = [stack.enter_context(Wire(address)) for _ in range(4)]
        for wire in wires:
            wire.send(infer_request("m"))
        assert _serves(address)
        go_on.set()
        assert [floats(wire.response()) for wire in wires] == [[0, 1, 2, 3]] * 4


class Vanishing:
    """A placement whose file or memory is not to be had."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def slabs(self, spec: TensorSpec) -> Any:  # noqa: ANN401, ARG002 - never returns
        raise self._error


@BACKENDS
@pytest.mark.parametrize("count", [4, 100_000])
@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")], ids=["memory", "disk"])
def test_a_tensor_that_cannot_be_placed_is_refused_for_now(error: Exception, count: int, backend: str) -> None:
    pool = Pool()

    def place(spec: TensorSpec) -> Placement:
        return Vanishing(error) if spec.name == "x" else pool

    service = Service(ModelRegistry.of([*demo_models(), Model(name="m", predict=lambda _: {})]), place=place)
    with server_here(service, backend=backend) as (_, address):
        with Wire(address) as wire:
            try:
                answer = wire.send(infer_request("m", count=count)).response()
            except BrokenPipeError:  # refused while it was being sent
                answer = wire.response()
            assert (answer.status, answer.fields["retry-after"]) == (503, "1")
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 200


@BACKENDS
def test_a_file_that_is_unlinked_while_it_is_written_harms_nobody(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    service = Service(demo_models(), place=lambda _: MemoryMap(file))
    request = infer_request(count=100_000)
    with server_here(service, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(request[:-1000])
        _wait_for(file.exists)
        file.unlink()
        assert floats(wire.send(request[-1000:]).response())[-1] == 99_999


@LOOPS
def test_out_of_descriptors_connections_wait_and_are_served_later(loop: str, tmp_path: Path) -> None:
    with server_process(tmp_path, loop=loop) as server, ExitStack() as stack:
        server.limit(resource.RLIMIT_NOFILE, server.held()["descriptors"] + 5)
        wires = [stack.enter_context(Wire(server.address)) for _ in range(30)]
        for wire in wires:
            wire.send(infer_request())
        for wire in wires:  # in the order of their connections, each making room for another
            assert floats(wire.response()) == [0, 1, 2, 3]
            wire.sock.close()
        assert _serves(server.address)
        assert "Traceback" not in server.log()


@LOOPS
def test_out_of_memory_requests_are_refused_and_the_server_lives(loop: str, tmp_path: Path) -> None:
    with server_process(tmp_path, loop=loop) as server:
        with Wire(server.address) as wire:  # whatever has to be loaded first
            wire.send(infer_request("thread")).response()
        size = Path(f"/proc/{server.process.pid}/statm").read_text().split()[0]
        server.limit(resource.RLIMIT_AS, int(size) * os.sysconf("SC_PAGE_SIZE") + (48 << 20))
        for model in ("identity", "thread", "async"):
            with Wire(server.address) as wire:
                assert _declare(wire, model, 100 << 20).status in {413, 503}
        assert _serves(server.address)
        assert "Traceback" not in server.log()


def _declare(wire: Wire, model: str, nbytes: int) -> Answer:
    """Send the beginning of a request with a tensor of so many bytes."""
    tensor = {"name": "x", "datatype": "UINT8", "shape": [nbytes], "parameters": {"binary_data_size": nbytes}}
    text = json.dumps({"inputs": [tensor]}).encode()
    head = post(b"", f"Inference-Header-Content-Length: {len(text)}", model=model)
    return wire.send(head.replace(b"Content-Length: 0", b"Content-Length: %d" % (len(text) + nbytes)), text).response()


@LOOPS
def test_sigterm_under_load_ends_in_time_and_cuts_no_answer_short_that_could_be_given(
    loop: str, tmp_path: Path
) -> None:
    with server_process(tmp_path, loop=loop, shutdown_timeout=1, read_timeout=30) as server, ExitStack() as stack:
        idle, stopped = stack.enter_context(Wire(server.address)), stack.enter_context(Wire(server.address))
        idle.send(GET_LIVE).response()
        stopped.send(infer_request(count=100_000)[:-1000])
        wires = [stack.enter_context(Wire(server.address)) for _ in range(20)]
        requests = [infer_request("thread", count=5000 * index + 1) for index in range(20)]
        for wire, request in zip(wires, requests, strict=True):
            wire.send(request[:-1])
        _wait_for(lambda: server.held()["connections"] == 22)
        server.process.send_signal(signal.SIGTERM)
        for index, (wire, request) in enumerate(zip(wires, requests, strict=True)):
            assert len(floats(wire.send(request[-1:]).response())) == 5000 * index + 1
        assert idle.is_closed()
        assert stopped.is_closed()
        assert server.process.wait(20) == 0
        assert server.log() == ""


def test_a_client_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    script = """if True:
        import socket, sys, time
        socks = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(20)]
        for index, sock in enumerate(socks):
            sock.sendall(sys.stdin.buffer.read(1000 * index + 1))
            sys.stdin.buffer.seek(0)
        print(flush=True)
        time.sleep(60)
    """
    request = tmp_path / "request"
    request.write_bytes(infer_request("crc", count=100_000) * 2)
    with server_process(tmp_path) as server, request.open("rb") as stdin:
        before = server.held()
        command = [sys.executable, "-c", script, str(server.address[1])]
        with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            client.stdout.readline()
            client.kill()
        held = server.quiet(tasks=before["tasks"])
        assert (held["tasks"], held["descriptors"], held["connections"]) == (
            before["tasks"],
            before["descriptors"],
            0,
        )
        assert _serves(server.address)
        assert server.log() == ""


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not come to it"
        time.sleep(0.02)
