"""Endpoint: receive an inference request and send its answer within an ASGI application of one's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from streamcodec.asgi.app import AsgiPeer, encoded
from streamcodec.asgi.scope import Message, Receive, Scope, Send, head_of
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.placement import Place
from streamcodec.server.conversation import SLICE_BYTES
from streamcodec.server.endpoint import in_shared_pool
from streamcodec.server.receiving import receive_from
from streamcodec.service.reception import Check, ReceivedRequest, Reception
from streamcodec.service.replies import Reply, complete_headers
from streamcodec.transports.vectors import async_batches

READ_TIMEOUT: Final = 30.0
"""Seconds without a byte: networks recover within that time or not at all."""


async def receive_request(
    scope: Scope,
    receive: Receive,
    *,
    check: Check | None = None,
    place: Place = in_shared_pool,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float | None = READ_TIMEOUT,
) -> ReceivedRequest:
    """Receive an inference request while it comes, each tensor in its final memory.

    Args:
        scope: of the request; of Starlette and FastAPI `request.scope`.
        receive: `request.receive` there. Nobody may have asked for the body before.
        check: is called when the JSON header has come, before memory is taken for tensors; what it raises refuses.
        place: says whose memory a tensor goes to; by default that of a pool, to which it returns with its last array.
        limits: caps on everything that is read.
        timeout: seconds without a byte; None waits for ever.

    Raises:
        RemoteProtocolError: the request is refused; `status_hint` is the status to answer with. Its code is
            `connection-closed` if the client has left.
        OutOfMemoryError: as above, for want of memory.
    """
    reception = Reception(head_of(scope, limits), limits=limits, check=check, place=place, paced=True)
    return await receive_from(AsgiPeer(scope, receive, _no_send), reception, timeout)


async def send_response(send: Send, reply: Reply) -> None:
    """Send the answer to an inference request, tensor after tensor.

    Args:
        send: as ASGI gives it.
        reply: by `ReceivedRequest.reply`; or by `error_reply`, of what `receive_request` has raised.
    """
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded(complete_headers(reply))})
    async with aclosing(pieces(reply)) as coming:
        async for piece in coming:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def pieces(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield the body of a reply in pieces of at most 256 KiB, as `StreamingResponse` of Starlette wants it."""
    async with aclosing(async_batches(reply.buffers)) as coming:
        async for batch in coming:
            for view in batch:
                for start in range(0, len(view), SLICE_BYTES):
                    yield bytes(view[start : start + SLICE_BYTES])


async def _no_send(_: Message) -> None:
    """Send nothing: an endpoint answers by itself."""
