"""Calls: on which thread answers are made, and what becomes of threads, memory and time when they are not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from streamcodec import Rows, Tensor, Windows, encode_request
from streamcodec.engine.memory.rows import Window, synchronous
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.runtime.models import threads
from streamcodec.runtime.models.failures import is_ending
from streamcodec.server import ServerOptions
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, Reply
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request
from tests.waiting import until

SECONDS = 60.0
LARGE = 1 << 16
"""Floats: more than an event loop writes as JSON."""


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _inputs(request: InferenceRequest) -> Outputs:
    return request.values


async def _inputs_later(request: InferenceRequest) -> Outputs:
    return request.values


def _request(model: str, count: int, *, is_binary: bool) -> bytes:
    """Make a request with binary floats, which asks for them in binary or as JSON."""
    tensor = Tensor(name="x", array=np.zeros(count, np.float32))
    message = encode_request([tensor], parameters={"binary_data_output": is_binary})
    fields = [f"{name}: {value}" for name, value in message.headers]
    return head(f"/v2/models/{model}/infer", *fields) + b"".join(message.buffers)


@pytest.mark.parametrize(
    ("count", "is_binary", "is_in_thread"), [(4, False, False), (LARGE, True, False), (LARGE, False, True)]
)
def test_the_answer_of_an_async_model_is_written_in_a_thread_if_that_takes_long(
    backend: str, count: int, is_binary: bool, is_in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    make_reply = Inference.reply

    async def predict(request: InferenceRequest) -> Outputs:
        threads.append(threading.get_ident())
        return request.values

    def reply(inference: Inference, outputs: Outputs, header: RequestHeader) -> Reply:
        threads.append(threading.get_ident())
        return make_reply(inference, outputs, header)

    monkeypatch.setattr(Inference, "reply", reply)
    with server_here(ModelRegistry.of([Model(name="m", predict=predict)]), backend=backend) as (_, address):
        with Wire(address) as wire:
            assert wire.send(_request("m", count, is_binary=is_binary)).response().status == 200
        assert (threads[0] != threads[1]) is is_in_thread


@pytest.mark.parametrize("model", ["thread", "async"])
def test_if_no_thread_can_be_started_the_client_is_told_to_come_back(
    backend: str, model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(_: object) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    registry = ModelRegistry.of([Model(name="thread", predict=_inputs), Model(name="async", predict=_inputs_later)])
    request = _request(model, LARGE, is_binary=False)
    with server_here(registry, backend=backend) as (server, address), Wire(address) as wire:
        with monkeypatch.context() as broken:
            broken.setattr(threads, "_Worker", start)
            broken.setattr(threads, "_IDLE", [])
            answer = wire.send(request).response()
        assert (answer.status, answer.fields["retry-after"]) == (503, "1")
        assert answer.error == "no thread for the model can be started"
        assert wire.send(request).response().status == 200
        assert wire.send(GET_LIVE).response().status == 200
        assert (server.reserved_bytes, server.abandoned_calls) == (0, 0)
    assert [record.getMessage() for record in caplog.records] == ["cannot start a thread: can't start new thread"]


@pytest.mark.slow
def test_rows_that_hang_end_with_the_models_time_and_their_thread_keeps_the_memory_it_works_on(backend: str) -> None:
    go_on = threading.Event()

    def hang(request: InferenceRequest) -> Outputs:
        def windows() -> Iterator[Window]:
            yield request.inputs["x"][:1]
            go_on.wait(SECONDS)
            yield request.inputs["x"][1:]

        return {"x": Rows("FP32", (LARGE,), windows())}

    registry = ModelRegistry.of([Model(name="m", predict=hang), Model(name="other", predict=_inputs)])
    options = ServerOptions(model_timeout=0.2, max_workers=1)
    with server_here(registry, options, backend=backend) as (server, address):
        try:
            with Wire(address) as wire, pytest.raises(ConnectionError):
                wire.send(infer_request("m", count=LARGE)).response()
            until(lambda: server.abandoned_calls == 1)
            assert server.unfinished_calls == 1
            assert server.reserved_bytes > 4 * LARGE
            with Wire(address) as wire:  # the thread has the only place
                assert wire.send(infer_request("other")).response().status == 503
        finally:
            go_on.set()
        until(lambda: (server.unfinished_calls, server.reserved_bytes) == (0, 0))
        with Wire(address) as wire:
            assert floats(wire.send(infer_request("other")).response()) == [0, 1, 2, 3]


def test_asynchronous_rows_that_hang_are_ended_with_the_models_time(backend: str) -> None:
    ended = threading.Event()

    async def windows() -> AsyncIterator[Window]:
        yield np.zeros(1, np.float32)
        try:
            await anyio.sleep(SECONDS)
        finally:
            ended.set()

    async def hang(_: InferenceRequest) -> Mapping[str, Rows]:
        return {"x": Rows("FP32", (4,), windows())}

    registry = ModelRegistry.of([Model(name="m", predict=hang)])
    with server_here(registry, ServerOptions(model_timeout=0.2), backend=backend) as (server, address):
        with Wire(address) as wire, pytest.raises(ConnectionError):
            wire.send(infer_request("m")).response()
        assert ended.is_set()
        until(lambda: server.reserved_bytes == 0)
        assert server.abandoned_calls == 0


def _doubled(request: InferenceRequest) -> Outputs:
    rows = request.rows["x"]
    return {"x": Rows(rows.datatype, rows.shape, (2 * window for window in synchronous(rows)))}


async def _doubled_later(request: InferenceRequest) -> Outputs:
    rows = request.rows["x"]
    return {"x": Rows(rows.datatype, rows.shape, (2 * window async for window in rows.windows))}


@pytest.mark.slow
@pytest.mark.parametrize("predict", [_doubled, _doubled_later])
def test_the_time_in_which_rows_wait_for_their_client_is_not_the_models(backend: str, predict: Any) -> None:  # noqa: ANN401 - of two kinds
    registry = ModelRegistry.of([Model(name="m", predict=predict, windows=Windows(max_window_bytes=64))])
    request = infer_request("m", count=100)
    with (
        server_here(registry, ServerOptions(model_timeout=0.3), backend=backend) as (server, address),
        Wire(address) as wire,
    ):
        wire.send(request[:-100])
        time.sleep(0.5)
        assert floats(wire.send(request[-100:]).response())[-1] == 198
        assert server.abandoned_calls == 0


def test_rows_are_closed_when_their_client_has_gone(backend: str) -> None:
    closed = threading.Event()

    async def windows() -> AsyncIterator[Window]:
        try:
            while True:
                yield np.zeros(LARGE, np.float32)
        finally:
            closed.set()

    async def endless(_: InferenceRequest) -> Mapping[str, Rows]:
        return {"x": Rows("FP32", (1 << 40,), windows())}

    with server_here(ModelRegistry.of([Model(name="m", predict=endless)]), backend=backend) as (_, address):
        with Wire(address) as wire:
            wire.send(infer_request("m"))
            assert wire.sock.recv(1000)
        assert closed.wait(SECONDS)


class _OwnError(BaseException):
    pass


ANYTHING = [GeneratorExit, asyncio.CancelledError, SystemExit, KeyboardInterrupt, StopAsyncIteration, _OwnError]


@pytest.mark.parametrize("error", ANYTHING)
def test_a_model_may_raise_anything(backend: str, error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: InferenceRequest) -> Outputs:
        raise error

    async def fail_later(request: InferenceRequest) -> Outputs:
        if request.inputs["x"].size > 1:
            await anyio.lowlevel.checkpoint()
        raise error

    registry = ModelRegistry.of([Model(name="m", predict=fail), Model(name="later", predict=fail_later)])
    with server_here(registry, backend=backend) as (_, address), Wire(address) as wire:
        for model, count in (("m", 1), ("later", 1), ("later", 2)):
            answer = wire.send(infer_request(model, count=count)).response()
            assert (answer.status, answer.is_last) == (500, False)
            assert answer.error == f"model '{model}' failed with {error.__name__}"
    assert {record.getMessage() for record in caplog.records} == {
        f"model {name!r} version '1' failed" for name in ("m", "later")
    }


@pytest.mark.parametrize("error", ANYTHING)
@pytest.mark.parametrize("place", ["rows", "asynchronous rows", "end of asynchronous rows"])
def test_rows_may_raise_anything(backend: str, error: type[BaseException], place: str) -> None:
    def windows() -> Iterator[Window]:
        yield np.zeros(1, np.float32)
        raise error

    async def windows_later() -> AsyncIterator[Window]:
        yield np.zeros(1, np.float32)
        await anyio.lowlevel.checkpoint()
        raise error

    async def windows_too_long() -> AsyncIterator[Window]:
        try:
            yield np.zeros(5, np.float32)
        finally:
            raise error

    made: dict[str, Callable[[], Any]] = {
        "rows": windows,
        "asynchronous rows": windows_later,
        "end of asynchronous rows": windows_too_long,
    }

    def answer(_: InferenceRequest) -> Outputs:
        return {"x": Rows("FP32", (4,), made[place]())}

    registry = ModelRegistry.of([Model(name="m", predict=answer), Model(name="other", predict=_inputs)])
    with server_here(registry, backend=backend) as (_, address), Wire(address) as other:
        assert other.send(GET_LIVE).response().status == 200
        with Wire(address) as wire, pytest.raises(ConnectionError):
            wire.send(infer_request("m")).response()
        assert floats(other.send(infer_request("other")).response()) == [0, 1, 2, 3]


def test_a_coroutine_that_is_closed_ends_with_it() -> None:
    assert is_ending(GeneratorExit())
    assert is_ending(KeyboardInterrupt())

    async def run() -> list[bool]:
        return [is_ending(GeneratorExit()), is_ending(KeyboardInterrupt()), is_ending(SystemExit())]

    assert anyio.run(run) == [False, True, False]
