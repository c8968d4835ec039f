"""Ten thousand requests that break off, in every place: afterwards nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import anyio
import numpy as np
import pytest

from streamcodec import Rows, Windows, encode_request
from streamcodec.asgi import App
from streamcodec.asgi.app import Message
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service
from tests.asgi.client import Exchanged
from tests.asgi.test_app import scope_for

pytestmark = pytest.mark.slow

COUNT: Final = 10_000
X: Final = np.arange(100_000, dtype=np.float32)
OPTIONS: Final = ServerOptions(max_workers=4, read_timeout=0.2, write_timeout=0.2, model_timeout=0.5)


def _double(request: InferenceRequest) -> dict[str, Any]:
    return {"y": request.inputs["x"] * 2}


async def _awaited(request: InferenceRequest) -> dict[str, Any]:
    await anyio.sleep(0.001)
    return _double(request)


def _rows(request: InferenceRequest) -> dict[str, Any]:
    def windows() -> Iterator[np.ndarray[Any, Any]]:
        yield from (window * 2 for window in request.rows["x"].windows)

    return {"y": Rows("FP32", request.rows["x"].shape, windows())}


def _service() -> Service:
    windows = Windows(max_window_bytes=64 << 10)
    return Service(
        ModelRegistry.of(
            [
                Model(name="plain", predict=_double),
                Model(name="quick", predict=_double, is_inline=True),
                Model(name="awaited", predict=_awaited),
                Model(name="rows", predict=_rows, windows=windows),
            ]
        )
    )


class _FaultError(Exception):
    """What a framework may raise where it sends to a client that has left."""


async def _one(app: App, chance: random.Random, bodies: dict[int, tuple[Any, bytes]]) -> None:
    """Ask for something, and break it off somewhere."""
    count = chance.choice([*bodies])
    message, body = bodies[count]
    model = chance.choice(["plain", "quick", "awaited", "rows"])
    scope = scope_for(message, f"/v2/models/{model}/infer")
    cut = chance.choice([0, 10, 200, len(body) // 2, len(body)])
    pieces = [body[start : start + 50_000] for start in range(0, cut, 50_000)]
    exchanged = Exchanged(deque(pieces), is_cut=cut < len(body) or chance.random() < 0.3)
    sends = chance.choice([0, 1, 3, 1000])

    async def send(_: Message) -> None:
        nonlocal sends
        await anyio.lowlevel.checkpoint()
        if sends <= 0:
            raise _FaultError
        sends -= 1

    with anyio.move_on_after(chance.choice([0.0, 0.0005, 0.003, 1.0])):
        with suppress(_FaultError, RuntimeError):  # of the server, of a model amid its answer
            await app(scope, exchanged.receive, send)


def test_nothing_is_left_of_requests_that_break_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)  # records that are kept hold tracebacks, and these hold arrays
    service = _service()
    app = App(service, OPTIONS)
    chance = random.Random(7)  # noqa: S311 - no secret
    bodies = {}
    for count in (16, 20_000, 100_000):
        message = encode_request({"x": X[:count]}, parameters={"binary_data_output": True})
        bodies[count] = message, b"".join(message.buffers)

    async def main() -> tuple[int, int, int]:
        for _ in range(COUNT // 8):
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(_one, app, chance, bodies)
        with anyio.fail_after(60):
            while app.frontend.workers.unfinished:  # noqa: ASYNC110 - threads tell nobody
                await anyio.sleep(0.01)
        await anyio.sleep(0.1)
        return len(asyncio.all_tasks()), app.frontend.workers.unfinished, threading.active_count()

    tasks, unfinished, threads = anyio.run(main)
    assert tasks == 1
    assert unfinished == 0
    assert threads <= 1 + OPTIONS.max_workers + OPTIONS.max_windowed_requests
    gc.collect()
    assert app.frontend.budget.reserved == 0
    assert service.pool is not None
    assert service.pool.reused_bytes == 0
