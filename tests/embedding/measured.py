"""Measured: applications that are held against each other, ours and those that take the whole body first.

A whole-body application does what most do: it reads the body, parses the header, and looks at the tensors where they
lie in it. It checks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from aiohttp import web

from streamcodec import asgi, wsgi
from streamcodec.aiohttp import Handler
from streamcodec.asgi.scope import Receive, Scope, Send
from streamcodec.service import Service, demo_models
from streamcodec.wsgi.environ import Environ, StartResponse

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
_DTYPES: Final = {"FP32": "<f4", "UINT8": "u1"}

ours_asgi = asgi.App(Service(demo_models()))


async def whole_asgi(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as `ours_asgi` does, with the whole body at once."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    pieces = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    fields = {bytes(name).decode(): bytes(value).decode() for name, value in scope["headers"]}
    if not (length := fields.get(HEADER_LENGTH.lower())):
        header, parts = {"Content-Length": "0"}, list[bytes]()
    else:
        header, parts = _infer(b"".join(pieces), int(length), scope["path"].split("/")[3])
    encoded = [(name.lower().encode(), value.encode()) for name, value in header.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})
    await send({"type": "http.response.body", "body": b"".join(parts)})


async def _live(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


ours_wsgi = wsgi.App(Service(demo_models()))


def whole_wsgi(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer as `ours_wsgi` does, with the whole body at once."""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    length = int(environ["HTTP_INFERENCE_HEADER_CONTENT_LENGTH"])
    header, parts = _infer(body, length, environ["PATH_INFO"].split("/")[3])
    start_response("200 OK", [*header.items()])
    return [b"".join(parts)]


def ours_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make an application with our handler."""
    app = web.Application()
    Handler(Service(demo_models()), auto_decompress=auto_decompress).add_routes(app)
    return app


def whole_aiohttp(*, auto_decompress: bool) -> web.Application:  # noqa: ARG001 - as `ours_aiohttp`
    """Make an application that answers as `ours_aiohttp` does, with the whole body at once."""

    async def infer(request: web.Request) -> web.Response:
        body = await request.read()
        header, parts = _infer(body, int(request.headers[HEADER_LENGTH]), request.match_info["name"])
        return web.Response(headers=header, body=b"".join(parts))

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v2/models/{name}/infer", infer)
    return app


def _infer(body: bytes, header_length: int, model: str) -> tuple[dict[str, str], list[bytes]]:
    """Decode, call a model, and encode."""
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
    else:
        outputs = {name: ("FP32", x) for name, x in inputs.items()}
    described = [
        {"name": name, "datatype": datatype, "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
        for name, (datatype, x) in outputs.items()
    ]
    text = json.dumps({"model_name": model, "model_version": "1", "outputs": described}).encode()
    parts = [text, *(x.tobytes() for _, x in outputs.values())]
    fields = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return fields | {"Content-Length": str(sum(map(len, parts)))}, parts
