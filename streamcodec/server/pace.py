"""Pace: measures how long calls of models take, so that quick ones need no thread.

A thread costs some 100 microseconds and more, where a model that only looks at its inputs takes 10. How long a call
takes cannot be told from the number of bytes. So calls that are planned are measured (`Plan.measured`): those with the
same JSON header have the same tensors. The service decides, and has no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, thread_time

from streamcodec.http.messages import HttpEvent
from streamcodec.service import Inference, Reply


def run(inference: Inference, pull: Callable[[], HttpEvent] | None = None) -> Reply:
    """Call the model and make the reply; see `Inference.run`."""
    plan = inference.plan
    if plan is None:
        return inference.run(pull)
    began, cpu_began = perf_counter(), thread_time()
    try:
        return inference.run(pull)  # if the model fails, its traceback holds this frame, which must not hold the reply
    finally:
        plan.measured(perf_counter() - began, thread_time() - cpu_began)
