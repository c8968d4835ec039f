"""Apps: the service as an application of each kind, for servers that are started by module and name."""

from __future__ import annotations

import gc
import itertools
import json
import re
import threading
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from aiohttp import web

from streamcodec import Rows, asgi, wsgi
from streamcodec.aiohttp import Handler
from streamcodec.aiohttp.peer import leave_expectation
from streamcodec.asgi.scope import Receive, Scope, Send
from streamcodec.service import InferenceRequest, Model, Service, demo_models
from streamcodec.service.budget import Budget
from streamcodec.service.models import Outputs
from streamcodec.wsgi.environ import Environ, StartResponse
from tests.corpus.running import service_for
from tests.embedding.cases import groups

CHOICE: Final = re.compile(r"/~/(\d+)")
"""A path by which the service is chosen that answers from now on."""


@cache
def service_of(number: int) -> Service:
    """Return the service that a group of cases needs."""
    return service_for(groups()[number][0], is_inline=True)


class ChosenAsgi:
    """The services that the corpus needs, one at a time."""

    def __init__(self) -> None:
        self._app = asgi.App(service_of(0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the service that was chosen last."""
        if (choice := CHOICE.fullmatch(scope.get("path", ""))) is not None:
            self._app = asgi.App(service_of(int(choice[1])))
            await send_bytes(send, b"")
        else:
            await self._app(scope, receive, send)


async def send_bytes(send: Send, body: bytes) -> None:
    """Answer 200 with these bytes."""
    fields = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


chosen_asgi = ChosenAsgi()


class ChosenWsgi:
    """The services that the corpus needs, one at a time."""

    def __init__(self) -> None:
        self._app = wsgi.App(service_of(0))

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer by the service that was chosen last."""
        if (choice := CHOICE.fullmatch(environ.get("PATH_INFO", ""))) is not None:
            self._app = wsgi.App(service_of(int(choice[1])))
            start_response("200 OK", [("Content-Length", "0")])
            return []
        return self._app(environ, start_response)


chosen_wsgi = ChosenWsgi()


def chosen_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make an application with the services that the corpus needs, one at a time."""
    handler = Handler(service_of(0), auto_decompress=auto_decompress)

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal handler
        if (choice := CHOICE.fullmatch(request.path)) is not None:
            handler = Handler(service_of(int(choice[1])), auto_decompress=auto_decompress)
            return web.Response()
        return await handler.handle(request)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer, expect_handler=leave_expectation)
    return app


def _slow(request: InferenceRequest) -> Outputs:
    time.sleep(1.0)
    return request.values


def _rows(_: InferenceRequest) -> Outputs:
    """Answer 64 MiB that are made while they are sent."""
    window = np.zeros((1, 1 << 20), np.uint8)
    return {"y": Rows("UINT8", (64, 1 << 20), itertools.repeat(window, 64))}


def watched_service() -> Service:
    """Return a service whose models take time, and memory."""
    models = demo_models()
    models.add(Model(name="slow", predict=_slow))
    models.add(Model(name="rows", predict=_rows))
    return Service(models)


def state_of(service: Service, budget: Budget) -> bytes:
    """Tell what is in use, as JSON."""
    gc.collect()
    pool = service.pool
    state = {
        "reserved": budget.reserved,
        "used": -1 if pool is None else pool.reused_bytes,
        "threads": threading.active_count(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }
    return json.dumps(state).encode()


class WatchedAsgi:
    """A service that tells what it has in use."""

    def __init__(self) -> None:
        self._service = watched_service()
        self._app = asgi.App(self._service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or tell."""
        if scope.get("path") != "/~/state":
            await self._app(scope, receive, send)
            return
        if b"collector=off" in scope["query_string"]:
            gc.disable()
        await send_bytes(send, state_of(self._service, self._app.frontend.budget))


watched_asgi = WatchedAsgi()


class WatchedWsgi:
    """A service that tells what it has in use."""

    def __init__(self) -> None:
        self._service = watched_service()
        self._app = wsgi.App(self._service)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer, or tell."""
        if environ.get("PATH_INFO") != "/~/state":
            return self._app(environ, start_response)
        if "collector=off" in environ.get("QUERY_STRING", ""):
            gc.disable()
        state = state_of(self._service, self._app._shared.budget)  # noqa: SLF001 - it is told to nobody
        start_response("200 OK", [("Content-Length", str(len(state)))])
        return [state]


watched_wsgi = WatchedWsgi()


def watched_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make a service that tells what it has in use."""
    service = watched_service()
    handler = Handler(service, auto_decompress=auto_decompress)

    async def state(request: web.Request) -> web.Response:
        if "collector" in request.query:
            gc.disable()
        return web.Response(body=state_of(service, handler._frontend.budget))  # noqa: SLF001 - it is told to nobody

    app = web.Application()
    handler.add_routes(app)
    app.router.add_get("/~/state", state)
    return app
