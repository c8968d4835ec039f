"""Endpoint: receives an inference request and sends its answer within your own ASGI application."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from streamcodec.asgi.app import AsgiPeer, encoded
from streamcodec.asgi.scope import Message, Receive, Scope, Send, head_of
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.placement import Place
from streamcodec.server.endpoint import SHARED_BUDGET, in_shared_pool
from streamcodec.server.receiving import MIN_RATE, READ_TIMEOUT, options_of, receive_from
from streamcodec.server.sharing import SharedBudget
from streamcodec.service.reception import Check, ReceivedRequest, Reception
from streamcodec.service.replies import Reply, complete_headers
from streamcodec.transports.vectors import async_copied_pieces


async def receive_request(
    scope: Scope,
    receive: Receive,
    *,
    check: Check | None = None,
    place: Place = in_shared_pool,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float | None = READ_TIMEOUT,
    min_rate: float = MIN_RATE,
    budget: SharedBudget = SHARED_BUDGET,
) -> ReceivedRequest:
    """Receive an inference request while it arrives, each tensor in its final memory.

    Args:
        scope: of the request; `request.scope` in Starlette and FastAPI.
        receive: `request.receive` there. The body must not have been read before.
        check: called when the JSON header has arrived, before memory is taken for tensors. If it raises, the request is
            refused.
        place: chooses the memory of a tensor; by default a pool, to which the memory returns with its last array.
        limits: bound everything that is read.
        timeout: seconds without a byte; None leaves all limits of time to the framework.
        min_rate: bytes of tensors a second, after a first `timeout`.
        budget: the memory of all requests that have the same; by default all endpoints of this process share one, of
            half of the memory. A request counts as long as its `ReceivedRequest` exists. One that has to wait for
            memory for more than 10 seconds is refused.

    Returns:
        The request, with all of its tensors.

    Raises:
        RemoteProtocolError: the request is refused; `status_hint` is the status of the answer. Its code is
            `connection-closed` if the client has left.
        OutOfMemoryError: the same, because there is no memory.
    """
    reception = Reception(head_of(scope, limits), limits=limits, check=check, place=place, paced=True)
    return await receive_from(AsgiPeer(scope, receive, _no_send), reception, budget, options_of(timeout, min_rate))


async def send_response(send: Send, reply: Reply) -> None:
    """Send the answer to an inference request, tensor after tensor.

    Args:
        send: the ASGI callable.
        reply: from `ReceivedRequest.reply`; or from `error_reply`, for an error of `receive_request`.
    """
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded(complete_headers(reply))})
    async with aclosing(pieces(reply)) as coming:
        async for piece in coming:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def pieces(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield the body of a reply in pieces of at most 256 KiB, for Starlette's `StreamingResponse`."""
    return async_copied_pieces(reply.buffers)


async def _no_send(_: Message) -> None:
    """Send nothing: an endpoint sends its own answer."""
