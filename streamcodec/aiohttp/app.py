"""App: the V2 service for applications of aiohttp."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final, cast

from aiohttp import web

from streamcodec.aiohttp.peer import ROUTE, AiohttpPeer, head_of, leave_expectation, sent_at_once
from streamcodec.embedding.frontend import Frontend
from streamcodec.engine.errors import MessageError
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.models.failures import raise_bare
from streamcodec.runtime.observation import format_address
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Observer, Service
from streamcodec.service.replies import drop_tracebacks

logger: Final = logging.getLogger(__name__)

_LEFT: Final = 499
"""Of a request whose client has left, as in nginx's log."""


class App:
    """The V2 service for applications of aiohttp.

    Requests are received, answered, bounded and refused as by the bundled server. aiohttp's `client_max_size` has no
    effect on them.
    """

    def __init__(
        self,
        service: Service,
        options: ServerOptions | None = None,
        *,
        observer: Observer | Iterable[Observer] = (),
        auto_decompress: bool = True,
    ) -> None:
        """Prepare to serve.

        Args:
            service: what is served.
            options: those about connections and heads have no effect.
            observer: called for each request; or several observers, called in turn. Bytes are those of bodies.
            auto_decompress: the value of the same argument of `run_app` or `AppRunner`. With False, there and here, the
                service itself decompresses, and refuses exactly what the bundled server refuses.
        """
        self._frontend = Frontend(service, options, observer=observer)
        self._auto_decompress = auto_decompress

    def add_routes(self, app: web.Application, prefix: str = "") -> None:
        """Let an application answer all routes of V2.

        Args:
            app: may be mounted in another application.
            prefix: path at which the service is mounted, such as `/inference`; none by default.
        """
        app.router.add_route("*", prefix + ROUTE, self.handle, expect_handler=leave_expectation)
        app.cleanup_ctx.append(self._live)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; the handler of the routes of `add_routes`."""
        try:
            return await self._answer(request)
        except Exception as error:  # noqa: BLE001 - raised again
            is_gone = request.transport is None or request.transport.is_closing()
            if not (is_gone and isinstance(error, OSError | MessageError)):
                raise_bare(error)
            logger.debug("request broken off: %s", error)
            drop_tracebacks(error)
            return web.Response(status=_LEFT)  # aiohttp has nobody to send it to; it would log an error as a failure

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        frontend = self._frontend
        resource = request.match_info.route.resource
        segments = 0 if resource is None else resource.canonical.count("/") - 1
        peer = AiohttpPeer(request, frontend.service.limits, auto_decompress=self._auto_decompress)
        observation = frontend.observe(_client_of(request))
        head: RequestHead | MessageError
        try:
            head = head_of(request, frontend.service.limits, segments)
        except MessageError as error:
            head = error
        reply = await frontend.answer(head, peer, observation)
        if reply is not None:
            return await sent_at_once(request, reply)
        return cast("web.StreamResponse", peer.response)  # it has begun, or an exception was raised

    async def _live(self, _: web.Application) -> AsyncIterator[None]:
        async with self._frontend.running():
            yield


def _client_of(request: web.Request) -> str:
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("peername")
    return format_address(*name[:2]) if isinstance(name, tuple) else ""
