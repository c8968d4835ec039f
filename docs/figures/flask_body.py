"""A request of 32 MiB to two views of Flask, called as a server calls them: `python flask_body.py`."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import flask
import numpy as np
from measured import MIB, compare

from streamcodec import encode_request, wsgi

app = flask.Flask(__name__)
message = encode_request({"x": np.ones((8, MIB), np.float32)})
body = b"".join(message.buffers)


@app.post("/before")
def before() -> dict[str, float]:
    data = flask.request.get_data()
    length = int(flask.request.headers["Inference-Header-Content-Length"])
    shape = json.loads(data[:length])["inputs"][0]["shape"]
    x = np.frombuffer(data[length:], np.float32).reshape(shape)
    return {"mean": float(x.mean())}


@app.post("/after")
def after() -> flask.Response:
    received = wsgi.receive_request(flask.request.environ)
    reply = received.reply({"mean": np.mean(received.inputs["x"], keepdims=True)}, model_name="mean")
    return flask.Response(wsgi.pieces(reply), reply.status, list(reply.headers))


def call(path: str) -> str:
    """Call the application as a WSGI server does; return the status of the answer."""
    fields = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in message.headers}
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "SCRIPT_NAME": "", **fields}
    environ |= {"SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1"}
    environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body), "wsgi.url_scheme": "http"}
    environ |= {"wsgi.version": (1, 0), "wsgi.errors": sys.stderr, "HTTP_HOST": "localhost"}
    environ |= {"CONTENT_TYPE": environ.pop("HTTP_CONTENT_TYPE")}
    del environ["HTTP_CONTENT_LENGTH"]
    statuses: list[str] = []

    def start_response(status: str, *_: object) -> Callable[[bytes], object]:
        statuses.append(status)
        return bytes  # to write by it is a thing of the past

    for _ in app(environ, start_response):
        pass
    return statuses[0]


if __name__ == "__main__":
    compare({path[1:]: partial(call, path) for path in ("/before", "/after")})
