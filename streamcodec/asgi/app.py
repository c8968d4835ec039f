"""App: the V2 service as an ASGI 3 application, which can be mounted at any path."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import Final, cast

from streamcodec.asgi.scope import Message, Receive, Scope, Send, client_of, head_of
from streamcodec.embedding.frontend import Frontend
from streamcodec.engine.errors import MessageError
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.models.failures import raise_bare
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Observer, Reply, Service
from streamcodec.service.replies import complete_headers, drop_tracebacks
from streamcodec.transports.limited import current_time, within

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
        self._left = -1 if self.can_close else _length_of(scope)

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


def _length_of(scope: Scope) -> int:
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
