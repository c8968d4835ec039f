"""Crowds: what many requests at once, or a moment without memory, do to those who wait for the same model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from streamcodec import Limits, Tensor, encode_request
from streamcodec.formats.v2.header.parsing import parse_request_header
from streamcodec.runtime.batches import queue as queues
from streamcodec.runtime.batches.queue import QueuedMember, queue_of
from streamcodec.runtime.models.threads import current_loop
from streamcodec.runtime.models.workers import Workers
from streamcodec.server import ServerOptions
from streamcodec.server.connection import channels
from streamcodec.service import Batch, Budget, InferenceRequest, Model, ModelRegistry, Reservation
from streamcodec.service.models.model import Outputs
from streamcodec.transports import turns
from tests.server.programs import server_here
from tests.server.wire import Answer, Wire, floats, head
from tests.waiting import until

KINDS = {"inline": True, "thread": False}

_HEADER = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"parameters":{"binary_data_size":4}}]}'


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _double(request: InferenceRequest) -> Outputs:
    return {"y": request.inputs["x"] * 2}


def _models(batch: Batch, kind: str = "thread") -> ModelRegistry:
    return ModelRegistry.of([Model(name="net", predict=_double, batch=batch, is_inline=KINDS[kind])])


def _row(value: float, count: int = 1, request_id: str | None = None) -> bytes:
    """Make a request with one row of so many equal values."""
    row = np.full((1, count), value, np.float32)
    message = encode_request(
        [Tensor(name="x", array=row)], request_id=request_id, parameters={"binary_data_output": True}
    )
    lines = [f"{name}: {value}" for name, value in message.headers]
    return b"".join((head("/v2/models/net/infer", *lines), *message.buffers))


def _id(answer: Answer) -> str:
    length = int(answer.fields["inference-header-content-length"])
    return str(json.loads(answer.body[:length])["id"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_pipelined_requests_that_fill_the_scratch_memory_are_answered_in_order(
    backend: str, kind: str, delay: float
) -> None:
    """A request waits for its batch where its bytes have come, and the transport needs room to read on."""
    with server_here(_models(Batch(max_rows=8, max_delay=delay), kind), backend=backend) as (_, address):
        for _ in range(10):
            with Wire(address) as wire:
                wire.send(b"".join(_row(index, 3000) for index in range(12)))
                assert [floats(wire.response()) for _ in range(12)] == [[2.0 * index] * 3000 for index in range(12)]


class _Crowd:
    """Many requests in the queue of one model, none of which goes with another."""

    def __init__(self, count: int) -> None:
        self.model = Model(
            name="net", predict=_double, batch=Batch(max_delay=0.01, max_queue_rows=count), is_inline=True
        )
        self.left = count
        self._count = count

    def _done(self) -> None:
        self.left -= 1

    def put(self) -> None:
        """Put them into the queue of the running event loop."""
        header, workers = parse_request_header(_HEADER, Limits()), Workers(1, 1)
        queue, reservation = queue_of(self.model, current_loop()), Reservation(Budget(1 << 20))
        for index in range(self._count):
            inputs = {"x": np.zeros((1, 1), np.float32)}
            request = InferenceRequest(inputs=inputs, header=header, model_name="net", model_version="1")
            member = QueuedMember(request, reservation, self._done, key=index)
            queue.put(member, cast("Callable[[object], Outputs]", lambda outputs: outputs), workers)


@pytest.mark.parametrize("is_over", [True, False], ids=["turns over", "turns"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_crowd_of_batches_needs_no_stack_and_takes_turns(
    backend: str, is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "is_over", lambda: is_over)
    crowd = _Crowd(2000)

    async def main() -> int:
        crowd.put()
        others = 0
        while crowd.left:
            await anyio.lowlevel.checkpoint()
            others += crowd.left < 2000
        return others

    others = anyio.run(main, backend=backend)
    assert others > 1000 if is_over else others < 1000


@pytest.mark.parametrize("place", ["arranged", "_Running", "calls_of"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_cannot_begin_for_want_of_memory_is_refused_and_the_next_one_is_called(
    backend: str, kind: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_here(_models(Batch(max_rows=4, max_delay=30.0), kind), backend=backend) as (_, address):
        wires = [Wire(address) for _ in range(4)]
        with monkeypatch.context() as patch:
            patch.setattr(queues, place, _raise)
            assert [answer.status for answer in _together(wires)] == [503] * 4
        assert [floats(answer) for answer in _together(wires)] == [[2.0 * index] for index in range(4)]
        for wire in wires:
            wire.sock.close()


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
def test_an_answer_for_which_there_is_no_memory_closes_its_connection_alone(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later answer would be taken for it."""
    put, first = channels.Outbox.put, [True]

    def fail_once(self: channels.Outbox, transport: asyncio.Transport, data: bytes) -> None:
        if first and first.pop():
            raise MemoryError
        put(self, transport, data)

    with server_here(_models(Batch(max_rows=4, max_delay=30.0)), backend=backend) as (_, address):
        wires = [Wire(address) for _ in range(4)]
        monkeypatch.setattr(channels.Outbox, "put", fail_once)
        for index, wire in enumerate(wires):
            wire.send(_row(index, request_id=f"{index}"), _row(9, request_id="next") if index == 0 else b"")
        answered = []
        for wire in wires:
            try:
                answered.append(_id(wire.response()))
            except ConnectionError:
                answered.append("none")
            wire.sock.close()
    assert answered.count("none") == 1
    assert all(found in {f"{index}", "none"} for index, found in enumerate(answered))


def test_an_answer_that_cannot_be_written_ends_its_connection_and_no_other() -> None:
    class Transport(asyncio.Transport):
        def __init__(self, *, is_short: bool) -> None:
            super().__init__()
            self._is_short = is_short
            self.written: list[bytes] = []
            self.is_aborted = False

        def is_closing(self) -> bool:
            return False

        def write(self, data: Any) -> None:  # noqa: ANN401 - of the base class
            if self._is_short:
                raise MemoryError
            self.written.append(bytes(data))

        def abort(self) -> None:
            self.is_aborted = True

    async def main() -> None:
        outbox = channels.Outbox()
        short, other = Transport(is_short=True), Transport(is_short=False)
        for transport in (short, other):
            outbox.put(transport, b"one ")
            outbox.put(transport, b"two")
        outbox.flush()
        assert (short.is_aborted, other.is_aborted, other.written) == (True, False, [b"one two"])

    asyncio.run(main())


def test_the_memory_of_a_request_that_waits_for_its_batch_is_counted(backend: str) -> None:
    batch = Batch(max_rows=2, max_delay=30.0)
    with server_here(_models(batch), backend=backend) as (server, address), Wire(address) as one, Wire(address) as two:
        one.send(_row(1, 1000))
        until(lambda: server.reserved_bytes >= 4000)
        two.send(_row(2, 1000))
        assert [floats(wire.response())[0] for wire in (one, two)] == [2.0, 4.0]
        until(lambda: server.reserved_bytes == 0)


@pytest.mark.parametrize("delay", [0.01, 0.6])
def test_a_request_that_is_larger_than_all_memory_is_refused_however_soon_its_batch_is_called(
    backend: str, delay: float
) -> None:
    models, options = _models(Batch(max_rows=8, max_delay=delay)), ServerOptions(max_memory_bytes=8 << 10)
    with server_here(models, options, backend=backend) as (_, address), Wire(address) as wire:
        assert [wire.send(_row(1, count)).response().status for count in (4000, 4000, 100)] == [413, 413, 200]


def _raise(*_: object) -> None:
    raise MemoryError


def _together(wires: list[Wire]) -> list[Answer]:
    for index, wire in enumerate(wires):
        wire.send(_row(index))
    return [wire.response() for wire in wires]
