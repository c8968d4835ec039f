"""Handler: the V2 service as a handler of aiohttp."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import cast

from aiohttp import web

from streamcodec.aiohttp.peer import ROUTE, AiohttpPeer, head_of, leave_expectation, started
from streamcodec.engine.errors import MessageError
from streamcodec.http.messages import RequestHead
from streamcodec.server.failures import raise_bare
from streamcodec.server.frontend import Frontend, is_there
from streamcodec.server.knownheads import MEANINGFUL_FIELDS
from streamcodec.server.observation import Observation, format_address
from streamcodec.server.options import ServerOptions
from streamcodec.service import Observer, Reply, Service
from streamcodec.service.replies import complete_headers


class Handler:
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
            raise_bare(error)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        frontend = self._frontend
        resource = request.match_info.route.resource
        segments = 0 if resource is None else resource.canonical.count("/") - 1
        observation = frontend.observe(_client_of(request))
        peer = AiohttpPeer(request, frontend.service.limits, auto_decompress=self._auto_decompress)
        key = _key_of(request, segments)
        if (response := await self._answer_at_once(request, peer, key, observation)) is not None:
            return response
        head: RequestHead | MessageError
        try:
            head = head_of(request, frontend.service.limits, segments)
            frontend.known.learn(key, head)
        except MessageError as error:
            head = error
        await frontend.handle(head, peer, observation)
        return cast("web.StreamResponse", peer.response)  # it has begun, or an exception was raised

    async def _answer_at_once(
        self, request: web.Request, peer: AiohttpPeer, key: bytes, observation: Observation | None
    ) -> web.StreamResponse | None:
        """Answer a whole request whose head is known; None if it has to go the ordinary way."""
        known = self._frontend.known.find(key)
        content = request.content
        if known is None or not content.is_eof() or content.total_bytes != known.length:
            return None
        body = content.read_nowait()
        reply = self._frontend.reply_at_once(known, body, observation)
        if reply is None:
            peer.take_back(body)
            return None
        if is_there(reply):
            return await _sent(request, self._frontend.finish_at_once(known, reply, observation))
        await self._frontend.handle(known.head, peer, observation, reply)
        return peer.response

    async def _live(self, _: web.Application) -> AsyncIterator[None]:
        async with self._frontend.running():
            yield


async def _sent(request: web.Request, reply: Reply) -> web.StreamResponse:
    response = await started(request, reply.status, complete_headers(reply))
    await response.write(b"".join(cast("tuple[bytes, ...]", reply.buffers)))
    return response


def _client_of(request: web.Request) -> str:
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("peername")
    return format_address(*name[:2]) if isinstance(name, tuple) else ""


def _key_of(request: web.Request, segments: int) -> bytes:
    """Return a key of everything in a head that the service uses: heads with equal keys have the same meaning."""
    version = request.version
    fields = [
        part for name, value in request.raw_headers if name.lower() in MEANINGFUL_FIELDS for part in (name, value)
    ]
    first = f"{request.method}\n{request.raw_path}\n{segments}\n{version.major}.{version.minor}"
    return b"\n".join((first.encode("utf-8", "surrogateescape"), *fields))
