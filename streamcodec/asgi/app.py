"""App: the V2 service as an ASGI 3 application, which can be mounted at any path.

The scope of a request becomes its head (ASGI 3.0, "HTTP Connection Scope").
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import Any, Final, Protocol, cast
from urllib.parse import quote

from streamcodec.embedding.endpoint import READER, already_read
from streamcodec.embedding.frontend import Frontend
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.limits import Limits
from streamcodec.http.bodies.fed import fed_head
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.models.failures import raise_bare
from streamcodec.runtime.observation import format_address
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Observer, Reply, Service
from streamcodec.service.replies import complete_headers, drop_tracebacks
from streamcodec.transports.limited import current_time, within

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class StarletteRequest(Protocol):
    """A request of Starlette or FastAPI."""

    @property
    def scope(self) -> Scope:
        """As the server has given it."""
        ...

    @property
    def receive(self) -> Receive:
        """As the server has given it."""
        ...


def head_of(scope: Scope, limits: Limits) -> RequestHead:
    """Return the head of a request; its target begins below the path at which the application is mounted.

    Raises:
        MessageError: a connection of the bundled server would refuse this head too.
    """
    version: str = scope.get("http_version", "1.1")
    return fed_head(scope["method"], _target(scope), scope["headers"], http_version=version, limits=limits)


def client_of(scope: Scope) -> str:
    """Return address and port of the client; empty if the server does not know them."""
    host, port, *_ = scope.get("client") or ("", None)
    if not host or port is None:
        return str(host)
    return format_address(host, port)


def _target(scope: Scope) -> str:
    """Return path and query, still percent-encoded."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or quote(path).encode("ascii")
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        # The path is split into segments, because a character may be percent-encoded in only one of the two.
        segments = raw.split(b"/")[1 + root.count("/") :]
        raw = b"/" + b"/".join(segments)
    query: bytes = scope.get("query_string", b"")
    return (raw + b"?" * bool(query) + query).decode("latin-1")


def unread(scope: Scope | StarletteRequest, receive: Receive | None) -> tuple[Scope, Receive]:
    """Return scope and `receive` of a request, of which one reader reads the body from now on.

    A server that is asked for more of a body than there is waits for the client to leave. Nothing that it gives tells
    whether the body has been read; Starlette's own request does.

    Raises:
        LocalProtocolError: the body has been read before, as far as can be seen; or there is no `receive`.
    """
    if receive is None:
        if not hasattr(scope, "receive"):
            msg = "receive_request() needs the scope and `receive`, or the request of Starlette or FastAPI"
            raise LocalProtocolError(msg)
        if getattr(scope, "_stream_consumed", False) or hasattr(scope, "_body"):
            raise already_read("`request.body()` or the like, or for a parameter that FastAPI takes from it")
        request = cast("StarletteRequest", scope)
        scope, receive = request.scope, request.receive
    scope = cast("Scope", scope)
    source = getattr(receive, "__self__", receive)
    if scope.get(READER, lambda: None)() is source:
        raise already_read("an earlier `receive_request()`")
    scope[READER] = _reference(source)
    return scope, receive


def _reference(source: object) -> Callable[[], object]:
    """Refer to what a scope belongs to, which may refer to the scope: without a cycle, which would keep its memory."""
    try:
        return weakref.ref(source)
    except TypeError:  # granian's, which is not of Python and does not
        return lambda: source


logger: Final = logging.getLogger(__name__)

_CLOSING_VERSIONS: Final = {"1.0", "1.1"}
"""Versions of HTTP in which a field can close the connection."""

_MAX_DIGITS: Final = 20
"""Of a length; a longer one is refused, and is not worth reading."""


class App:
    """The V2 service for uvicorn, hypercorn, granian and other ASGI 3 servers.

    Requests are received, answered, limited and refused as by the bundled server. The ASGI server keeps the connections
    and reads the heads; its limits apply too.

    Attributes:
        frontend: holds the memory and the threads of all requests.
    """

    def __init__(
        self, service: Service, options: ServerOptions | None = None, *, observer: Observer | Iterable[Observer] = ()
    ) -> None:
        """Prepare to serve.

        Args:
            service: what to serve.
            options: how to serve it; options about connections and heads have no effect.
            observer: one observer or several, which are told about all requests in turn. Byte counts are those of
                bodies.
        """
        self.frontend: Frontend = Frontend(service, options, observer=observer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or handle the lifespan of the server."""
        if scope["type"] == "http":
            try:
                await self._answer(scope, receive, send)
            except Exception as error:  # noqa: BLE001 - raised again
                raise_bare(error)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:  # a WebSocket, which is refused with 403
            await send({"type": "websocket.close"})

    async def _live(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            while (await receive())["type"] != "lifespan.shutdown":
                await stack.enter_async_context(self.frontend.running())
                await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        frontend = self.frontend
        observation = frontend.observe(client_of(scope))
        peer = AsgiPeer(scope, receive, send)
        head: RequestHead | MessageError
        try:
            head = head_of(scope, frontend.service.limits)
        except MessageError as error:
            head = error
        try:
            reply = await frontend.answer(head, peer, observation)
        except (OSError, MessageError) as error:  # the client has left or stopped reading, or the answer failed
            logger.debug("request broken off: %s", error)
            drop_tracebacks(error)
            return  # the server closes the connection of an incomplete answer
        await peer.end() if reply is None else await send_at_once(send, reply)


class AsgiPeer:
    """One request of an ASGI server.

    In HTTP/2 the end of a body is a frame of its own, which may come after the last byte. hypercorn closes the whole
    connection if it comes after the answer. So the last byte is not handed over before the end has come.
    """

    is_decoded = False

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin before the body."""
        self._receive = receive
        self._send = send
        self._has_ended = False
        self._is_late = False
        self._message: Message | None = None
        self.waited: tuple[float, float] | None = None
        self.has_piece: bool = False
        self.can_close: bool = scope.get("http_version", "1.1") in _CLOSING_VERSIONS
        self._left = -1 if self.can_close else length_of(scope)

    async def whole(self, length: int, seconds: float) -> bytes | None:
        """Return the body if its first message has all of it; see `Peer.whole`.

        An empty piece may follow that is the end of the body: some servers send one. Only in HTTP/2 it is awaited.
        """
        since = current_time()
        try:
            self._message = message = await within(seconds, self._receive)
        except TimeoutError:
            self._is_late = True
            return None
        finally:
            self.waited = since, current_time()
        self.has_piece = self.can_close  # else the end of the body is awaited with it
        body: bytes = message.get("body", b"")
        is_whole = len(body) == length and (self.can_close or not message.get("more_body", False))
        return body if is_whole else None

    async def receive(self) -> bytes | None:
        """Return the next piece of the body, which may be empty; None at its end.

        Raises:
            ConnectionResetError: the client has left.
            TimeoutError: the first piece has come too late.
        """
        if self._is_late:
            raise TimeoutError
        if self._has_ended:
            return None
        if self._message is None:  # it is kept while its end is awaited: a model may cancel its wait, and begin again
            self._message = await self._receive()
        message = self._message
        body: bytes = message.get("body", b"")
        while message.get("more_body", False) and len(body) == self._left:
            message = await self._receive()
            if message.get("body"):  # more than the length in the head says, which the receiver drops
                break
        self._message, self.has_piece = None, False
        if message["type"] == "http.disconnect":
            msg = "the client has left"
            raise ConnectionResetError(msg)
        self._left -= len(body)
        self._has_ended = not message.get("more_body", False)
        return body or (None if self._has_ended else b"")

    async def gone(self) -> None:
        """Wait until the client has left."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Begin the answer."""
        await self._send({"type": "http.response.start", "status": status, "headers": encoded(headers)})

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End the answer."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def length_of(scope: Scope) -> int:
    """Return the length of a body, as its head says; a negative number if it does not."""
    lengths = [bytes(value) for name, value in scope["headers"] if bytes(name) == b"content-length"]
    is_number = len(lengths) == 1 and lengths[0].isdigit() and len(lengths[0]) <= _MAX_DIGITS
    return int(lengths[0]) if is_number else -1


async def send_at_once(send: Send, reply: Reply) -> None:
    """Send a reply that is complete."""
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded(complete_headers(reply))})
    await send({"type": "http.response.body", "body": b"".join(cast("tuple[bytes, ...]", reply.buffers))})


def encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return the fields of an answer as ASGI wants them."""
    return [(_name(name), value.encode("latin-1")) for name, value in headers]


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    return name.lower().encode("latin-1")
