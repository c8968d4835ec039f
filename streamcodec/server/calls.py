"""Calls: where models run. In worker threads, so that the event loop goes on; or on the event loop, if they are async.

The thread of a model that does not return cannot be ended. When its connection has to end all the same, the call is
abandoned, and counted.
"""

from __future__ import annotations

import anyio

from streamcodec.service import Inference, Reply


class Caller:
    """Calls models, a bounded number of them at once.

    Attributes:
        abandoned: calls that had not returned when their connections had to end.
    """

    def __init__(self, max_workers: int) -> None:
        """Use so many worker threads."""
        self._workers = anyio.CapacityLimiter(max_workers)
        self.abandoned = 0

    async def call(self, inference: Inference) -> Reply:
        """Have the model of a request called."""
        try:
            return await anyio.to_thread.run_sync(inference.run, abandon_on_cancel=True, limiter=self._workers)
        except anyio.get_cancelled_exc_class():
            self.abandoned += 1
            raise
