"""Loads: what a server holds and has to do at a moment, read from those who count it anyway.

Nothing is counted for this. So a server that is never asked pays nothing for it.
"""

from __future__ import annotations

from streamcodec.engine.memory.pool import Pool
from streamcodec.runtime.models.workers import Workers
from streamcodec.service.memory.budget import Budget
from streamcodec.service.observing import ServerLoad


def load_of(
    budget: Budget,
    pool: Pool | None,
    workers: Workers,
    *,
    connections: int | None = None,
    requests_in_progress: int | None = None,
) -> ServerLoad:
    """Return the load.

    Args:
        budget: the memory of all requests.
        pool: None if there is none.
        workers: the threads.
        connections: None if a framework has them.
        requests_in_progress: the same.
    """
    return ServerLoad(
        reserved_bytes=budget.reserved,
        max_memory_bytes=budget.max_bytes,
        waiting_for_memory=budget.waiting,
        idle_pool_bytes=0 if pool is None else pool.idle_bytes,
        reused_pool_bytes=0 if pool is None else pool.reused_bytes,
        busy_threads=workers.busy,
        waiting_for_thread=workers.waiting,
        abandoned_calls=workers.abandoned,
        unfinished_calls=workers.unfinished,
        connections=connections,
        requests_in_progress=requests_in_progress,
    )
