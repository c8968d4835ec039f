"""Slow uploads through servers that lose what a cancelled `receive` was about to hand over, as granian does."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import anyio
import numpy as np
import pytest
import sniffio
import trio

from streamcodec import ErrorCode, RemoteProtocolError, Rows, Windows
from streamcodec.asgi import App, receive_request
from streamcodec.asgi.app import Message, Scope
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service
from tests.asgi.client import Exchanged
from tests.asgi.clock import run
from tests.asgi.test_app import infer, on_both, output

X: Final = np.arange(1 << 16, dtype=np.float32)
PIECE_BYTES: Final = 64 << 10

SECONDS: Final = 14.0
"""Between two pieces: more than the time between two looks, and less than any limit."""


class Losing(Exchanged):
    """A server that takes a piece, and then waits before it hands it over. If it is cancelled, the piece is lost.

    Attributes:
        cancelled: how often that happened.
        waiting: how many wait now.
        most_waiting: how many waited at once.
    """

    def __init__(self, pieces: deque[bytes], *, seconds: float = SECONDS, **options: Any) -> None:  # noqa: ANN401 - those of Exchanged
        super().__init__(pieces, **options)
        self.seconds = seconds
        self.cancelled = self.waiting = self.most_waiting = 0

    async def receive(self) -> Message:
        """Return the next message."""
        message = await super().receive()
        self.waiting += 1
        self.most_waiting = max(self.waiting, self.most_waiting)
        try:
            await anyio.sleep(self.seconds)
        except BaseException:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        return message


def losing(body: bytes, **options: Any) -> Losing:  # noqa: ANN401 - those of Exchanged
    pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
    return Losing(deque(pieces), **options)


async def task_count() -> int:
    """Return how many tasks there are when nobody has waited for a minute."""
    await anyio.sleep(60)
    if sniffio.current_async_library() == "trio":
        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


def _double(request: InferenceRequest) -> dict[str, Any]:
    return {"y": request.inputs["x"] * 2}


async def _double_rows(request: InferenceRequest) -> dict[str, Any]:
    rows = request.rows["x"]
    return {"y": Rows("FP32", rows.shape, [window * 2 async for window in rows.windows])}


WINDOWED: Final = Model(name="m", predict=_double_rows, windows=Windows(max_window_bytes=PIECE_BYTES))


@on_both
@pytest.mark.parametrize("has_empty_end", [False, True])
@pytest.mark.parametrize("http_version", ["1.1", "2"])
@pytest.mark.parametrize("model", [Model(name="m", predict=_double, is_inline=True), WINDOWED])
def test_the_service_receives_a_slow_upload(backend: str, has_empty_end: bool, http_version: str, model: Model) -> None:
    app = App(Service(ModelRegistry.of([model])), ServerOptions(model_timeout=math.inf))  # a thread has a real clock
    scope, body = infer(X)

    async def main() -> None:
        before = await task_count()
        for _ in range(3):  # the later ones know the head
            exchanged = losing(body, has_empty_end=has_empty_end)
            await app({**scope, "http_version": http_version}, exchanged.receive, exchanged.send)
            assert exchanged.status == 200, exchanged.body
            assert np.array_equal(output(exchanged), X * 2)
            assert exchanged.cancelled == 0
            assert exchanged.most_waiting == 1
        assert await task_count() == before

    run(main, backend=backend)


@on_both
def test_an_endpoint_receives_a_slow_upload(backend: str) -> None:
    scope, body = infer(X)

    async def main() -> None:
        before = await task_count()
        exchanged = losing(body)
        received = await receive_request(scope, exchanged.receive)
        assert np.array_equal(received.inputs["x"], X)
        assert exchanged.cancelled == 0
        assert exchanged.received == -(-len(body) // PIECE_BYTES), "what follows the body is left to the application"
        assert await task_count() == before

    run(main, backend=backend)


async def _ask_app(scope: Scope, exchanged: Exchanged) -> int:
    app = App(Service(ModelRegistry.of([Model(name="m", predict=_double)])))
    await app(scope, exchanged.receive, exchanged.send)
    return exchanged.status


async def _ask_endpoint(scope: Scope, exchanged: Exchanged) -> int:
    with pytest.raises(RemoteProtocolError) as caught:
        await receive_request(scope, exchanged.receive)
    assert caught.value.code is ErrorCode.TOO_SLOW
    return caught.value.status_hint


@on_both
@pytest.mark.parametrize("ask", [_ask_app, _ask_endpoint])
def test_a_wait_is_cancelled_once_when_the_time_is_over(backend: str, ask: Callable[..., Any]) -> None:
    scope, body = infer(X)

    async def main() -> None:
        before = await task_count()
        exchanged = losing(body, seconds=1000.0)
        began = anyio.current_time()
        assert await ask(scope, exchanged) == 408
        assert 30 <= anyio.current_time() - began <= 40
        assert (exchanged.cancelled, exchanged.waiting) == (1, 0)
        assert await task_count() == before

    run(main, backend=backend)


@on_both
def test_a_cancelled_endpoint_leaves_no_task(backend: str) -> None:
    scope, body = infer(X)

    async def main() -> None:
        before = await task_count()
        exchanged = losing(body)
        with anyio.move_on_after(3 * SECONDS + 1) as limit:
            await receive_request(scope, exchanged.receive)
        assert limit.cancelled_caught
        assert (exchanged.cancelled, exchanged.waiting) == (1, 0)
        assert await task_count() == before

    run(main, backend=backend)
