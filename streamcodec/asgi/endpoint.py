"""Endpoint: receives an inference request and sends its answer within your own ASGI application."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from streamcodec.asgi.app import (
    AsgiPeer,
    Message,
    Receive,
    Scope,
    Send,
    StarletteRequest,
    encoded,
    head_of,
    send_at_once,
    unread,
)
from streamcodec.embedding.atonce import is_there
from streamcodec.embedding.endpoint import (
    MIN_RATE,
    READ_TIMEOUT,
    SHARED_BUDGET,
    in_shared_pool,
    options_of,
    receive_from,
)
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.memory.placement import Place
from streamcodec.runtime.memory.sharing import SharedBudget
from streamcodec.service.replies import Reply, complete_headers, lawful
from streamcodec.service.request.reception import Check, ReceivedRequest, Reception
from streamcodec.transports.sockets.vectors import PIECE_BYTES, async_copied_pieces


async def receive_request(
    scope: Scope | StarletteRequest,
    receive: Receive | None = None,
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
        scope: the request of Starlette or FastAPI; in other applications, the scope of the request.
        receive: of the request, if a scope is given. Nobody may have read the body before. With a scope, only an
            earlier `receive_request` is noticed: after other readers, the server waits as for a slow client. With a
            request, reading only a part of `request.stream()` is not noticed.
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
        OutOfMemoryError: the same, because there is no memory. `MessageError` is the class of both.
        LocalProtocolError: the body has been read before, for example by `await request.body()`; or a scope came
            without `receive`.
    """
    scope, receive = unread(scope, receive)
    reception = Reception(head_of(scope, limits), limits=limits, check=check, place=place, paced=True)
    return await receive_from(AsgiPeer(scope, receive, _no_send), reception, budget, options_of(timeout, min_rate))


async def send_response(send: Send, reply: Reply) -> None:
    """Send the answer to an inference request, tensor after tensor.

    Args:
        send: the ASGI callable.
        reply: from `ReceivedRequest.reply`; or from `error_reply`, for an error of `receive_request`.

    Raises:
        LocalProtocolError: no answer can have the status of the reply.
    """
    reply = lawful(reply)
    if reply.body_length <= PIECE_BYTES and is_there(reply):
        await send_at_once(send, reply)
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded(complete_headers(reply))})
    async with aclosing(pieces(reply)) as coming:
        async for piece in coming:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def pieces(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield the body of a reply in pieces of at most 256 KiB, for Starlette's `StreamingResponse`.

    Raises:
        LocalProtocolError: no answer can have the status of the reply.
    """
    return async_copied_pieces(lawful(reply).buffers)


async def _no_send(_: Message) -> None:
    """Send nothing: an endpoint sends its own answer."""
