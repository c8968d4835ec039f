"""Accepting: many connections at once are accepted at once, but begun over several turns of the event loop."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from streamcodec.server import Server, open_listener
from streamcodec.service import Service
from tests.server.models import models

COUNT = 100


class _Counting(Server):
    """Notes in which turn each connection begins."""

    def __init__(self) -> None:
        super().__init__(Service(models()))
        self.turn = 0
        self.began: list[int] = []

    async def _connection(self, sock: socket.socket, outbox: Any) -> None:  # noqa: ANN401, ARG002
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
                with anyio.fail_after(10):
                    while len(server.began) < COUNT:
                        await checkpoint()
                server.stop()
                tasks.cancel_scope.cancel()
        return Counter(server.began)

    began = anyio.run(main, backend=backend)
    assert max(began.values()) <= 8, "four; where the order within a turn is chance, those of two turns"
    assert len(began) <= COUNT // 4 + 4, "and not one by one"
