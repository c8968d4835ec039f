"""Pipelining: a thousand requests in one write are answered in many turns of the event loop, with others in between."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session
from streamcodec.service import InferenceRequest, Model, Service
from streamcodec.service.models.model import Outputs
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request
from tests.stalls import STALL_SECONDS, slowness

pytestmark = pytest.mark.slow

Address = tuple[str, int]
COUNT = 600
UNKNOWN = head("/v2/models/nobody", method="GET")
PIPELINED = {
    "known": GET_LIVE * COUNT,
    "unique": b"".join(head(f"/v2/health/live?{number}", method="GET") for number in range(COUNT)),
    "refused": UNKNOWN * COUNT,
    "inferences": infer_request() * COUNT,
    "mixed": (GET_LIVE * 20 + UNKNOWN + infer_request()) * (COUNT // 22),
}


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def _ticking(backend: str, seconds: list[float]) -> Iterator[Address]:
    """Serve, and collect the CPU time of each turn of the event loop while the model `tick` is called."""
    import anyio  # noqa: PLC0415 - only here

    has_ended = threading.Event()

    async def tick(request: InferenceRequest) -> Outputs:
        while not has_ended.is_set():
            began = time.thread_time()
            await anyio.lowlevel.checkpoint()
            seconds.append(time.thread_time() - began)
        return dict(request.inputs)

    registry = models()
    registry.add(Model(name="tick", predict=tick))
    with server_here(registry, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("tick"))
        gc.collect()
        gc.disable()  # of all that the tests have made
        try:
            yield address
        finally:
            gc.enable()
            has_ended.set()
            assert wire.response().status == 200


@pytest.mark.quiet
@pytest.mark.parametrize("kind", PIPELINED)
def test_no_turn_is_long_however_many_requests_come_at_once(backend: str, kind: str) -> None:
    seconds: list[float] = []
    data = PIPELINED[kind]
    with _ticking(backend, seconds) as address:
        wires = [Wire(address) for _ in range(4)]
        for wire in wires:
            wire.sock.setsockopt(6, 1, 1)
        senders = [threading.Thread(target=wire.send, args=(data,)) for wire in wires]
        for sender in senders:
            sender.start()
        for wire in wires:
            statuses = [wire.response().status for _ in range(data.count(b"HTTP/1.1\r\n"))]
            assert set(statuses) <= {200, 404}
            wire.sock.close()
        for sender in senders:
            sender.join()
    assert len(seconds) > 50
    # 5 ms at most were seen.
    assert max(seconds) < STALL_SECONDS * slowness(), (
        "one client's part would be a tenth of a second, and four of them may share a turn"
    )


@pytest.mark.quiet
@pytest.mark.parametrize("kind", PIPELINED)
def test_others_are_answered_meanwhile(backend: str, kind: str) -> None:
    data = PIPELINED[kind]
    with server_here(models(), backend=backend) as (_, address), Wire(address) as flood, Wire(address) as good:
        assert good.send(GET_LIVE).response().status == 200
        has_ended = threading.Event()

        def pump() -> None:
            while not has_ended.is_set():
                flood.send(data)
                for _ in range(data.count(b"HTTP/1.1\r\n")):
                    flood.response()

        sender = threading.Thread(target=pump)
        sender.start()
        try:
            times = []
            for _ in range(20):
                began = time.monotonic()
                assert good.send(GET_LIVE).response().status == 200
                with Wire(address) as new:
                    assert new.send(GET_LIVE).response().status == 200
                times.append(time.monotonic() - began)
        finally:
            has_ended.set()
            sender.join()
    times.sort()
    assert times[10] < 0.15 * slowness()


def test_requests_that_wait_for_their_turn_are_answered_in_order_and_to_the_last(backend: str) -> None:
    counts = [1 + number % 50 for number in range(500)]
    with server_here(models(), backend=backend) as (_, address), Wire(address) as wire:
        data = b"".join(infer_request(count=count) for count in counts)
        sender = threading.Thread(target=wire.send, args=(data[:-1],))
        sender.start()
        sizes = [len(wire.response().body) for _ in counts[:-1]]
        sender.join()
        sizes.append(len(wire.send(data[-1:]).response().body))
        by_count = dict(zip(counts, sizes, strict=True))
        assert sizes == [by_count[count] for count in counts]
        assert wire.send(GET_LIVE).response().status == 200


def test_who_stops_sending_is_answered_all_that_waits(backend: str) -> None:
    with server_here(models(), backend=backend) as (_, address), Wire(address) as wire:
        wire.send(GET_LIVE * COUNT)
        wire.sock.shutdown(1)
        assert [wire.response().status for _ in range(COUNT)] == [200] * COUNT
        assert wire.is_closed()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_wait_that_is_looked_at_meanwhile_loses_nothing(loop: str) -> None:
    options = ServerOptions(idle_timeout=0.004, head_timeout=60, header_timeout=60, read_timeout=60)  # a look each ms
    with server_here(models(), options, backend=loop) as (_, address), Wire(address) as wire:
        wire.send(GET_LIVE * COUNT)
        assert [wire.response().status for _ in range(COUNT)] == [200] * COUNT


# The session


def test_a_session_takes_so_many_events_at_once() -> None:
    tensors = ",".join(f'{{"name":"{n}","datatype":"INT8","shape":[1],"data":[1]}}' for n in range(200))
    body = b'{"inputs":[%b]}' % tensors.encode()
    registry = models()
    registry.add(Model(name="takes", predict=lambda request: dict(request.inputs)))
    service = Service(registry)
    session = Session(service, RequestCache(service), Admission(ServerOptions()))
    request = head("/v2/models/takes/infer", f"Content-Length: {len(body)}") + body
    turns = 0
    while request or (event := session.next_event()) in {NEED_DATA, NEED_TURN}:
        if (event := session.next_event()) is NEED_TURN:
            turns += 1
            session.work()
        elif event is NEED_DATA:
            buffer = session.get_buffer()
            size = min(len(buffer), len(request))
            buffer[:size], request = cast("memoryview", request[:size]), request[size:]
            session.buffer_updated(size)
        else:
            break
    assert turns >= 3
