"""Endpoint: the memory that the endpoints of all frameworks share: a pool of reused blocks, and a budget.

New memory costs more than a copy, because the system has to clear it first. So by default tensors go to blocks of
earlier requests. A block returns to the pool when no array uses it any more.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.pool import Pool
from streamcodec.engine.spec import TensorSpec
from streamcodec.server.memory import default_budget
from streamcodec.server.sharing import SharedBudget
from streamcodec.service.service import MAX_POOL_BYTES

_POOL: Final = Pool(max_idle_bytes=MAX_POOL_BYTES)

SHARED_BUDGET: Final = SharedBudget(default_budget(), _POOL)
"""Half of the memory that this process may have, as for the service."""


def in_shared_pool(_: TensorSpec) -> Pool:
    """Place a tensor in the pool that all endpoints of this process share."""
    return _POOL
