"""Front ends: a `Batch` means the same in the servers of others; large rows are received in their block there, too."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import numpy as np
import pytest
from aiohttp import web

from streamcodec import EncodedMessage, LocalProtocolError, Tensor, Windows, encode_request
from streamcodec.aiohttp import App as AiohttpApp
from streamcodec.asgi import App as AsgiApp
from streamcodec.client import Client
from streamcodec.ray import Replica
from streamcodec.server import ServerOptions
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry, Service
from streamcodec.wsgi import App as WsgiApp
from tests.aiohttp.test_app import ask as ask_aiohttp
from tests.aiohttp.test_app import serving
from tests.asgi.client import Exchanged, ask, scope_of
from tests.ports import free_port
from tests.service.requests import Answer
from tests.wsgi.requests import ask as ask_wsgi
from tests.wsgi.requests import environ_of

_TARGET = "/v2/models/net/infer"
_COUNT = 4
_WIDTHS = pytest.mark.parametrize("width", [16, 150_528], ids=["small", "600 KB"])


class Net:
    """Doubles rows, and keeps how many it was called with, and whether they were copied."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []

    def __call__(self, request: InferenceRequest) -> Mapping[str, Any]:
        x = request.inputs["x"]
        self.calls.append((len(x), bool(x.flags.writeable)))
        return {"y": x * 2}

    def service(self) -> Service:
        model = Model(name="net", predict=self, batch=Batch(max_rows=_COUNT, max_delay=60.0), is_inline=False)
        return Service(ModelRegistry.of([model]))


def _message(number: int, width: int) -> EncodedMessage:
    x = np.full((1, width), number, np.float32)
    return encode_request([Tensor(name="x", array=x)], parameters={"binary_data_output": True})


def _check(number: int, width: int, answer: Answer) -> None:
    assert answer.status == 200, answer.body
    assert answer.outputs["y"].tolist() == [[2.0 * number] * width]


@_WIDTHS
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_asgi(backend: str, width: int) -> None:
    net = Net()
    app = AsgiApp(net.service())

    async def one(number: int) -> None:
        message = _message(number, width)
        fields = [(name.encode(), value.encode()) for name, value in message.headers]
        body = b"".join(map(bytes, message.buffers))
        pieces = [body[:200], body[200:]]
        answer: Exchanged = await ask(app, scope_of("POST", _TARGET, fields), pieces)
        named = {name.title(): value for name, value in answer.fields.items()}
        _check(number, width, Answer(status=answer.status, fields=named, body=answer.body, cause=None))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(_COUNT):
                tasks.start_soon(one, number)

    anyio.run(main, backend=backend)
    assert net.calls == [(_COUNT, width == 16)]


@_WIDTHS
def test_aiohttp(width: int) -> None:
    net = Net()

    async def main() -> None:
        app = web.Application()
        AiohttpApp(net.service()).add_routes(app)
        async with serving(app) as port:
            answers = await asyncio.gather(
                *(ask_aiohttp(port, _message(number, width), _TARGET) for number in range(_COUNT))
            )
        for number, answer in enumerate(answers):
            _check(number, width, answer)

    anyio.run(main)
    assert net.calls == [(_COUNT, width == 16)]


@_WIDTHS
def test_wsgi(width: int) -> None:
    """The threads that receive requests share the block of their batch."""
    net = Net()
    app = WsgiApp(net.service())
    with ThreadPoolExecutor(_COUNT) as pool:
        answers = pool.map(lambda number: ask_wsgi(app, environ_of(_message(number, width), _TARGET)), range(_COUNT))
        for number, answer in enumerate(answers):
            _check(number, width, answer)
    assert net.calls == [(_COUNT, width == 16)]


def test_wsgi_with_many_threads_and_clients_that_leave() -> None:
    """Rows of several sizes, several calls at once, and bodies that end too early: each gets its own, or 400."""

    def double(request: InferenceRequest) -> Mapping[str, Any]:
        return {"y": request.inputs["x"] * 2}

    batch = Batch(max_rows=_COUNT, max_delay=0.001, max_running=2)
    model = Model(name="net", predict=double, batch=batch, is_inline=False)
    app = WsgiApp(Service(ModelRegistry.of([model])))

    def one(number: int) -> None:
        width = 20_000 + 16 * (number % 3)
        environ = environ_of(_message(number, width), _TARGET)
        if number % 5 == 0:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(50_000))
            assert ask_wsgi(app, environ).status == 400
        else:
            _check(number, width, ask_wsgi(app, environ))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(200)))
    assert app._shared.budget.reserved == 0  # noqa: SLF001 - nobody else needs it


@_WIDTHS
def test_a_replica_of_ray(width: int) -> None:
    net, port = Net(), free_port()

    def infer(number: int) -> None:
        with Client(f"http://127.0.0.1:{port}") as client:
            y = client.infer("net", {"x": np.full((1, width), number, np.float32)})["y"]
            assert y.tolist() == [[2.0 * number] * width]

    async def main() -> None:
        replica = Replica(net.service, port=port, options=ServerOptions(max_memory_bytes=1 << 30))
        try:
            await asyncio.gather(*(asyncio.to_thread(infer, number) for number in range(_COUNT)))
        finally:
            await replica.drain()

    asyncio.run(main())
    assert net.calls == [(_COUNT, width == 16)]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"windows": Windows(max_window_bytes=1 << 20)}, "windows"),
        ({"shared_inputs": True}, "shared_inputs"),
        ({"takes_elements": True}, "takes_elements"),
    ],
)
def test_what_cannot_be_put_together_is_refused_when_the_model_is_made(options: dict[str, Any], kind: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"'net' has {kind}, whose rows cannot be put together"):
        Model(name="net", predict=Net(), batch=Batch(), **options)
