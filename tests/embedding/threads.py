"""Threads: other people's servers, each in a thread of this process, for tests that look inside or want many."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import hypercorn.asyncio
import hypercorn.trio
import uvicorn
import waitress  # type: ignore[import-untyped]  # it has no types
from aiohttp import web
from anyio.from_thread import start_blocking_portal
from hypercorn.config import Config
from waitress import wasyncore
from werkzeug.serving import make_server

from tests.embedding.run_werkzeug import Quiet
from tests.ports import free_port

Address = tuple[str, int]

_STOP_SECONDS = 60
_KEPT_SECONDS = 300
"""For a connection without a request: longer than a test waits on a busy machine."""
_HOST = "127.0.0.1"


@contextmanager
def in_uvicorn(app: Any, http: str) -> Iterator[Address]:  # noqa: ANN401 - an application of any kind, here and below
    """Serve an application of ASGI; `http` is uvicorn's parser."""
    config = uvicorn.Config(
        app,
        port=free_port(),
        http=http,
        log_config=None,
        loop="asyncio",
        lifespan="on",
        timeout_keep_alive=_KEPT_SECONDS,
    )
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    with _thread(server.run, stop):
        while not server.started:
            threading.Event().wait(0.01)
        yield _HOST, config.port


@contextmanager
def in_hypercorn(app: Any, backend: str) -> Iterator[Address]:  # noqa: ANN401
    """Serve an application of ASGI, under "asyncio" or "trio"."""
    listener = socket.create_server((_HOST, 0))
    address: Address = listener.getsockname()
    bind = f"fd://{listener.detach()}"
    config = Config.from_mapping(bind=bind, loglevel="CRITICAL", keep_alive_max_requests=1 << 30)
    config.keep_alive_timeout = _KEPT_SECONDS
    serve: Any = {"asyncio": hypercorn.asyncio.serve, "trio": hypercorn.trio.serve}[backend]

    async def main(stop: anyio.Event) -> None:
        await serve(app, config, shutdown_trigger=stop.wait)

    with _in_loop(main, backend):
        yield address


@contextmanager
def in_aiohttp(app: web.Application, *, auto_decompress: bool = True) -> Iterator[Address]:
    """Serve an application of aiohttp."""
    address = _HOST, free_port()
    started = threading.Event()

    async def main(stop: anyio.Event) -> None:
        runner = web.AppRunner(app, auto_decompress=auto_decompress, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, *address).start()
        started.set()
        await stop.wait()
        await runner.cleanup()

    with _in_loop(main):
        started.wait(_STOP_SECONDS)
        yield address


@contextmanager
def in_werkzeug(app: Any) -> Iterator[Address]:  # noqa: ANN401
    """Serve an application of WSGI, with a thread for each connection."""
    server = make_server(_HOST, 0, app, threaded=True, request_handler=Quiet)
    with _thread(server.serve_forever, server.shutdown):
        yield _HOST, server.port


@contextmanager
def in_waitress(app: Any) -> Iterator[Address]:  # noqa: ANN401
    """Serve an application of WSGI, with four threads."""
    sockets: dict[int, Any] = {}
    server: Any = waitress.create_server(app, host=_HOST, port=0, map=sockets)
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            wasyncore.loop(timeout=0.05, map=sockets, count=1)
        server.task_dispatcher.shutdown()
        wasyncore.close_all(sockets)

    with _thread(run, stopped.set):
        yield _HOST, server.effective_port


@contextmanager
def _in_loop(main: Callable[[anyio.Event], Any], backend: str = "asyncio") -> Iterator[None]:
    """Run a function on an event loop, until the event that it is given is set."""
    with start_blocking_portal(backend) as portal:
        stop = portal.call(anyio.Event)
        task = portal.start_task_soon(main, stop)
        try:
            yield
        finally:
            portal.call(stop.set)
            task.result(_STOP_SECONDS)


@contextmanager
def _thread(run: Callable[[], object], stop: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()
