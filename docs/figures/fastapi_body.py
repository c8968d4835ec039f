"""A request of 32 MiB to two endpoints of FastAPI, called as a server calls them: `python fastapi_body.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from measured import MIB, compare

from streamcodec import asgi, encode_request

app = FastAPI()
PIECE = 64 << 10  # what uvicorn hands over at once
message = encode_request({"x": np.ones((8, MIB), np.float32)})
body = memoryview(b"".join(message.buffers))


@app.post("/before")
async def before(request: Request) -> dict[str, float]:
    data = await request.body()
    length = int(request.headers["Inference-Header-Content-Length"])
    shape = json.loads(data[:length])["inputs"][0]["shape"]
    x = np.frombuffer(data[length:], np.float32).reshape(shape)
    return {"mean": float(x.mean())}


@app.post("/after")
async def after(request: Request) -> Response:
    received = await asgi.receive_request(request)
    reply = received.reply({"mean": np.mean(received.inputs["x"], keepdims=True)}, model_name="mean")
    return StreamingResponse(asgi.pieces(reply), reply.status, dict(reply.headers))


async def call(path: str) -> int:
    """Call the application as an ASGI server does; return the status of the answer."""
    fields = [(name.lower().encode(), value.encode()) for name, value in [("host", "localhost"), *message.headers]]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
    }
    scope |= {"path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": fields}
    statuses: list[int] = []
    starts = iter(range(0, len(body), PIECE))

    async def receive() -> dict[str, Any]:
        if (start := next(starts, None)) is None:
            return await asyncio.Future[dict[str, Any]]()  # the client stays
        piece = bytes(body[start : start + PIECE])
        return {"type": "http.request", "body": piece, "more_body": start + PIECE < len(body)}

    async def send(event: MutableMapping[str, Any]) -> None:
        statuses.append(event.get("status", 0))

    await app(scope, receive, send)
    return statuses[0]


def run(path: str) -> int:
    return asyncio.run(call(path))


if __name__ == "__main__":
    compare({path[1:]: partial(run, path) for path in ("/before", "/after")})
