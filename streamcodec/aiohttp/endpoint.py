"""Endpoint: receives an inference request and sends its answer within a user's own handler."""

from __future__ import annotations

from contextlib import aclosing

from aiohttp import web

from streamcodec.aiohttp.peer import AiohttpPeer, head_of, sent_at_once, started
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
    request: web.Request,
    *,
    check: Check | None = None,
    place: Place = in_shared_pool,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float | None = READ_TIMEOUT,
    min_rate: float = MIN_RATE,
    budget: SharedBudget = SHARED_BUDGET,
    auto_decompress: bool = True,
) -> ReceivedRequest:
    """Receive an inference request while it arrives, each tensor in its final memory.

    To refuse requests before the client is told to send them, give the route `expect_handler=leave_expectation` of
    `streamcodec.aiohttp.peer`. `client_max_size` of the application has no effect.

    Args:
        request: its body must not have been read before.
        check: called when the JSON header has arrived, before memory is taken for tensors; an exception of it refuses
            the request.
        place: chooses the memory for a tensor; by default a block of a pool, which returns there after its last array.
        limits: caps on everything that is read.
        timeout: seconds without a byte; None leaves all limits of time to the framework.
        min_rate: bytes of tensors a second, after a first `timeout`.
        budget: the memory of all requests that have the same; by default all endpoints of this process share one, of
            half of the memory. A request counts as long as its `ReceivedRequest` exists. One that has to wait for
            memory for more than 10 seconds is refused.
        auto_decompress: the value of the same argument of aiohttp; see `App`.

    Raises:
        RemoteProtocolError: the request is refused; `status_hint` is the status to answer with. Its code is
            `connection-closed` if the client has left.
        OutOfMemoryError: as above, for lack of memory. `MessageError` is the class of both.
        LocalProtocolError: some of the body has been read before, for example by `await request.read()`.
    """
    peer = AiohttpPeer(request, limits, auto_decompress=auto_decompress)
    reception = Reception(
        head_of(request, limits), limits=limits, check=check, place=place, is_decoded=peer.is_decoded, paced=True
    )
    return await receive_from(peer, reception, budget, options_of(timeout, min_rate))


async def send_response(request: web.Request, reply: Reply) -> web.StreamResponse:
    """Send the answer to an inference request, tensor after tensor.

    Args:
        request: the request that is answered.
        reply: made by `ReceivedRequest.reply`; or by `error_reply`, from an exception of `receive_request`.

    Returns:
        What the handler has to return.

    Raises:
        LocalProtocolError: no answer can have the status of the reply.
    """
    reply = lawful(reply)
    if reply.body_length <= PIECE_BYTES and is_there(reply):
        return await sent_at_once(request, reply)
    response = await started(request, reply.status, complete_headers(reply))
    async with aclosing(async_copied_pieces(reply.buffers)) as pieces:
        async for piece in pieces:
            await response.write(piece)
    return response
