"""Endpoint: what the endpoints of all frameworks share: a pool of reused blocks, a budget, and an error.

New memory costs more than a copy, because the system has to clear it first. So by default tensors go to blocks of
earlier requests. A block returns to the pool when no array uses it any more.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.pool import Pool
from streamcodec.engine.spec import TensorSpec
from streamcodec.server.memory import default_budget
from streamcodec.server.sharing import SharedBudget
from streamcodec.service.service import MAX_POOL_BYTES

_POOL: Final = Pool(max_idle_bytes=MAX_POOL_BYTES)

SHARED_BUDGET: Final = SharedBudget(default_budget(), _POOL)
"""Half of the memory that this process may have, as for the service."""

READER: Final = "streamcodec.reader"
"""The member of a scope, or of WSGI's variables, that refers to where the body has been read from."""


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
