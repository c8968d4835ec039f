"""Endpoint: the pool of reused memory that the endpoints of all frameworks share.

New memory costs more than a copy, because the system has to clear it first. So by default tensors go to blocks of
earlier requests. A block returns to the pool when no array uses it any more.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.pool import Pool
from streamcodec.engine.spec import TensorSpec
from streamcodec.service.service import MAX_POOL_BYTES

_POOL: Final = Pool(max_idle_bytes=MAX_POOL_BYTES)


def in_shared_pool(_: TensorSpec) -> Pool:
    """Place a tensor in the pool that all endpoints of this process share."""
    return _POOL
