"""A replica, without Ray: what Ray calls, and what clients of its port see meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError
from streamcodec.asgi import App
from streamcodec.client import Client
from streamcodec.ray import Replica, app_builder
from streamcodec.ray.autoscaling import LOAD, REQUESTS
from streamcodec.ray.resources import SHUTDOWN_SECONDS, processors, replica_options
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Observer, RequestRecord, Service
from tests.benchmarks import load
from tests.ports import free_port
from tests.transports.certificates import client_side, server_side

OPTIONS = ServerOptions(max_memory_bytes=1 << 20, shutdown_timeout=5.0)
X = np.arange(16, dtype=np.float32)


async def _later(request: InferenceRequest) -> Any:  # noqa: ANN401 - arrays by name
    await asyncio.sleep(0.3)
    return dict(request.inputs)


def make_service() -> Service:
    quick = Model(name="quick", predict=lambda request: dict(request.inputs), is_inline=True)
    return Service(ModelRegistry.of([quick, Model(name="later", predict=_later)]))


@asynccontextmanager
async def replica(port: int, **arguments: Any) -> AsyncIterator[Replica]:  # noqa: ANN401 - of the constructor
    made = Replica(make_service, port=port, options=OPTIONS, **arguments)
    try:
        yield made
    finally:
        await made.drain()


async def ask(port: int, model: str = "quick") -> bool:
    def infer() -> bool:
        with Client(f"http://127.0.0.1:{port}") as client:
            return bool(np.array_equal(client.infer(model, {"x": X})["x"], X))

    return await asyncio.to_thread(infer)


def test_serves_when_it_is_made_and_until_it_is_drained() -> None:
    async def main() -> None:
        port = free_port()
        async with replica(port) as made:
            assert await made.address() == ("127.0.0.1", port)
            await made.check_health()
            assert await ask(port)
        with pytest.raises(ConnectionError):
            await ask(port)
        await made.check_health()  # it was told to end

    asyncio.run(main())


def test_speaks_tls() -> None:
    async def main() -> None:
        port = free_port()

        def infer() -> bool:
            with Client(f"https://127.0.0.1:{port}", ssl_context=client_side()) as client:
                return bool(np.array_equal(client.infer("quick", {"x": X})["x"], X))

        async with replica(port, make_ssl_context=server_side):
            assert await asyncio.to_thread(infer)

    asyncio.run(main())


def test_processors_are_those_that_are_reserved() -> None:
    assert processors({"CPU": 4.0}) == 4.0
    assert processors({"CPU": 0.5}) == processors({}) == processors() == 1.0


@pytest.mark.slow
def test_replicas_share_a_port_and_one_that_ends_loses_no_request() -> None:
    async def main() -> None:
        port = free_port()
        async with replica(port):
            async with replica(port):
                assert all(await asyncio.gather(*(ask(port) for _ in range(20))))
                under_way = [asyncio.create_task(ask(port, "later")) for _ in range(8)]
                await asyncio.sleep(0.15)
            assert all(await asyncio.gather(*under_way))
            assert all([await ask(port) for _ in range(5)])

    asyncio.run(main())


def test_what_ray_calls_before_it_ends_a_replica_waits_for_the_requests_in_progress() -> None:
    async def main() -> None:
        port = free_port()
        made = Replica(make_service, port=port, options=OPTIONS)
        under_way = asyncio.create_task(ask(port, "later"))
        await asyncio.sleep(0.15)
        assert (await made.record_autoscaling_stats())[REQUESTS] == 1.0
        waiting = made.__del__()
        assert waiting is not None
        await waiting
        assert await under_way
        assert made.__del__() is None

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [0.0, 0.2])  # 0: the machine has stalled
def test_those_who_have_connected_are_served_although_nobody_has_accepted_them_yet(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamcodec.ray.replica._BEGINNING_SECONDS", seconds)

    async def main() -> None:
        port = free_port()
        message = load.message_for(64)
        whole = (
            b"POST /v2/models/quick/infer HTTP/1.1\r\nHost: x\r\n"
            + b"".join(f"{name}: {value}\r\n".encode() for name, value in message.headers)
            + b"\r\n"
            + b"".join(bytes(buffer) for buffer in message.buffers)
        )
        made = Replica(make_service, port=port, options=OPTIONS)
        await asyncio.sleep(0.05)
        # The loop does not run meanwhile, so they wait at the socket.
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(closing(socket.create_connection(("127.0.0.1", port)))) for _ in range(100)]
            for sock in socks:
                sock.sendall(whole)
            await made.drain()
            assert all(sock.recv(1 << 16).startswith(b"HTTP/1.1 200 ") for sock in socks)

    asyncio.run(main())


def test_a_constructor_that_fails_leaves_nothing() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
            Replica(make_service, port=taken.getsockname()[1], options=OPTIONS)

    asyncio.run(main())


def test_a_server_that_has_ended_by_itself_is_not_healthy() -> None:
    async def main() -> None:
        made = Replica(make_service, port=0, options=OPTIONS)
        await asyncio.sleep(0.05)
        made._serving.cancel()  # noqa: SLF001 - nothing that a client sends ends it
        with contextlib.suppress(asyncio.CancelledError):
            await made._serving  # noqa: SLF001
        with pytest.raises(RuntimeError, match="has ended"):
            await made.check_health()

    asyncio.run(main())


def test_reports_its_load() -> None:
    async def main() -> None:
        async with replica(free_port()) as made:
            await asyncio.sleep(0.05)
            stats = await made.record_autoscaling_stats()
            assert 0 <= stats[LOAD] <= 1
            assert stats[REQUESTS] == 0.0

    asyncio.run(main())


def test_a_connection_without_a_request_is_no_request() -> None:
    async def main() -> None:
        port = free_port()
        async with replica(port) as made:
            with closing(socket.create_connection(("127.0.0.1", port))):
                await asyncio.sleep(0.1)
                assert (await made.record_autoscaling_stats())[REQUESTS] == 0.0

    asyncio.run(main())


def test_observers_are_told() -> None:
    class Statuses(Observer):
        seen: list[int | None] = []  # noqa: RUF012 - of one test

        def request_ended(self, request: RequestRecord) -> None:
            self.seen.append(request.status)

    async def main() -> None:
        port = free_port()
        async with replica(port, make_observers=lambda _: [Statuses()]):
            assert await ask(port)

    asyncio.run(main())
    assert Statuses.seen == [200]


def test_half_of_the_reserved_memory_is_for_requests() -> None:
    options = replica_options(None, {"CPU": 1.0, "memory": float(1 << 30)})
    assert options.max_memory_bytes == 1 << 29
    assert options.shutdown_timeout == SHUTDOWN_SECONDS


@pytest.mark.parametrize("resources", [{}, {"CPU": 1.0}, {"memory": 1.0}])
def test_a_replica_does_not_take_half_of_the_machine(resources: dict[str, float]) -> None:
    with pytest.raises(LocalProtocolError, match="ray_actor_options"):
        replica_options(None, resources)


def test_options_that_are_given_are_taken() -> None:
    assert replica_options(OPTIONS, {}) is OPTIONS


def test_the_builder_makes_a_new_application_each_time() -> None:
    build = app_builder(make_service, OPTIONS)
    first, second = build(), build()
    assert isinstance(first, App)
    assert first.frontend.service is not second.frontend.service
