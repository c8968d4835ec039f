"""Apps: the service as an application of each kind, for which one request can be the first at any time.

A GET of `/~/fresh` puts a new service in the place of the one before, `/~/hasty` one with little time; `/~/records`
tells what its observer was told. All that the product keeps for the whole process is forgotten, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from aiohttp import web

from streamcodec import asgi, wsgi
from streamcodec.aiohttp import App
from streamcodec.aiohttp.peer import leave_expectation
from streamcodec.asgi.app import Receive, Scope, Send
from streamcodec.server import ServerOptions
from streamcodec.service import Observer, Service
from streamcodec.wsgi.reading import Environ, StartResponse
from tests.differential.models import Recorder, models, options
from tests.embedding.apps import send_bytes

PREFIX: Final = "/~/"

_CACHED: Final = type(lru_cache(lambda: None))

_App = TypeVar("_App")


def forget() -> None:
    """Clear the caches that all services of this process share."""
    for clear in _clearing(len(sys.modules)):
        clear()


@lru_cache(1)
def _clearing(_: int) -> list[Callable[[], object]]:
    """Return what clears each cached function of the product, for so many imported modules."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("streamcodec")]
    values = {id(value): value for module in modules for value in vars(module).values()}.values()
    return [value.cache_clear for value in values if isinstance(value, _CACHED)]


class Host(Generic[_App]):
    """Keeps the application that answers from now on."""

    def __init__(self, make: Callable[[Service, ServerOptions, Observer], _App], *, has_loop: bool) -> None:
        self._make = make
        self._has_loop = has_loop
        self._recorder = Recorder()
        self.app: _App = self._new(is_hasty=False)

    def do(self, order: str) -> bytes:
        """Do what a path says behind `PREFIX`; return the body of the answer."""
        if order == "records":
            return json.dumps(self._recorder.over).encode()
        self.app = self._new(is_hasty=order == "hasty")
        return b""

    def _new(self, *, is_hasty: bool) -> _App:
        forget()
        self._recorder = Recorder()
        return self._make(Service(models(has_loop=self._has_loop)), options(is_hasty=is_hasty), self._recorder)


class AsgiHost(Host[asgi.App]):
    """For servers of ASGI."""

    def __init__(self) -> None:
        super().__init__(lambda *arguments: asgi.App(*arguments[:2], observer=arguments[2]), has_loop=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or do what the path says."""
        if scope["type"] == "http" and (path := str(scope["path"])).startswith(PREFIX):
            await send_bytes(send, self.do(path.removeprefix(PREFIX)))
        else:
            await self.app(scope, receive, send)


class WsgiHost(Host[wsgi.App]):
    """For servers of WSGI."""

    def __init__(self) -> None:
        super().__init__(lambda *arguments: wsgi.App(*arguments[:2], observer=arguments[2]), has_loop=False)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer, or do what the path says."""
        path = str(environ.get("PATH_INFO", ""))
        if not path.startswith(PREFIX):
            return self.app(environ, start_response)
        body = self.do(path.removeprefix(PREFIX))
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


class AiohttpHost(Host[App]):
    """For aiohttp."""

    def __init__(self, *, auto_decompress: bool) -> None:
        def make(service: Service, limits: ServerOptions, observer: Observer) -> App:
            return App(service, limits, observer=observer, auto_decompress=auto_decompress)

        super().__init__(make, has_loop=True)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer, or do what the path says."""
        if request.path.startswith(PREFIX):
            return web.Response(body=self.do(request.path.removeprefix(PREFIX)))
        return await self.app.handle(request)


def aiohttp_app(*, auto_decompress: bool) -> web.Application:
    """Make the application of aiohttp."""
    app = web.Application()
    host = AiohttpHost(auto_decompress=auto_decompress)
    app.router.add_route("*", "/{rest:.*}", host.answer, expect_handler=leave_expectation)
    return app


asgi_app = AsgiHost()
wsgi_app = WsgiHost()
