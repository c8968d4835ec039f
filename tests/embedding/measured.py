"""Measured: applications that are held against each other, ours and those that take the whole body first.

A whole-body application does what most do: it reads the body, parses the header, and looks at the tensors where they
lie in it. It checks nothing but the name of the model.

`own_*` are endpoints of a user's own, by `receive_request` and `send_response`; they have no models.
`dropping_*` read the body and drop it: no application can take less time than that under the same server.
`told_*` are the same applications, which also tell how much is in progress.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
from aiohttp import web

from streamcodec import MessageError, Rows, Windows, asgi, wsgi
from streamcodec.aiohttp import App, receive_request, send_response
from streamcodec.asgi.app import Receive, Scope, Send
from streamcodec.service import InferenceRequest, Model, Reply, Service, demo_models
from streamcodec.service.memory.budget import Budget
from streamcodec.service.models.model import Outputs
from streamcodec.service.replies import error_reply
from streamcodec.service.request.reception import ReceivedRequest
from streamcodec.wsgi.reading import Environ, StartResponse

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
LARGE_BYTES: Final = 256 << 20
"""Of the answer of the model `large`."""

_DTYPES: Final = {"FP32": "<f4", "UINT8": "u1"}


def _large(_: InferenceRequest) -> Outputs:
    """Answer 256 MiB that are made while they are sent."""
    window = np.zeros((1, 1 << 20), np.uint8)
    count = LARGE_BYTES // window.nbytes
    return {"y": Rows("UINT8", (count, window.nbytes), itertools.repeat(window, count))}


def _echo(request: InferenceRequest) -> Outputs:
    """Answer each window while the next ones arrive."""
    rows = request.rows["x"]
    return {"x": Rows("FP32", rows.shape, iter(rows.windows))}


def service() -> Service:
    """Return the service that is measured."""
    models = demo_models()
    models.add(Model(name="large", predict=_large))
    models.add(Model(name="echo", predict=_echo, windows=Windows(max_window_bytes=1 << 20)))
    return Service(models)


ours_asgi = asgi.App(service())


async def whole_asgi(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as `ours_asgi` does, with the whole body at once."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    pieces = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    fields = {bytes(name).decode(): bytes(value).decode() for name, value in scope["headers"]}
    if not (length := fields.get(HEADER_LENGTH.lower())):
        status, header, parts = 200, {"Content-Length": "0"}, list[bytes]()
    else:
        status, header, parts = _infer(b"".join(pieces), int(length), scope["path"].split("/")[3])
    encoded = [(name.lower().encode(), value.encode()) for name, value in header.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"".join(parts)})


async def own_asgi(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the inputs, as an endpoint of a user's own does."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    try:
        request = await asgi.receive_request(scope, receive)
    except MessageError as error:
        await asgi.send_response(send, error_reply(error))
    else:
        await asgi.send_response(send, _own(request))


async def dropping_asgi(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body and drop it."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _live(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


ours_wsgi = wsgi.App(service())


def whole_wsgi(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer as `ours_wsgi` does, with the whole body at once."""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    length = int(environ["HTTP_INFERENCE_HEADER_CONTENT_LENGTH"])
    status, header, parts = _infer(body, length, environ["PATH_INFO"].split("/")[3])
    start_response(f"{status} so", [*header.items()])
    return [b"".join(parts)]


def own_wsgi(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer with the inputs, as an endpoint of a user's own does."""
    try:
        request = wsgi.receive_request(environ)
    except MessageError as error:
        return wsgi.send_response(start_response, error_reply(error))
    return wsgi.send_response(start_response, _own(request))


def dropping_wsgi(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Read the body and drop it."""
    left = int(environ.get("CONTENT_LENGTH") or 0)
    while left and (piece := environ["wsgi.input"].read(min(left, 4 << 20))):
        left -= len(piece)
    start_response("200 OK", [("Content-Length", "0")])
    return [b""]


def ours_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make an application with our handler."""
    app = web.Application()
    App(service(), auto_decompress=auto_decompress).add_routes(app)
    return app


def whole_aiohttp(*, auto_decompress: bool) -> web.Application:  # noqa: ARG001 - as `ours_aiohttp`
    """Make an application that answers as `ours_aiohttp` does, with the whole body at once."""

    async def infer(request: web.Request) -> web.Response:
        body = await request.read()
        status, header, parts = _infer(body, int(request.headers[HEADER_LENGTH]), request.match_info["name"])
        return web.Response(status=status, headers=header, body=b"".join(parts))

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v2/models/{name}/infer", infer)
    return app


def own_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make an application that answers with the inputs, as an endpoint of a user's own does."""

    async def infer(request: web.Request) -> web.StreamResponse:
        try:
            received = await receive_request(request, auto_decompress=auto_decompress)
        except MessageError as error:
            return await send_response(request, error_reply(error))
        return await send_response(request, _own(received))

    app = web.Application()
    app.router.add_post("/v2/models/{name}/infer", infer)
    return app


def dropping_aiohttp(*, auto_decompress: bool) -> web.Application:  # noqa: ARG001 - as `ours_aiohttp`
    """Make an application that reads bodies and drops them."""

    async def drop(request: web.Request) -> web.Response:
        async for _ in request.content.iter_any():
            pass
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", drop)
    return app


def _own(request: ReceivedRequest) -> Reply:
    return request.reply(request.inputs, model_name="identity", model_version="1")


def _infer(body: bytes, header_length: int, model: str) -> tuple[int, dict[str, str], list[bytes]]:
    """Decode, call a model, and encode; return status, fields, and the parts of the answer."""
    if model not in {"sink", "identity", "echo", "large"}:
        return 404, {"Content-Length": "0"}, []
    request = json.loads(body[:header_length])
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    position = header_length
    for tensor in request["inputs"]:
        size = tensor["parameters"]["binary_data_size"]
        values = np.frombuffer(body[position : position + size], _DTYPES[tensor["datatype"]])
        inputs[tensor["name"]] = values.reshape(tensor["shape"])
        position += size
    if model == "sink":
        outputs = {"COUNT": ("INT64", np.array([sum(x.nbytes for x in inputs.values())]))}
    elif model == "large":
        outputs = {"y": ("UINT8", np.zeros(LARGE_BYTES, np.uint8))}
    else:
        outputs = {name: ("FP32", x) for name, x in inputs.items()}
    described = [
        {"name": name, "datatype": datatype, "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
        for name, (datatype, x) in outputs.items()
    ]
    text = json.dumps({"model_name": model, "model_version": "1", "outputs": described}).encode()
    parts = [text, *(x.tobytes() for _, x in outputs.values())]
    fields = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return 200, fields | {"Content-Length": str(sum(map(len, parts)))}, parts


InUse = Callable[[], int]
"""How many bytes of memory requests have."""


def _in_use(service: Service, budget: Budget) -> InUse:
    return lambda: budget.reserved + (0 if service.pool is None else service.pool.reused_bytes)


def _nothing() -> int:
    return 0


class ToldAsgi:
    """An application that tells how many requests it is called with, and how much memory they have."""

    def __init__(self, app: Callable[..., Any], in_use: InUse) -> None:
        self._app = app
        self._in_use = in_use
        self._running: set[int] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or tell."""
        if scope.get("path") == "/~/state":
            state = json.dumps([len(self._running), self._in_use()]).encode()
            fields = [(b"content-length", b"%d" % len(state))]
            await send({"type": "http.response.start", "status": 200, "headers": fields})
            await send({"type": "http.response.body", "body": state})
            return
        if scope["type"] == "http":
            self._running.add(id(scope))
        try:
            await self._app(scope, receive, send)
        finally:
            self._running.discard(id(scope))


class ToldWsgi:
    """The same for WSGI."""

    def __init__(self, app: Callable[..., Iterable[bytes]], in_use: InUse) -> None:
        self._app = app
        self._in_use = in_use
        self._running: set[int] = set()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer, or tell."""
        if environ["PATH_INFO"] == "/~/state":
            state = json.dumps([len(self._running), self._in_use()]).encode()
            start_response("200 OK", [("Content-Length", str(len(state)))])
            return [state]
        self._running.add(id(environ))
        end = partial(self._running.discard, id(environ))
        try:
            return _Ending(self._app(environ, start_response), end)
        except BaseException:
            end()
            raise


class _Ending:
    """The body of an answer that tells of its end."""

    def __init__(self, body: Iterable[bytes], end: Callable[[], object]) -> None:
        self._body = body
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Tell."""
        getattr(self._body, "close", int)()
        self._end()


told_ours_asgi = ToldAsgi(ours_asgi, _in_use(ours_asgi.frontend.service, ours_asgi.frontend.budget))
told_whole_asgi = ToldAsgi(whole_asgi, _nothing)
told_ours_wsgi = ToldWsgi(ours_wsgi, _in_use(ours_wsgi._service, ours_wsgi._shared.budget))  # noqa: SLF001 - told to nobody
told_whole_wsgi = ToldWsgi(whole_wsgi, _nothing)


def _told_aiohttp(app: web.Application, in_use: InUse) -> web.Application:
    running: set[int] = set()

    @web.middleware
    async def tell(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        if request.path == "/~/state":
            return web.json_response([len(running), in_use()])
        running.add(id(request))
        try:
            response: web.StreamResponse = await handler(request)
            return response
        finally:
            running.discard(id(request))

    app.middlewares.append(tell)
    return app


def told_ours_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make an application with our handler that tells."""
    app = web.Application()
    handler = App(service(), auto_decompress=auto_decompress)
    handler.add_routes(app)
    frontend = handler._frontend  # noqa: SLF001 - told to nobody
    return _told_aiohttp(app, _in_use(frontend.service, frontend.budget))


def told_whole_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make an application that takes whole bodies and tells."""
    return _told_aiohttp(whole_aiohttp(auto_decompress=auto_decompress), _nothing)
