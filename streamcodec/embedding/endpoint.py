"""Endpoint: receives requests for endpoints of a user's own, in any framework that has a `Peer`.

All endpoints of a process share a budget of memory, and a pool of reused blocks. New memory costs more than a copy,
because the system has to clear it first. So by default tensors go to blocks of earlier requests. A block returns to the
pool when no array uses it any more.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from streamcodec.embedding.reading import Peer, TaskReader
from streamcodec.embedding.request import EndpointRequest
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.pool import Pool
from streamcodec.engine.spec import TensorSpec
from streamcodec.runtime.memory.available import default_budget
from streamcodec.runtime.memory.sharing import SharedBudget
from streamcodec.runtime.memory.waiting import look_for_memory
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import first_timeout
from streamcodec.service.request.reception import ReceivedRequest, Reception
from streamcodec.service.service import MAX_POOL_BYTES

READ_TIMEOUT: Final = 30.0
"""Seconds without a byte: a network recovers within that time or not at all."""

MIN_RATE: Final = 1024.0
"""Bytes a second, as of the bundled server."""

_HEADER_TIMEOUT: Final = 60.0


_POOL: Final = Pool(max_idle_bytes=MAX_POOL_BYTES)

SHARED_BUDGET: Final = SharedBudget(default_budget(), _POOL)
"""Half of the memory that this process may have, as for the service."""

READER: Final = "streamcodec.reader"
"""The member of a scope, or of WSGI's variables, that refers to where the body has been read from."""


@lru_cache(maxsize=64)
def options_of(timeout: float | None, min_rate: float) -> ServerOptions:
    """Return the limits of time of an endpoint.

    Args:
        timeout: seconds without a byte; None leaves all limits of time to the framework.
        min_rate: bytes a second of tensors, after a first `timeout`.
    """
    if timeout is None:
        return ServerOptions(
            max_memory_bytes=1, header_timeout=math.inf, read_timeout=math.inf, request_timeout=math.inf, min_rate=0.0
        )
    return ServerOptions(
        max_memory_bytes=1,
        header_timeout=max(timeout, _HEADER_TIMEOUT),
        read_timeout=timeout,
        min_rate=min_rate,
    )


def in_shared_pool(_: TensorSpec) -> Pool:
    """Place a tensor in the pool that all endpoints of this process share."""
    return _POOL


def already_read(by: str) -> LocalProtocolError:
    """Return the error of an endpoint that asks for a body which somebody has read.

    Without it, the endpoint would wait for bytes that never come, and then blame the client.
    """
    return LocalProtocolError(
        f"the body of this request has been read before, by {by}; receive_request() reads it itself, once, so nothing "
        "else may read it; a body that is in memory can be decoded by request_decoder()"
    )


def whole_bytes(reception: Reception, budget: SharedBudget) -> int | None:
    """Return the bytes of a body that may be received at once; None if it has to be received by its events.

    Raises:
        LimitExceededError: it takes more memory than there is for all requests.
    """
    nbytes = reception.whole_bytes if reception.place is in_shared_pool else None
    if nbytes is not None:
        budget.budget.check(nbytes)
    return nbytes


def receive_at_once(reception: Reception, body: bytes, budget: SharedBudget) -> ReceivedRequest | None:
    """Receive a whole body; None if there is no memory for it now, or if it has to be received by its events."""
    hold, request = budget.hold_at_once(len(body)), None
    if hold is not None:
        try:
            request = reception.receive_whole(body, hold)
        finally:
            if request is None:
                hold.end()
    return request


async def receive_from(
    peer: Peer, reception: Reception, budget: SharedBudget, options: ServerOptions
) -> ReceivedRequest:
    """Receive a request.

    Args:
        peer: brings the body.
        reception: takes it; paced.
        budget: the memory of all requests.
        options: by `options_of`.

    Raises:
        RemoteProtocolError: the request is refused; `too-slow`, or `connection-closed` if the client has left.
        OutOfMemoryError: as above, for want of memory.
    """
    if (length := whole_bytes(reception, budget)) is not None:
        body = await peer.whole(length, first_timeout(options))
        if body is not None and (received := receive_at_once(reception, body, budget)) is not None:
            return received
    request = EndpointRequest(reception, budget, options)
    try:
        await TaskReader(request, peer, options, look_for_memory).next_step()
    except BaseException:
        request.end()
        raise
    return request.result
