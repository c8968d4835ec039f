"""Peer: one request of aiohttp, and its head.

aiohttp sends `100 Continue` before it calls a handler. So `Expect` has a handler here that sends nothing; the interim
response is sent when the body is first read. aiohttp decompresses bodies by default. So the decompressed size is
compared with the size on the wire. aiohttp does not report that a client leaves while its answer is made. So the
transport is checked at intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

import anyio
from aiohttp import HttpVersion11, web

from streamcodec.embedding.endpoint import already_read
from streamcodec.engine.compression.inflate import FREE_BYTES
from streamcodec.engine.errors import LimitExceededError
from streamcodec.engine.limits import Limits
from streamcodec.http.bodies.fed import fed_head
from streamcodec.http.heads.messages import RequestHead
from streamcodec.http.heads.parsed import invalid_http
from streamcodec.http.heads.statuses import phrase_of
from streamcodec.service.replies import Reply, complete_headers, drop_tracebacks
from streamcodec.service.routes import without_origin

ROUTE: Final = "/v2{rest:.*}"
"""All routes of the service, below its mount point."""

_LOOK_SECONDS: Final = 0.25
"""Interval for checking whether the client has left."""

_DECOMPRESSED: Final = {"gzip", "deflate"}
"""Encodings that aiohttp decompresses, of those that a request may have."""


def head_of(request: web.BaseRequest, limits: Limits, prefix_segments: int = 0) -> RequestHead:
    """Return the head of a request.

    Args:
        request: as aiohttp gives it.
        limits: of a head.
        prefix_segments: number of segments of the path before the service's own.

    Raises:
        MessageError: a connection of the bundled server would refuse this head, too.
    """
    fields = [(name.lower(), value) for name, value in request.raw_headers]
    version = f"{request.version.major}.{request.version.minor}"
    return fed_head(request.method, _target(request, prefix_segments), fields, http_version=version, limits=limits)


def _target(request: web.BaseRequest, prefix_segments: int) -> str:
    """Return path and query, still percent-encoded."""
    target = request.raw_path
    if prefix_segments:
        path, mark, query = target.partition("?")
        target = "/" + "/".join(without_origin(path).split("/")[1 + prefix_segments :]) + mark + query
    return target


class AiohttpPeer:
    """One request of aiohttp."""

    can_close = True
    waited: tuple[float, float] | None = None

    def __init__(self, request: web.BaseRequest, limits: Limits, *, auto_decompress: bool) -> None:
        """Begin before its body.

        Args:
            request: as aiohttp gives it.
            limits: `max_compression_ratio` applies to what aiohttp decompresses.
            auto_decompress: whether it does so.

        Raises:
            LocalProtocolError: some of the body has been read before.
        """
        if getattr(request.content, "_cursor", 0):  # nothing public counts the bytes that were read
            raise already_read("`request.read()` or the like, or by an earlier `receive_request()`")
        self._request = request
        self._limits = limits
        self._is_expected = request.headers.get("Expect", "").lower() == "100-continue"
        self._begun: bytes = b""
        self.has_piece: bool = False
        encoding = request.headers.get("Content-Encoding", "").lower()
        self.is_decoded: bool = auto_decompress and encoding in _DECOMPRESSED
        self.response: web.StreamResponse | None = None

    async def whole(self, length: int, seconds: float) -> bytes | None:  # noqa: ARG002 - it does not wait
        """Return the body if all of it is there already; see `Peer.whole`."""
        content = self._request.content
        if not content.is_eof() or content.total_bytes != length:
            return None
        self._begun, self.has_piece = content.read_nowait(), True
        return self._begun

    async def receive(self) -> bytes | None:
        """Return the next piece of the body; None at its end.

        Raises:
            ConnectionResetError: the client has left.
            RemoteProtocolError: the body's chunks or its compression are damaged.
            LimitExceededError: the body has become more than `max_compression_ratio` times as large.
        """
        if self.has_piece:
            begun, self._begun, self.has_piece = self._begun, b"", False
            return begun
        if self._is_expected:
            await self._go_on()
        try:
            piece = await self._request.content.readany()
        except OSError as error:
            drop_tracebacks(error)  # aiohttp keeps it with the request, which this frame refers to
            raise ConnectionResetError(str(error)) from None
        except web.RequestPayloadError as error:
            drop_tracebacks(error)
            msg = "the body's chunks or its compression are damaged"
            raise invalid_http(msg) from None
        self._check_ratio()
        return piece or None

    async def gone(self) -> None:
        """Wait until the client has left."""
        while (transport := self._request.transport) is not None and not transport.is_closing():
            del transport
            await anyio.sleep(_LOOK_SECONDS)

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Begin the answer."""
        self.response = await started(self._request, status, headers)

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer."""
        if self.response is not None:
            await self.response.write(data)

    async def _go_on(self) -> None:
        self._is_expected = False
        if self._request.version == HttpVersion11:
            writer = self._request.writer
            await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            writer.output_size = 0  # nothing of the answer has been sent

    def _check_ratio(self) -> None:
        if not self.is_decoded:
            return
        content, limit = self._request.content, self._limits.max_compression_ratio
        if content.total_bytes > FREE_BYTES + limit * content.total_raw_bytes:
            msg = f"the body decompresses to more than {limit} times its size"
            raise LimitExceededError(msg, limit="max_compression_ratio")


async def leave_expectation(request: web.Request) -> None:
    """Send no `100 Continue` before the body is read; for `expect_handler` of a route."""


async def sent_at_once(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    """Send a reply that is complete; aiohttp writes head and body together."""
    body = b"".join(cast("tuple[bytes, ...]", reply.buffers))
    response = web.Response(status=reply.status, reason=phrase_of(reply.status), body=body)
    _add_fields(response, complete_headers(reply))
    await response.prepare(request)
    await response.write_eof()
    return response


async def started(request: web.BaseRequest, status: int, headers: Sequence[tuple[str, str]]) -> web.StreamResponse:
    """Begin an answer."""
    response = web.StreamResponse(status=status, reason=phrase_of(status))
    _add_fields(response, headers)
    await response.prepare(request)
    return response


def _add_fields(response: web.StreamResponse, headers: Iterable[tuple[str, str]]) -> None:
    for name, value in headers:
        response.headers.add(name, value)
        if name == "Connection":
            response.force_close()
