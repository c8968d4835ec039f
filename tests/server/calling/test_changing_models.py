"""Models that change while the server runs: no answer is of a model that has gone, and none is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from streamcodec import Limits, Tensor, encode_request
from streamcodec.http import ServerConnection
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service, TensorMetadata
from streamcodec.service.models.model import Outputs
from tests.server.connection.test_express import Counting, answers
from tests.server.programs import server_here
from tests.server.wire import Wire, head


def _model(value: float, *, is_inline: bool = True) -> Model:
    """A model whose answers say which one it is."""

    def predict(request: InferenceRequest) -> Outputs:
        return {"y": request.inputs["x"] * 0 + np.float32(value)}

    return Model(name="m", predict=predict, is_inline=is_inline)


def _request(count: int = 4) -> bytes:
    message = encode_request([Tensor(name="x", array=np.zeros(count, np.float32))])
    lines = [f"{name}: {value}" for name, value in message.headers]
    return b"".join((head("/v2/models/m/infer", *lines), *message.buffers))


REQUEST = _request()


def _data(answer: bytes) -> bytes:
    return answer.partition(b'"data":')[2].rstrip(b"}]")


@pytest.mark.parametrize("is_replaced", [True, False])
def test_what_is_remembered_is_never_of_a_model_that_has_gone(is_replaced: bool) -> None:
    models = ModelRegistry.of([_model(1)])
    service = Service(models)
    express = Counting(service)
    for _ in range(3):
        assert _data(answers(service, express, REQUEST)[0]) == b"[1.0,1.0,1.0,1.0"
    assert express.count == 3
    if is_replaced:
        models.replace(_model(2))
    else:
        models.remove("m")
        assert answers(service, express, REQUEST)[0].startswith(b"HTTP/1.1 404 ")
        models.add(_model(2))
    express.count = 0
    for _ in range(3):
        assert _data(answers(service, express, REQUEST)[0]) == b"[2.0,2.0,2.0,2.0"
    assert express.count == 3, "the quick way is found again"


def test_what_is_remembered_of_refusals_and_metadata_ends_with_the_models() -> None:
    models = ModelRegistry.of([])
    service = Service(models)
    express = RequestCache(service)
    told = head("/v2/models/m", method="GET")

    def asked() -> list[tuple[bytes, bytes]]:
        found = [(answers(service, express, one)[0], answers(service, express, one)[0]) for one in (told, REQUEST)]
        assert all(first == second for first, second in found)
        return [(first[9:12], first.partition(b"\r\n\r\n")[2]) for first, _ in found]

    assert [status for status, _ in asked()] == [b"404", b"404"]
    models.add(Model(name="m", predict=_model(1).predict, is_inline=True, inputs=(TensorMetadata("x", "INT8", (4,)),)))
    (told_status, document), (status, error) = asked()
    assert (told_status, status) == (b"200", b"400")
    assert b'"INT8"' in document
    assert b"the datatype is FP32, the model takes INT8" in error
    models.replace(_model(1))
    (told_status, document), (status, _) = asked()
    assert (told_status, status) == (b"200", b"200")
    assert b'"INT8"' not in document
    models.remove("m")
    assert [status for status, _ in asked()] == [b"404", b"404"]


@pytest.mark.parametrize(("count", "is_kept"), [(1, True), (500, False)])
def test_long_metadata_is_not_kept_for_each_way_to_ask_for_it(count: int, is_kept: bool) -> None:
    inputs = tuple(TensorMetadata(f"x{index}", "FP32", (4,)) for index in range(count))
    express = RequestCache(Service(ModelRegistry.of([Model(name="m", predict=_model(1).predict, inputs=inputs)])))
    incoming = ServerConnection(Limits()).incoming
    for _ in range(2):
        incoming.feed(told := head("/v2/models/m", method="GET"))
        recognized = express.find(incoming)
        assert recognized is not None
        reply = express.reply(recognized, incoming)
        assert reply is not None
        assert (recognized.text, recognized.reply is reply) == (told, is_kept)


def test_a_model_that_is_not_ready_is_not_asked_on_the_quick_way() -> None:
    is_ready = [True]
    model = Model(name="m", predict=lambda request: request.inputs, is_inline=True, ready=lambda: is_ready[0])
    service = Service(ModelRegistry.of([model]))
    express = Counting(service)
    assert answers(service, express, REQUEST)[0].startswith(b"HTTP/1.1 200 ")
    is_ready[0] = False
    assert answers(service, express, REQUEST)[0].startswith(b"HTTP/1.1 503 ")
    is_ready[0] = True
    assert answers(service, express, REQUEST)[0].startswith(b"HTTP/1.1 200 ")
    assert express.count == 2


def test_another_registry_is_another_memory() -> None:
    """What one server remembers is its own."""
    services = [Service(ModelRegistry.of([_model(value)])) for value in (1, 2)]
    expresses = [RequestCache(service) for service in services]
    for _ in range(2):
        found = [_data(answers(*both, REQUEST)[0])[:4] for both in zip(services, expresses, strict=True)]
        assert found == [b"[1.0", b"[2.0"]


@pytest.fixture(params=[True, False], ids=["inline", "in a thread"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[ModelRegistry, tuple[str, int], bool]]:
    """A registry, the address of a server of it, and whether its model is inline."""
    models = ModelRegistry.of([_model(0, is_inline=request.param)])
    with server_here(models) as (_, address):
        yield models, address, request.param


def _value(wire: Wire) -> float:
    answer = wire.response()
    assert answer.status == 200
    value: float = answer.document["outputs"][0]["data"][0]
    return value


def test_a_connection_sees_each_change(served: tuple[ModelRegistry, tuple[str, int], bool]) -> None:
    models, address, is_inline = served
    with Wire(address) as wire:
        for value in range(1, 6):
            assert _value(wire.send(REQUEST)) == value - 1
            models.replace(_model(value, is_inline=is_inline))
            assert _value(wire.send(REQUEST)) == value
        models.remove("m")
        assert wire.send(REQUEST).response().status == 404
        models.add(_model(9, is_inline=is_inline))
        assert _value(wire.send(REQUEST)) == 9


@pytest.mark.slow
@pytest.mark.parametrize("is_removed", [True, False])
def test_a_request_that_has_begun_ends_with_its_model(
    served: tuple[ModelRegistry, tuple[str, int], bool], is_removed: bool
) -> None:
    models, address, is_inline = served
    long = _request(100_000)
    with Wire(address) as wire:
        wire.send(long[:1000])
        time.sleep(0.2)  # the head has been read
        if is_removed:
            models.remove("m")
        else:
            models.replace(_model(1, is_inline=is_inline))
        assert _value(wire.send(long[1000:])) == 0
        assert wire.send(REQUEST).response().status == (404 if is_removed else 200)


@pytest.mark.slow
def test_changes_by_another_thread_lose_no_request(served: tuple[ModelRegistry, tuple[str, int], bool]) -> None:
    models, address, is_inline = served
    has_ended = threading.Event()
    last = 0

    def change() -> None:
        nonlocal last
        while not has_ended.is_set():
            last += 1
            models.replace(_model(last, is_inline=is_inline))
            time.sleep(0.001)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with Wire(address) as wire:
            seen = [_value(wire.send(REQUEST)) for _ in range(300)]
    finally:
        has_ended.set()
        thread.join()
    assert seen == sorted(seen), "an answer was of an older model than the one before"
    with Wire(address) as wire:
        assert _value(wire.send(REQUEST)) == np.float32(last)
