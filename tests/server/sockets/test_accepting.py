"""Accepting: many connections at once are accepted at once, but begun over several turns of the event loop.

Who comes last of many does not wait until all of them have begun.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack

import anyio
import pytest
from anyio.lowlevel import checkpoint

from streamcodec.server import Server, open_listener
from streamcodec.server.connection.driver import Driver
from streamcodec.server.sockets.accepting import accept_connections
from streamcodec.service import Service
from tests.server.models import models
from tests.server.wire import GET_LIVE

COUNT = 100


class _Counting(Server):
    """Notes in which turn each connection begins."""

    def __init__(self) -> None:
        super().__init__(Service(models()))
        self.turn = 0
        self.began: list[int] = []

    async def _serve(self, sock: socket.socket, _: Driver) -> None:
        self.began.append(self.turn)
        sock.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_connections_begin_some_at_a_time(backend: str) -> None:
    async def main() -> Counter[int]:
        server = _Counting()

        async def tick() -> None:
            while True:
                server.turn += 1
                await checkpoint()

        listener = open_listener("127.0.0.1", 0)
        with ExitStack() as clients:
            for _ in range(COUNT):
                clients.enter_context(socket.create_connection(listener.getsockname()))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick)
                tasks.start_soon(server.serve, listener)
                with anyio.fail_after(60):
                    while len(server.began) < COUNT:
                        await checkpoint()
                server.stop()
                tasks.cancel_scope.cancel()
        return Counter(server.began)

    began = anyio.run(main, backend=backend)
    assert max(began.values()) <= 8, "four; where the order within a turn is chance, those of two turns"
    assert len(began) <= COUNT // 4 + 4, "and not one by one"


async def _begin_all(count: int, room: int, sending: dict[int, bytes] | None = None) -> tuple[list[int], int]:
    """Return in which order connections begin that come at once, and how many waited with the first of them.

    Some may be `sending` something at once.
    """
    order: list[int] = []
    left: list[int] = []
    with open_listener("127.0.0.1", 0) as listener, ExitStack() as stack:
        listener.setblocking(False)
        clients = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(count)]
        names = [client.getsockname() for client in clients]
        for number, data in (sending or {}).items():
            clients[number].sendall(data)

        def begin(sock: socket.socket) -> None:
            order.append(names.index(sock.getpeername()))
            left.append(_queued(listener))
            sock.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept_connections, listener, begin, lambda: room)
            with anyio.fail_after(60):
                while len(order) < count:
                    await checkpoint()
            tasks.cancel_scope.cancel()
    return order, count - left[0] - 1


def _queued(listener: socket.socket) -> int:
    """Return how many connections the system has for a listener."""
    return listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)[24]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_who_comes_last_of_many_begins_soon_and_the_others_in_their_order(backend: str) -> None:
    order, _ = anyio.run(_begin_all, COUNT, COUNT, backend=backend)
    assert order.index(COUNT - 1) < 12, "in the turn after all have been accepted"
    assert all(place <= first * 4 / 3 + 8 for first, place in enumerate(map(order.index, range(COUNT))))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_health_check_among_many_begins_soon(backend: str) -> None:
    checks = dict.fromkeys(range(30, 40), GET_LIVE)
    order, _ = anyio.run(_begin_all, COUNT, COUNT, {**checks, 20: b"POST / HTTP/1.1"}, backend=backend)
    places = [*map(order.index, range(COUNT))]
    assert places[39] < places[20]
    assert max(places[30:40]) < 30
    assert max(places[:5]) < 30, "and the oldest go on meanwhile"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_more_connections_wait_than_there_are_places(backend: str) -> None:
    order, waiting = anyio.run(_begin_all, COUNT, 10, backend=backend)
    assert waiting < 10
    assert sorted(order) == [*range(COUNT)]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_who_has_not_begun_is_closed_when_no_more_are_accepted(backend: str) -> None:
    begun: list[socket.socket] = []

    async def main() -> None:
        with open_listener("127.0.0.1", 0) as listener, ExitStack() as stack:
            listener.setblocking(False)
            clients = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(20)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(accept_connections, listener, begun.append, lambda: COUNT)
                while not begun:
                    await checkpoint()
                tasks.cancel_scope.cancel()
            for sock in begun:
                sock.close()
            for client in clients:
                client.settimeout(60)
                assert client.recv(1) == b""

    anyio.run(main, backend=backend)
    assert len(begun) < 20
