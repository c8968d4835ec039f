"""One way to have any model called, for programs that read requests by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from streamcodec import EndOfMessage, LocalProtocolError, Rows, Windows, encode_request
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.server import call_model
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, Reply, Service
from streamcodec.transports import turns
from streamcodec.transports.sockets.vectors import async_batches
from tests.service.requests import answer, head

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def begun(predict: Any, inputs: Any = None, **options: Any) -> tuple[Inference, list[HttpEvent]]:  # noqa: ANN401 - any
    """Return a request that has come as far as its model needs it, and the events that are left."""
    service = Service(ModelRegistry.of([Model(name="m", predict=predict, **options)]))
    message = encode_request(inputs or {"x": X}, parameters={"binary_data_output": True})
    inference = service.begin(head("/v2/models/m/infer", "POST", message.headers, message.body_length))
    assert isinstance(inference, Inference)
    inference.decoder.feed(b"".join(message.buffers))
    events: list[HttpEvent] = []
    while not (events and isinstance(events[-1], EndOfMessage)):
        events.append(inference.decoder.next_event())  # type: ignore[arg-type] # there is all of it
    needed = 1 if options.get("windows") else len(events)
    for event in events[:needed]:
        inference.receive(event)
    assert inference.header is not None
    return inference, events[needed:]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_model_is_called_whatever_it_is(backend: str, is_async: bool) -> None:
    threads: list[int] = []

    def predict(request: InferenceRequest) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"y": request.inputs["x"] * 2}

    async def async_predict(request: InferenceRequest) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return predict(request)

    inference, _ = begun(async_predict if is_async else predict)
    reply: Reply = anyio.run(call_model, inference, backend=backend)
    assert np.array_equal(answer(reply).outputs["y"], X * 2)
    assert (threads == [threading.get_ident()]) is is_async


@pytest.mark.parametrize("is_async", [False, True])
def test_windows_are_pulled(is_async: bool) -> None:
    def predict(request: InferenceRequest) -> dict[str, Any]:
        return {"y": np.concatenate([window.copy() for window in request.rows["x"].windows])}

    async def async_predict(request: InferenceRequest) -> dict[str, Any]:
        return {"y": np.concatenate([window.copy() async for window in request.rows["x"].windows])}

    inference, events = begun(async_predict if is_async else predict, windows=Windows(max_window_bytes=1 << 10))

    async def pull() -> HttpEvent:
        return events.pop(0)

    assert np.array_equal(answer(anyio.run(call_model, inference, pull)).outputs["y"], X)
    assert events == []


def test_without_a_way_to_pull_windows_that_is_said() -> None:
    inference, _ = begun(lambda _: {}, windows=Windows(max_window_bytes=1 << 10))
    with pytest.raises(LocalProtocolError, match="takes windows"):
        anyio.run(call_model, inference)


def test_a_request_that_has_not_come_is_misuse() -> None:
    service = Service(ModelRegistry.of([Model(name="m", predict=lambda _: {})]))
    inference = service.begin(head("/v2/models/m/infer", "POST", length=10))
    assert isinstance(inference, Inference)
    with pytest.raises(LocalProtocolError, match="after the last event"):
        anyio.run(call_model, inference)


def test_rows_never_make_the_event_loop_wait() -> None:
    threads: set[int] = set()

    def predict(_: InferenceRequest) -> dict[str, Any]:
        def windows() -> Iterator[np.ndarray[Any, Any]]:
            threads.add(threading.get_ident())
            yield X

        return {"y": Rows("FP32", (3, 2), windows())}

    inference, _ = begun(predict)

    async def main() -> bytes:
        reply = await call_model(inference)
        return b"".join([bytes(view) async for batch in async_batches(reply.buffers) for view in batch])

    assert anyio.run(main).endswith(X.tobytes())
    assert threads.isdisjoint({threading.get_ident()})


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("is_over", [False, True])
def test_a_reply_waits_for_a_turn_if_this_one_is_over(
    backend: str, is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    async def wait(_: turns.Turns, source: object = None) -> None:
        waits.append(source)

    monkeypatch.setattr(turns.Turns, "is_over", lambda *_: is_over)
    monkeypatch.setattr(turns.Turns, "wait", wait)
    inference, _ = begun(lambda request: {"y": request.inputs["x"]})
    anyio.run(call_model, inference, backend=backend)
    assert len(waits) == is_over


@pytest.mark.parametrize("count", [1000, 2500])
def test_many_inputs_are_freed_each_piece_in_a_turn_of_its_own(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = 0
    work_off = turns.work_off

    def counted(work: Iterator[object]) -> Iterator[object]:
        nonlocal pieces
        for piece in work:
            pieces += 1
            yield piece

    monkeypatch.setattr(turns, "work_off", lambda work: work_off(counted(work)))
    inference, _ = begun(lambda _: {"y": X}, {str(number): np.zeros(1, np.int8) for number in range(count)})
    anyio.run(call_model, inference)
    assert pieces == (count - 1) // 1000
    assert (inference.header is None) is (count > 1000)
