"""Assembly: rows that the network writes one after the other, and clients that are late, cut off or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from streamcodec import Tensor, encode_request
from streamcodec.client import Client
from streamcodec.server import Server
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import Wire, chunked, head
from tests.waiting import until

Array = np.ndarray[Any, Any]

_WIDTH = 40_000
"""Values of a row: 160 KB, more than what comes with its head."""


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Net:
    """Sums its rows, and keeps how many it was called with, and whether they were copied."""

    def __init__(self, batch: Batch) -> None:
        self.calls: list[tuple[int, bool]] = []
        self.model = Model(name="net", predict=self, batch=batch, is_inline=False)

    def __call__(self, request: InferenceRequest) -> Outputs:
        x = request.inputs["x"]
        self.calls.append((len(x), bool(x.flags.writeable)))
        return {"y": x.sum(axis=1, keepdims=True)}

    @property
    def waiting(self) -> list[int]:
        return [queue.rows for queue in self.model.queues.values()]


@contextmanager
def _serving(net: Net, backend: str, **options: Any) -> Iterator[tuple[Server, tuple[str, int]]]:  # noqa: ANN401
    with server_here(ModelRegistry.of([net.model]), backend=backend, **options) as (server, address):
        yield server, address
        until(lambda: server.load().reserved_bytes == 0)


def _row(value: float, rows: int = 1) -> Array:
    return np.full((rows, _WIDTH), value, np.float32)


def _message(value: float, *, is_chunked: bool = False) -> bytes:
    message = encode_request([Tensor(name="x", array=_row(value))])
    fields = [f"{name}: {text}" for name, text in message.headers]
    body = b"".join(map(bytes, message.buffers))
    if not is_chunked:
        return head("/v2/models/net/infer", *fields) + body
    fields = [field for field in fields if not field.startswith("Content-Length")]
    return head("/v2/models/net/infer", "Transfer-Encoding: chunked", *fields) + chunked(body, [len(body) // 2])


def _infer(address: tuple[str, int], x: Array) -> float:
    with Client("http://{}:{}".format(*address)) as client:
        return float(client.infer("net", {"x": x})["y"][-1, 0])


def _all(address: tuple[str, int], values: Sequence[float]) -> list[float]:
    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(lambda value: _infer(address, _row(value)), values))


def test_rows_of_a_full_batch_are_not_copied(backend: str) -> None:
    net = Net(Batch(max_rows=4, max_delay=3600.0))
    with _serving(net, backend) as (_, address):
        for _ in range(3):
            assert _all(address, [1.0, 2.0, 3.0, 4.0]) == [_WIDTH * value for value in (1, 2, 3, 4)]
    assert net.calls == [(4, False)] * 3


@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_framing_makes_no_difference(backend: str, *, is_chunked: bool) -> None:
    net = Net(Batch(max_rows=2, max_delay=3600.0))
    with _serving(net, backend) as (_, address), Wire(address) as one, Wire(address) as two:
        for wire, value in ((one, 1.0), (two, 2.0)):
            wire.send(_message(value, is_chunked=is_chunked))
        for wire, value in ((one, 1.0), (two, 2.0)):
            assert wire.response().document["outputs"][0]["data"] == [_WIDTH * value]
    assert net.calls == [(2, False)]


@pytest.mark.parametrize("way", ["late", "cut", "refused"])
def test_a_client_in_between_delays_nobody(backend: str, way: str) -> None:
    """The batch is closed with the rows that have come; they are gathered, because one between them is missing."""
    net = Net(Batch(max_rows=4, max_delay=0.0, max_running=1))
    with _serving(net, backend) as (server, address), ExitStack() as stack:
        first, between, last = (stack.enter_context(Wire(address)) for _ in range(3))
        messages = [_message(value) for value in (1.0, 2.0, 3.0)]
        for wire, message in zip((first, between, last), messages, strict=True):
            before = server.load().reserved_bytes
            wire.send(message[:1000])
            until(lambda before=before: server.load().reserved_bytes > before)  # type: ignore[misc]
        if way == "cut":
            between.sock.close()
            until(lambda: server.load().connections == 2)
        elif way == "refused":
            between.send(messages[1][1000:], b"\0 is no request")
        for wire, message in ((first, messages[0]), (last, messages[2])):
            wire.send(message[1000:])
        assert [wire.response().document["outputs"][0]["data"] for wire in (first, last)] == [[_WIDTH], [3 * _WIDTH]]
        if way == "late":
            between.send(messages[1][1000:])
        if way != "cut":
            assert between.response().document["outputs"][0]["data"] == [2 * _WIDTH]


def test_who_is_late_goes_together_with_others_that_are(backend: str) -> None:
    net = Net(Batch(max_rows=4, max_delay=3600.0, preferred_rows=(2,)))
    with _serving(net, backend) as (server, address), ExitStack() as stack:
        wires = [stack.enter_context(Wire(address)) for _ in range(4)]
        for value, wire in enumerate(wires):
            before = server.load().reserved_bytes
            wire.send(_message(value)[:1000])
            until(lambda before=before: server.load().reserved_bytes > before)  # type: ignore[misc]
        for turn in ((1, 3), (0, 2)):
            for value in turn:
                wires[value].send(_message(value)[1000:])
            for value in turn:
                assert wires[value].response().document["outputs"][0]["data"] == [_WIDTH * value]
    assert net.calls == [(2, True), (2, True)]


def test_a_model_that_writes_into_its_inputs_is_given_copies(backend: str) -> None:
    class Writing(Net):
        def __call__(self, request: InferenceRequest) -> Outputs:
            outputs = super().__call__(request)
            request.inputs["x"][...] = 0
            return outputs

    net = Writing(Batch(max_rows=2, max_delay=3600.0))
    with _serving(net, backend) as (_, address):
        for _ in range(2):
            assert _all(address, [1.0, 2.0]) == [_WIDTH, 2 * _WIDTH]
    assert net.calls == [(2, False), (1, True), (1, True), (2, True)]
