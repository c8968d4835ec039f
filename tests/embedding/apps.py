"""Apps: the service as an application of each kind, for servers that are started by module and name."""

from __future__ import annotations

import asyncio
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

import anyio
import numpy as np
import sniffio
import trio
from aiohttp import web

from streamcodec import Rows, Windows, asgi, wsgi
from streamcodec.aiohttp import App
from streamcodec.aiohttp.peer import leave_expectation
from streamcodec.asgi.app import Receive, Scope, Send
from streamcodec.engine.memory.pool import _Lease
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, Service, demo_models
from streamcodec.service.memory.budget import Budget
from streamcodec.service.models.model import Outputs
from streamcodec.wsgi.reading import Environ, StartResponse
from tests.corpus.running import service_for
from tests.embedding.cases import groups

CHOICE: Final = re.compile(r"/~/(\d+)")
"""A path by which the service is chosen that answers from now on."""

_WAITING_SECONDS: Final = 600.0
"""Longer than any test."""


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
    handler = App(service_of(0), auto_decompress=auto_decompress)

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal handler
        if (choice := CHOICE.fullmatch(request.path)) is not None:
            handler = App(service_of(int(choice[1])), auto_decompress=auto_decompress)
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


def _few_rows(_: InferenceRequest) -> Outputs:
    """Answer 8 MiB that are made while they are sent: more than the system keeps for a client that does not read."""
    window = np.zeros((1, 1 << 18), np.uint8)
    return {"y": Rows("UINT8", (32, 1 << 18), itertools.repeat(window, 32))}


def _windowed(request: InferenceRequest) -> Outputs:
    return {"n": np.array([sum(window.nbytes for window in request.rows["x"].windows)])}


def _echo(request: InferenceRequest) -> Outputs:
    """Answer each window while the next ones arrive."""
    rows = request.rows["x"]
    return {"x": Rows("FP32", rows.shape, iter(rows.windows))}


async def _waiting(request: InferenceRequest) -> Outputs:
    await anyio.sleep(_WAITING_SECONDS)
    return request.values


def _waiting_in_thread(request: InferenceRequest) -> Outputs:
    time.sleep(0.002)
    return request.values


def watched_service(*, has_loop: bool) -> Service:
    """Return a service whose models take time, and memory.

    Args:
        has_loop: whether a model may be asynchronous; the model `waiting` is, and ends only when it is cancelled.
    """
    models = demo_models()
    models.add(Model(name="slow", predict=_slow))
    models.add(Model(name="rows", predict=_rows))
    models.add(Model(name="few_rows", predict=_few_rows))
    models.add(Model(name="windowed", predict=_windowed, windows=Windows(max_window_bytes=64 << 10)))
    models.add(Model(name="echo", predict=_echo, windows=Windows(max_window_bytes=64 << 10)))
    models.add(Model(name="waiting", predict=_waiting if has_loop else _waiting_in_thread))
    return Service(models)


def state_of(budget: Budget, *, tasks: int = 0) -> bytes:
    """Tell what is in use, as JSON: bytes of memory, and numbers of all other things."""
    gc.collect()
    files = [_target(file) for file in Path("/proc/self/fd").iterdir()]
    state = {
        "reserved": budget.reserved,
        "blocks": sum(type(thing) is _Lease for thing in gc.get_objects()),
        "threads": threading.active_count(),
        "tasks": tasks,
        "files": len(files),
        "sockets": sum(file.startswith("socket:") for file in files),
    }
    return json.dumps(state).encode()


def task_count() -> int:
    """Return how many tasks this event loop has."""
    if sniffio.current_async_library() == "trio":
        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:  # it was that of the folder itself
        return ""


class WatchedAsgi:
    """A service that tells what it has in use."""

    def __init__(self) -> None:
        self._app = asgi.App(watched_service(has_loop=True))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or tell."""
        if scope.get("path") != "/~/state":
            await self._app(scope, receive, send)
            return
        if b"collector=off" in scope["query_string"]:
            gc.disable()
        await send_bytes(send, state_of(self._app.frontend.budget, tasks=task_count()))


watched_asgi = WatchedAsgi()


class WatchedWsgi:
    """A service that tells what it has in use."""

    def __init__(self) -> None:
        self._app = wsgi.App(watched_service(has_loop=False))

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer, or tell."""
        if environ.get("PATH_INFO") != "/~/state":
            return self._app(environ, start_response)
        if "collector=off" in environ.get("QUERY_STRING", ""):
            gc.disable()
        state = state_of(self._app._shared.budget)  # noqa: SLF001 - it is told to nobody
        start_response("200 OK", [("Content-Length", str(len(state)))])
        return [state]


watched_wsgi = WatchedWsgi()


def watched_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make a service that tells what it has in use."""
    handler = App(watched_service(has_loop=True), auto_decompress=auto_decompress)

    async def state(request: web.Request) -> web.Response:
        if "collector" in request.query:
            gc.disable()
        return web.Response(body=state_of(handler._frontend.budget, tasks=task_count()))  # noqa: SLF001 - told to nobody

    app = web.Application()
    handler.add_routes(app)
    app.router.add_get("/~/state", state)
    return app


HURRIED: Final = ServerOptions(idle_timeout=0.02)
"""Has nothing to do with a body; but who waits looks at the time four times as often as the shortest limit."""

hurried_asgi = asgi.App(watched_service(has_loop=True), HURRIED)


def hurried_aiohttp(*, auto_decompress: bool) -> web.Application:
    """Make a service that looks at the time often."""
    app = web.Application()
    App(watched_service(has_loop=True), HURRIED, auto_decompress=auto_decompress).add_routes(app)
    return app
