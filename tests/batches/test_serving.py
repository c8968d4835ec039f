"""Serving batches: a real server, real clients at once, and what each of them gets."""

from __future__ import annotations

import gc
import json
import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from streamcodec import ErrorCode, RemoteProtocolError, Tensor, encode_request, wsgi
from streamcodec.client import Client, ServerError
from streamcodec.server import ServerOptions
from streamcodec.server.connection import channels, disconnects
from streamcodec.service import (
    Batch,
    InferenceRequest,
    Model,
    ModelRegistry,
    Observer,
    RequestRecord,
    RowError,
    Service,
    StatisticsObserver,
)
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import Wire, floats, head, infer_request
from tests.waiting import until
from tests.wsgi.requests import ask, environ_of, message_of

Array = np.ndarray[Any, Any]

ALL = Batch(max_rows=8, max_delay=30.0)
"""A batch that is closed when all of eight clients have come, however slow the machine is."""


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Net:
    """Doubles its input, and keeps the shapes that it was called with. It refuses what it is told to."""

    def __init__(self, refuse: Callable[[Array], Outputs | None] = lambda _: None) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.headers: list[Any] = []
        self._refuse = refuse

    def __call__(self, request: InferenceRequest) -> Outputs:
        x = request.inputs["x"]
        self.shapes.append(x.shape)
        self.headers.append(request.header)
        outputs = self._refuse(x)
        return {"y": x * 2} if outputs is None else outputs


def _models(net: Net, batch: Batch, kind: str) -> ModelRegistry:
    async def later(request: InferenceRequest) -> Outputs:
        await anyio.lowlevel.checkpoint()
        return net(request)

    inline = {"inline": True, "thread": False}.get(kind)
    return ModelRegistry.of(
        [Model(name="net", predict=later if kind == "async" else net, batch=batch, is_inline=inline)]
    )


def _infer(address: tuple[str, int], x: Array, **options: Any) -> Array | ServerError:  # noqa: ANN401
    with Client("http://{}:{}".format(*address)) as client:
        try:
            return client.infer("net", {"x": x}, **options)["y"]
        except ServerError as error:
            return error


def _all(address: tuple[str, int], inputs: Sequence[Array]) -> list[Array | ServerError]:
    with ThreadPoolExecutor(len(inputs)) as pool:
        return list(pool.map(lambda x: _infer(address, x), inputs))


def _rows(*counts: int) -> list[Array]:
    first = iter(range(1000))
    return [np.array([[next(first)] * 3 for _ in range(count)], np.float32).reshape(count, 3) for count in counts]


def _check(inputs: Sequence[Array], answers: Sequence[Array | ServerError], *, failed: Sequence[int] = ()) -> None:
    for index, (x, y) in enumerate(zip(inputs, answers, strict=True)):
        if index in failed:
            assert isinstance(y, ServerError), index
        else:
            assert isinstance(y, np.ndarray), y
            assert y.tolist() == (x * 2).tolist()


@pytest.mark.parametrize("kind", ["thread", "inline", "async"])
def test_the_rows_of_several_clients_are_one_call_and_each_gets_its_own(backend: str, kind: str) -> None:
    net, inputs = Net(), _rows(1, 2, 1, 3, 1)
    with server_here(_models(net, ALL, kind), backend=backend) as (_, address):
        _check(inputs, _all(address, inputs))
    assert net.shapes == [(8, 3)]
    assert net.headers[0].id is None
    assert net.headers[0].tensors[0].shape == (8, 3)


@pytest.mark.parametrize("kind", ["thread", "inline", "async"])
@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_one_client_alone_does_not_wait_for_others_for_ever(backend: str, kind: str, delay: float) -> None:
    net, inputs = Net(), _rows(2)
    with server_here(_models(net, Batch(max_delay=delay), kind), backend=backend) as (_, address):
        _check(inputs, _all(address, inputs))
        _check(inputs, _all(address, inputs))
    assert net.shapes == [(2, 3)] * 2


def test_requests_that_differ_do_not_go_together(backend: str) -> None:
    net = Net()
    inputs = [np.ones((2, 3), np.float32), np.ones((2, 4), np.float32), np.ones((2, 3), np.int32)]
    batch = Batch(max_rows=4, max_delay=30.0)
    with server_here(_models(net, batch, "thread"), backend=backend) as (_, address):
        _check(inputs * 2, _all(address, inputs * 2))
    assert sorted(net.shapes) == [(4, 3), (4, 3), (4, 4)]


def _poison(x: Array) -> None:
    if (x == 3).any():
        raise ValueError("a row is poison")


def _named(x: Array) -> None:
    if bad := np.flatnonzero((x == 3).any(axis=1)).tolist():
        raise RowError({row: ValueError("a row is poison") for row in bad})


def _named_with_outputs(x: Array) -> None:
    if bad := np.flatnonzero((x == 3).any(axis=1)).tolist():
        raise RowError({row: ValueError("a row is poison") for row in bad}, {"y": x * 2})


def _fewer(x: Array) -> Outputs:
    return {"y": x[(x != 3).all(axis=1)] * 2}


@pytest.mark.parametrize("kind", ["thread", "async"])
@pytest.mark.parametrize(
    ("refuse", "calls"),
    [(_poison, 9), (_named, 2), (_named_with_outputs, 1), (_fewer, 9)],
    ids=lambda value: str(value)[:12],
)
def test_an_input_that_the_model_refuses_fails_no_others(
    backend: str, kind: str, refuse: Callable[[Array], Outputs | None], calls: int
) -> None:
    net, inputs = Net(refuse), _rows(*[1] * 8)
    with server_here(_models(net, ALL, kind), backend=backend) as (_, address):
        answers = _all(address, inputs)
    _check(inputs, answers, failed=[3])
    assert isinstance(answers[3], ServerError)
    assert answers[3].status == 500
    assert len(net.shapes) == calls


@pytest.mark.parametrize("kind", ["thread", "inline", "async"])
@pytest.mark.parametrize("refuse", [_poison, _named, _named_with_outputs], ids=lambda value: str(value)[:12])
def test_the_inputs_of_a_call_that_failed_wait_for_no_collector(
    backend: str, kind: str, refuse: Callable[[Array], Outputs | None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)  # a record that is kept keeps the traceback
    kept: list[weakref.ref[Array]] = []

    def watched(x: Array) -> Outputs | None:
        kept.append(weakref.ref(x))
        return refuse(x)

    with server_here(_models(Net(watched), ALL, kind), backend=backend) as (server, address):
        gc.collect()
        gc.disable()
        try:
            _all(address, _rows(*[1] * 8))
            until(lambda: (server.requests_in_progress, server.reserved_bytes) == (0, 0))
            until(lambda: all(found() is None for found in kept))
        finally:
            gc.enable()


def test_a_failed_call_is_not_tried_again_if_the_model_does_not_want_that(backend: str) -> None:
    net, inputs = Net(_poison), _rows(*[1] * 8)
    batch = Batch(max_rows=8, max_delay=30.0, retry_alone=False)
    with server_here(_models(net, batch, "thread"), backend=backend) as (_, address):
        _check(inputs, _all(address, inputs), failed=range(8))
    assert len(net.shapes) == 1


def test_an_error_of_the_protocol_keeps_its_status_and_belongs_to_one(backend: str) -> None:
    def refuse(x: Array) -> None:
        if (x == 3).any():
            raise RemoteProtocolError("3 is not wanted", code=ErrorCode.MODEL_MISMATCH, status_hint=422)

    net, inputs = Net(refuse), _rows(*[1] * 8)
    with server_here(_models(net, ALL, "thread"), backend=backend) as (_, address):
        answers = _all(address, inputs)
    _check(inputs, answers, failed=[3])
    assert isinstance(answers[3], ServerError)
    assert answers[3].status == 422


def test_more_rows_than_may_wait_are_told_to_come_back(backend: str) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def predict(request: InferenceRequest) -> Outputs:
        entered.set()
        assert go_on.wait(60)
        return {"y": request.inputs["x"] * 2}

    batch = Batch(max_rows=2, max_delay=0.0, max_queue_rows=2)
    model = Model(name="net", predict=predict, batch=batch, is_inline=False)
    first, second, third = _rows(1, 2, 1)
    with server_here(ModelRegistry.of([model]), backend=backend) as (_, address), ThreadPoolExecutor(2) as pool:
        running = pool.submit(_infer, address, first)
        assert entered.wait(60)
        waiting = pool.submit(_infer, address, second)
        until(lambda: [queue.rows for queue in model.queues.values()] == [2])
        refused = _infer(address, third)
        go_on.set()
        _check([first, second], [running.result(60), waiting.result(60)])
    assert isinstance(refused, ServerError)
    assert refused.status == 503
    assert refused.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"x": np.ones((9, 3), np.float32)}, "9 rows, and the model takes 8"),
        ({"x": np.float32(1)}, "no dimension for rows"),
        ({"x": np.ones((2, 3)), "z": np.ones((3, 3))}, "3 rows, and the first one 2"),
    ],
)
def test_what_cannot_be_a_part_of_a_batch_is_refused(inputs: dict[str, Array], text: str) -> None:
    with (
        server_here(_models(Net(), ALL, "thread")) as (_, address),
        Client("http://{}:{}".format(*address)) as client,
        pytest.raises(ServerError, match=text) as caught,
    ):
        client.infer("net", inputs)
    assert caught.value.status == 400


@pytest.mark.parametrize("kind", ["thread", "inline"])
def test_under_wsgi_the_threads_of_requests_wait_for_each_other(kind: str) -> None:
    net, inputs = Net(), _rows(*[1] * 8)
    app = wsgi.App(Service(_models(net, ALL, kind)))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda x: _ask(app, x), inputs))
    _check(inputs, answers)
    assert net.shapes == [(8, 3)]


def test_under_wsgi_a_request_alone_waits_for_its_time_only() -> None:
    net, inputs = Net(_poison), _rows(2, 2)
    app = wsgi.App(Service(_models(net, Batch(max_delay=0.001), "thread")))
    assert [_ask(app, x).tolist() for x in inputs[:1]] == [(inputs[0] * 2).tolist()]
    assert ask(app, environ_of(message_of(inputs[1]), "/v2/models/net/infer")).status == 500
    assert net.shapes == [(2, 3)] * 2


def test_under_wsgi_more_rows_than_may_wait_are_told_to_come_back() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def predict(request: InferenceRequest) -> Outputs:
        entered.set()
        assert go_on.wait(60)
        return {"y": request.inputs["x"] * 2}

    model = Model(name="net", predict=predict, batch=Batch(max_rows=2, max_delay=0.0, max_queue_rows=2))
    app = wsgi.App(Service(ModelRegistry.of([model])))
    first, second, third = _rows(1, 2, 1)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(_ask, app, first)
        assert entered.wait(60)
        waiting = pool.submit(_ask, app, second)
        until(lambda: [queue.rows for queue in model.queues.values()] == [2])
        refused = ask(app, environ_of(message_of(third), "/v2/models/net/infer"))
        go_on.set()
        _check([first, second], [running.result(60), waiting.result(60)])
    assert (refused.status, refused.fields["Retry-After"]) == (503, "1")


def _ask(app: wsgi.App, x: Array) -> Array:
    message = message_of(x, parameters={"binary_data_output": True})
    return ask(app, environ_of(message, "/v2/models/net/infer")).outputs["y"]


class Kept(Observer):
    """Keeps the records of requests for models."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def request_ended(self, request: RequestRecord) -> None:
        self.records.append(request)


def test_observers_and_statistics_tell_the_batch(backend: str) -> None:
    net, inputs, kept = Net(), _rows(1, 2, 5), Kept()
    models = _models(net, ALL, "thread")
    observers = [kept, StatisticsObserver(models)]
    with server_here(models, backend=backend, observer=observers) as (_, address):
        _check(inputs, _all(address, inputs))
        until(lambda: len(kept.records) == 3)
        with Wire(address) as wire:
            document = json.loads(wire.send(head("/v2/models/net/stats", method="GET")).response().body)
    places = sorted(
        [record.batch for record in kept.records if record.batch is not None], key=lambda place: place.index
    )
    assert [(place.rows, place.requests, place.index, place.reason) for place in places] == [
        (8, 3, index, "full") for index in range(3)
    ]
    assert sorted(place.own_rows for place in places) == [1, 2, 5]
    for record in kept.records[:3]:
        assert record.batch is not None
        assert record.waiting_seconds >= record.batch.waited
        assert record.model_seconds >= 0
    [counted] = document["model_stats"]
    assert (counted["inference_count"], counted["execution_count"]) == (8, 1)
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in counted["batch_stats"]] == [(8, 1)]


def test_a_client_that_leaves_takes_only_its_rows_with_it(backend: str) -> None:
    net, inputs = Net(), _rows(*[1] * 8)
    models = _models(net, ALL, "thread")
    queues = models.find("net", None).queues
    with server_here(models, backend=backend) as (_, address), ThreadPoolExecutor(8) as pool:
        seven = [pool.submit(_infer, address, x) for x in inputs[:6]]
        with Wire(address) as wire:
            wire.send(infer_request("net", count=1))
            until(lambda: [queue.rows for queue in queues.values()] == [7])
        until(lambda: [queue.rows for queue in queues.values()] == [6])
        seven += [pool.submit(_infer, address, x) for x in _rows(2)]
        answers = [waiting.result(60) for waiting in seven]
    _check([*inputs[:6], *_rows(2)], answers)
    assert net.shapes == [(8, 3)]


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_leaves_gives_its_place_in_the_queue_back_at_once(
    backend: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks from time to time here: the end of the connection itself is noticed, and the client asked once."""
    monkeypatch.setattr(channels, "_CALL_SECONDS", 3600.0)
    monkeypatch.setattr(disconnects, "_LOOK_SECONDS", 3600.0)
    models = _models(Net(), Batch(max_rows=4, max_delay=3600.0, max_queue_rows=4), "thread")
    queues = models.find("net", None).queues
    with server_here(models, backend=backend) as (_, address):
        for _ in range(3):
            with Wire(address) as wire:
                wire.send(infer_request("net", count=1) * count)
                until(lambda: [queue.rows for queue in queues.values()] == [1])
            until(lambda: [queue.rows for queue in queues.values()] == [0])


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
def test_a_client_that_leaves_gives_the_memory_of_its_rows_back_at_once(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reservation ends when it leaves. If a timer still referred to its rows, they would be outside the budget."""
    monkeypatch.setattr(channels, "_CALL_SECONDS", 3600.0)
    service = Service(_models(Net(), Batch(max_rows=4, max_delay=3600.0), "thread"))
    pool = service.pool
    assert pool is not None
    row = np.zeros((1, 1 << 20), np.float32)
    message = encode_request([Tensor(name="x", array=row)])
    lines = [f"{name}: {value}" for name, value in message.headers]
    with server_here(service, backend=backend) as (server, address):
        for _ in range(3):
            with Wire(address) as wire:
                wire.send(head("/v2/models/net/infer", *lines), *map(bytes, message.buffers))
                until(lambda: server.reserved_bytes >= 4 * row.nbytes)
                assert pool.idle_bytes == 0
            until(lambda: pool.idle_bytes == 4 * row.nbytes)
            assert server.reserved_bytes == 0


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
def test_a_client_that_only_ends_its_direction_gets_its_answer(backend: str) -> None:
    net = Net()
    models = _models(net, Batch(max_rows=2, max_delay=3600.0), "thread")
    queues = models.find("net", None).queues
    with server_here(models, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("net", count=1))
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.response(has_body=False).status == 100
        assert [queue.rows for queue in queues.values()] == [1]
        with Wire(address) as other:
            assert other.send(infer_request("net", count=1)).response().status == 200
        assert wire.response().status == 200
        assert wire.is_closed()
    assert net.shapes == [(2,)]


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_call_that_takes_too_long_is_given_up_and_others_go_on(backend: str, kind: str) -> None:
    """The time limit is that of each request; a call is given up when nobody waits for it any more."""
    go_on, calls = threading.Event(), list[int]()

    def predict(request: InferenceRequest) -> Outputs:
        calls.append(len(request.inputs["x"]))
        if len(calls) == 1:
            assert go_on.wait(60)
        return {"y": request.inputs["x"] * 2}

    async def later(request: InferenceRequest) -> Outputs:
        calls.append(len(request.inputs["x"]))
        if len(calls) == 1:
            await anyio.sleep_forever()
        return {"y": request.inputs["x"] * 2}

    batch = Batch(max_rows=2, max_delay=30.0)
    model = Model(name="net", predict=later if kind == "async" else predict, batch=batch, is_inline=False)
    options = ServerOptions(model_timeout=1.0)
    with server_here(ModelRegistry.of([model]), options, backend=backend) as (server, address):
        late = _all(address, _rows(1, 1))
        inputs = _rows(1, 1)
        _check(inputs, _all(address, inputs))
        go_on.set()
        until(lambda: server.load().unfinished_calls == 0 and server.load().reserved_bytes == 0)
    assert [answer.status for answer in late if isinstance(answer, ServerError)] == [504, 504]
    assert calls == [2, 2]


def test_a_request_whose_batch_never_begins_is_told_to_come_back() -> None:
    batch = Batch(max_rows=2, max_delay=30.0)
    with server_here(_models(Net(), batch, "thread"), ServerOptions(model_timeout=0.05)) as (_, address):
        answer = _infer(address, np.ones((1, 3), np.float32))
    assert isinstance(answer, ServerError)
    assert answer.status == 503


@pytest.mark.parametrize("kind", ["thread", "inline", "async"])
def test_requests_of_one_connection_are_answered_in_their_order(backend: str, kind: str) -> None:
    net = Net()
    with (
        server_here(_models(net, Batch(max_delay=0.001), kind), backend=backend) as (_, address),
        Wire(address) as wire,
    ):
        wire.send(b"".join(infer_request("net", count=count) for count in (1, 2, 3)) + infer_request("net", count=65))
        assert [wire.response().status for _ in range(4)] == [200, 200, 200, 400]
    assert net.shapes == [(1,), (2,), (3,)]


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
def test_a_request_whose_model_goes_away_while_it_waits_leaves_nothing_for_the_next(backend: str) -> None:
    """It has come whole, and not begun. When it begins, its model is another one; its place is not that of the next."""
    net, models = Net(), _models(Net(), Batch(max_rows=64, max_delay=3600.0), "thread")
    queues = models.find("net", None).queues
    models.add(Model(name="other", predict=net, batch=Batch(max_delay=0.0)))
    with server_here(models, backend=backend) as (_, address), Wire(address) as wire:
        assert wire.send(head("/v2/health/live", method="GET")).response().status == 200
        wire.send(infer_request("net", count=1))
        until(lambda: [queue.rows for queue in queues.values()] == [1])
        models.remove("net")
        wire.send(infer_request("other", count=2), infer_request("other", count=3))
        assert wire.response().status == 404
        assert [len(floats(wire.response())) for _ in range(2)] == [2, 3]
    assert net.shapes == [(2,), (3,)]


@pytest.mark.parametrize("rows", [1, 1 << 16])
def test_a_model_may_take_its_time_and_its_answers_may_be_large(backend: str, rows: int) -> None:
    """Longer than a request waits without its task; and an answer as JSON that is too long for an event loop."""

    def predict(request: InferenceRequest) -> Outputs:
        time.sleep(0.4)
        return {"y": np.repeat(request.inputs["x"], rows, axis=1) * 2}

    model = Model(name="net", predict=predict, batch=Batch(max_rows=2, max_delay=30.0))
    with server_here(ModelRegistry.of([model]), backend=backend) as (_, address), ThreadPoolExecutor(2) as pool:
        inputs = [np.full((1, 1), value, np.float32) for value in (1, 2)]
        answers = list(pool.map(lambda x: _infer(address, x, parameters={"binary_data_output": False}), inputs))
    for x, y in zip(inputs, answers, strict=True):
        assert isinstance(y, np.ndarray)
        assert y.tolist() == [[2 * x.item()] * rows]


def test_honest_clients_beside_others(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """One trickles, one leaves again and again, one sends what the model refuses: nobody else notices."""
    net, is_over = Net(_poison), threading.Event()
    batch = Batch(max_rows=16, max_delay=0.002)
    with server_here(_models(net, batch, "thread"), backend=backend) as (_, address), ThreadPoolExecutor(12) as pool:

        def trickle() -> None:
            message = infer_request("net", count=3)
            with Wire(address) as wire:
                wire.send(message[:-8])
                for at in range(len(message) - 8, len(message)):
                    is_over.wait(0.05)
                    wire.send(message[at : at + 1])
                assert wire.response().status == 200

        def leave() -> None:
            while not is_over.is_set():
                with Wire(address) as wire:
                    wire.send(infer_request("net", count=3))
                is_over.wait(0.002)

        def poison() -> None:
            while not is_over.is_set():
                assert isinstance(_infer(address, np.full((1, 3), 3, np.float32)), ServerError)

        def honest(client: int) -> None:
            for number in range(20):
                x = np.full((1 + number % 3, 3), 100 + client * 20 + number, np.float32)
                _check([x], [_infer(address, x)])

        others = [pool.submit(other) for other in (trickle, leave, poison)]
        try:
            list(pool.map(honest, range(8)))
        finally:
            is_over.set()
        for other in others:
            other.result(60)
    gc.collect()  # a task that has failed is reported when it is collected
    assert not [record for record in caplog.records if record.name == "asyncio"]
