"""A KServe ModelServer whose adapter can be made anew: `python -m tests.differential.kserve_program DIRECTORY PORT`.

Runs with the Python of KServe's own environment. Its models are like those of `models`. DIRECTORY is not used.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelRepository, ModelServer, model_server
from kserve.errors import InvalidInput
from kserve.protocol.dataplane import DataPlane

from streamcodec.kserve import install
from tests.differential.models import options
from tests.interop.servers.kserve_program import OnLoopback, output

_PREFIX = "/~/"


class _Answering(Model):  # type: ignore[misc]  # KServe is not in this environment
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:  # noqa: ARG002 - KServe gives it
        x = payload.inputs[0].as_numpy()
        if self.name.startswith("fail"):
            if int(x.reshape(-1)[0]) == 404:
                msg = "nothing here"
                raise InvalidInput(msg)
            raise RuntimeError(self.name)
        seen = np.frombuffer(f"{payload.id!r} {payload.parameters!r}".encode("utf-8", "backslashreplace"), np.uint8)
        outputs: list[InferOutput] = [output("y", "FP32", x), output("seen", "UINT8", seen)]
        return InferResponse(response_id=payload.id or "none", model_name=self.name, infer_outputs=outputs)


class _Caught:
    """Stands in the place of KServe's application while ours is installed, and keeps what would be added to it."""

    def __init__(self) -> None:
        self.add_exception_handler = model_server.app.add_exception_handler
        self.make: Callable[..., Any] = dict

    def add_middleware(self, kind: Callable[..., Any], **arguments: Any) -> None:  # noqa: ANN401 - those of `kind`
        """Keep how a middleware is made."""
        self.make = partial(kind, **arguments)


def made_anew(models: ModelRepository, *, is_hasty: bool) -> tuple[DataPlane, Callable[..., Any]]:
    """Install ours once more; return its data plane, and how its middleware is made."""
    caught, place = _Caught(), SimpleNamespace(dataplane=DataPlane(models), workers=1)
    app, model_server.app = model_server.app, caught
    try:
        install(place, options(is_hasty=is_hasty))
    finally:
        model_server.app = app
    return place.dataplane, caught.make


class _Host:
    """The middleware of KServe's application: ours, which is made anew when a path says so."""

    def __init__(self, app: Callable[..., Awaitable[None]], models: ModelRepository) -> None:
        self._app = app
        self._models = models
        self._current = made_anew(models, is_hasty=False)[1](app)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 - those of ASGI
        """Answer, or do what the path says."""
        if scope["type"] != "http" or not scope["path"].startswith(_PREFIX):
            await self._current(scope, receive, send)
            return
        self._current = made_anew(self._models, is_hasty="hasty" in scope["path"])[1](self._app)
        fields = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b""})


def main(port: int) -> None:
    """Serve until a signal."""
    model_server.RESTServer = OnLoopback
    server = ModelServer(http_port=port, enable_grpc=False, workers=1, enable_latency_logging=False)
    server.dataplane, _ = made_anew(server.registered_models, is_hasty=False)  # it serves all that are made later, too
    model_server.app.add_middleware(_Host, models=server.registered_models)
    server.start([*(_Answering(f"{work}-inline") for work in ("echo", "tell", "fail")), _Answering("count")])


if __name__ == "__main__":
    main(int(sys.argv[2]))
