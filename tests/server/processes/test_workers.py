"""Workers: the threads of models, and those among them that wait for the windows of slow clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from streamcodec import Rows, Windows
from streamcodec.engine.memory.rows import Window, synchronous
from streamcodec.runtime.models import threads
from streamcodec.server import Server, ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, infer_request
from tests.waiting import until

Address = tuple[str, int]
COUNT = 1000
WINDOW_BYTES = 400
CALLED = threading.Semaphore(0)


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Meter:
    """How many are at work at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self.most = 0

    def work(self) -> None:
        with self._lock:
            self._working += 1
            self.most = max(self.most, self._working)
        time.sleep(0.002)
        with self._lock:
            self._working -= 1


def _count(request: InferenceRequest) -> Outputs:
    CALLED.release()
    return {"y": np.array([sum(len(window) for window in synchronous(request.rows["x"]))], np.float32)}


def _double(request: InferenceRequest) -> Outputs:
    rows = request.rows["x"]
    return {"y": Rows(rows.datatype, rows.shape, (2 * window for window in synchronous(rows)))}


def _registry(meter: Meter) -> ModelRegistry:
    def work(request: InferenceRequest) -> Outputs:
        def windows() -> Iterator[Window]:
            for window in synchronous(request.rows["x"]):
                meter.work()
                yield window
                meter.work()

        return {"y": np.array([sum(len(window) for window in windows())], np.float32)}

    windows = Windows(max_window_bytes=WINDOW_BYTES)
    windowed = {"count": _count, "double": _double, "work": work}
    models = [Model(name=name, predict=predict, windows=windows) for name, predict in windowed.items()]
    return ModelRegistry.of([*models, Model(name="plain", predict=lambda request: dict(request.inputs))])


@contextmanager
def _serving(
    backend: str, meter: Meter | None = None, *, max_windowed_requests: int = 256
) -> Iterator[tuple[Server, Address]]:
    """Serve the models with two threads that work; no place is lost when the block ends."""
    options = ServerOptions(max_workers=2, max_windowed_requests=max_windowed_requests)
    with server_here(_registry(meter or Meter()), options, backend=backend) as (server, address):
        yield server, address
        workers = server._workers  # noqa: SLF001 - nothing else tells
        until(lambda: workers.busy == 0 and not workers._windowed)  # noqa: SLF001 - as before


@pytest.mark.slow
@pytest.mark.parametrize("model", ["count", "double"])
@pytest.mark.parametrize("missing", [4 * COUNT - 4 * WINDOW_BYTES, 4, 4 * COUNT])
def test_slow_windows_keep_nobody_from_working(backend: str, model: str, missing: int) -> None:
    request = infer_request(model, count=COUNT)
    with _serving(backend) as (server, address), ExitStack() as stack:
        slow = [stack.enter_context(Wire(address)).send(request[:-missing]) for _ in range(6)]
        until(lambda: server.requests_in_progress == len(slow))
        with Wire(address) as wire:
            assert floats(wire.send(infer_request("plain")).response()) == [0, 1, 2, 3]
            assert floats(wire.send(infer_request("count", count=COUNT)).response()) == [COUNT]
        for wire in slow:
            wire.send(request[-missing:])
        for wire in slow:
            assert floats(wire.response())[-1] == (COUNT if model == "count" else 2 * (COUNT - 1))
            assert wire.send(GET_LIVE).response().status == 200


@pytest.mark.slow
def test_threads_that_waited_end_when_they_have_nothing_to_do(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.2)
    request = infer_request("count", count=COUNT)
    before = threading.active_count()
    while CALLED.acquire(blocking=False):
        pass
    with _serving(backend, max_windowed_requests=20) as (_, address):
        for pause in (0.0, 0.9):  # since what makes them end has ended, too; and they may wait for longer than it does
            with ExitStack() as stack:
                slow = [stack.enter_context(Wire(address)).send(request[:-4]) for _ in range(20)]
                assert all(CALLED.acquire(timeout=60) for _ in slow)
                assert threading.active_count() <= before + 20 + 3, "the server's own, one for each, and one that looks"
                time.sleep(pause)
                for wire in slow:
                    assert floats(wire.send(request[-4:]).response()) == [COUNT]
            until(lambda: threading.active_count() <= before + 1 + 2)
            time.sleep(0.9)


def test_no_thread_is_begun_before_the_first_window_has_come(backend: str) -> None:
    request = infer_request("count", count=COUNT)
    while CALLED.acquire(blocking=False):
        pass
    with _serving(backend) as (_, address), Wire(address) as wire:
        wire.send(request[: -4 * COUNT + WINDOW_BYTES - 1])
        assert not CALLED.acquire(timeout=0.2)
        wire.send(request[-4 * COUNT + WINDOW_BYTES - 1 :])
        assert floats(wire.response()) == [COUNT]
        assert CALLED.acquire(timeout=60)


def test_a_client_that_leaves_before_the_first_window_is_told_so(backend: str) -> None:
    with _serving(backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("count", count=COUNT)[: -4 * COUNT + 1])
        wire.sock.shutdown(1)
        answer = wire.response()
        assert (answer.status, "ended in the middle" in answer.error) == (400, True)


def test_so_many_threads_work_at_once_however_many_wait(backend: str) -> None:
    meter = Meter()
    request = infer_request("work", count=COUNT)
    with _serving(backend, meter) as (_, address), ExitStack() as stack:
        wires = [stack.enter_context(Wire(address)) for _ in range(8)]
        for wire in wires:
            wire.send(request[:-4])
        for wire in wires:
            wire.send(request[-4:])
        for wire in wires:
            assert floats(wire.response()) == [COUNT]
    assert meter.most == 2


@pytest.mark.slow
@pytest.mark.parametrize("model", ["count", "double"])
def test_so_many_requests_may_send_windows_and_no_more(backend: str, model: str) -> None:
    request = infer_request(model, count=COUNT)
    with _serving(backend, max_windowed_requests=3) as (_, address), ExitStack() as stack:
        slow = [stack.enter_context(Wire(address)).send(request[:-4]) for _ in range(3)]
        time.sleep(0.3)
        with Wire(address) as wire:
            answer = wire.send(request).response()
            assert (answer.status, answer.fields["retry-after"]) == (503, "1")
            assert wire.send(infer_request("plain")).response().status == 200
        assert slow[0].send(request[-4:]).response().status == 200
        with Wire(address) as wire:
            assert wire.send(request).response().status == 200
            assert wire.send(request).response().status == 200
        slow[1].sock.close()
        assert slow[2].send(request[-4:]).response().status == 200


def test_a_thread_that_goes_on_after_its_client_has_gone_keeps_a_place(backend: str) -> None:
    go_on = threading.Event()

    def never_mind(request: InferenceRequest) -> Outputs:
        try:
            for _ in synchronous(request.rows["x"]):
                pass
        except Exception:  # noqa: BLE001 - whatever it is
            go_on.wait(60)
        return {}

    registry = ModelRegistry.of([Model(name="m", predict=never_mind, windows=Windows(max_window_bytes=WINDOW_BYTES))])
    with server_here(registry, ServerOptions(max_workers=1), backend=backend) as (server, address):
        workers = server._workers  # noqa: SLF001 - nothing else tells
        with Wire(address) as wire:
            wire.send(infer_request("m", count=COUNT)[:-4])
            until(lambda: bool(workers._windowed) and not workers.busy)  # noqa: SLF001 - as before
        until(lambda: workers.busy == 1)
        go_on.set()
        until(lambda: not workers.busy)
