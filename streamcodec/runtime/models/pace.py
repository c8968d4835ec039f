"""Pace: calls models, and measures how long that takes, so that quick ones need no thread.

The service decides (`Quickness`), and has no clock. A call counts with its reply, because that is made where the model
has run. On an event loop, nothing can stop a call: if it has taken longer than a model may, its answer is the one that
a call in a thread would have had by then.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from time import perf_counter, thread_time
from typing import Final, cast

from streamcodec.http.heads.messages import HttpEvent
from streamcodec.runtime.observation import Observation
from streamcodec.service import Inference, Model, Reply, ResolvedHead, failure_reply
from streamcodec.service.models.quickness import STALL_SECONDS
from streamcodec.service.request.inference import MAX_INLINE_BYTES
from streamcodec.service.request.plan import Recipe

_Usage = tuple[int, float]
"""Of a thread: how often it has waited, and its CPU time."""


def _usage_of_thread() -> Callable[[], _Usage]:
    """Return what tells the usage; where the system does not count waits for a thread, all time is that of its CPU."""
    try:
        from resource import RUSAGE_THREAD, getrusage  # noqa: PLC0415 - not on all systems
    except ImportError:
        return lambda: (0, perf_counter())

    def usage() -> _Usage:
        # The CPU time of `getrusage` is up to a tick of the system old.
        return getrusage(RUSAGE_THREAD).ru_nvcsw, thread_time()

    return usage


_usage: Final = _usage_of_thread()


def run(inference: Inference, pull: Callable[[], HttpEvent] | None = None) -> Reply:
    """Call the model and make the reply, in a thread; see `Inference.run`.

    A KeyboardInterrupt is an exception of the model like any other: Ctrl-C is raised in the main thread.
    """
    quickness = inference.resolved.judge(inference.arriving.offset)
    began, before = perf_counter(), None if quickness is None else _usage()
    try:
        return inference.run(pull)  # if the model fails, its traceback holds this frame, which must not hold the reply
    except KeyboardInterrupt as error:
        return inference.resolved.failure(error, inference.request_id)
    finally:
        if quickness is not None and before is not None:
            now, has_waited = perf_counter(), _usage()[0] != before[0]
            quickness.ran_in_thread(inference.arriving.offset, now - began, now, has_waited=has_waited)


def run_inline(inference: Inference, timeout: float) -> Reply:
    """Call the model and make the reply, on the event loop.

    Args:
        inference: the request; it `is_inline`.
        timeout: seconds that a model may take.
    """
    if inference.resolved.judge(inference.arriving.offset) is None:
        return inference.run()
    began, before = perf_counter(), _usage()
    return cast("Reply", _judged(inference.run(), inference.resolved, timeout, began, before))


def may_run_batch_inline(model: Model, nbytes: int) -> bool:
    """Whether a batch of so many bytes may run on an event loop; see `ResolvedHead.is_inline`."""
    if model.is_async or model.is_inline is False:
        return False
    return (model.is_inline is True and nbytes <= MAX_INLINE_BYTES) or model.quickness.may_run_inline(nbytes)


def run_batch(model: Model, nbytes: int, call: Callable[[], None], *, is_in_thread: bool) -> None:
    """Call a model for a batch, and judge the time that this takes; `call` raises nothing."""
    began, before = perf_counter(), _usage()
    call()
    now = perf_counter()
    if is_in_thread:
        model.quickness.ran_in_thread(nbytes, now - began, now, has_waited=_usage()[0] != before[0])
    elif now - began > STALL_SECONDS and _is_its_own(before):
        model.quickness.has_stalled(now - began, now)


def run_at_once(
    recipe: Recipe,
    header_length: int | None,
    body: memoryview,
    observation: Observation | None,
    timeout: float,
    *,
    may_refuse: bool = True,
) -> Reply | None:
    """Call the model with a whole body, on the event loop; see `Recipe.infer`."""
    resolved = recipe.resolved
    began, before = perf_counter(), None if resolved.judge(len(body)) is None else _usage()
    reply = recipe.infer(header_length, body, observation, may_refuse=may_refuse)
    if observation is not None and observation.model is None and reply is not None:  # refused before the call
        observation.model, observation.version = resolved.model.name, resolved.version
    return reply if before is None else _judged(reply, resolved, timeout, began, before)


def _judged(reply: Reply | None, resolved: ResolvedHead, timeout: float, began: float, before: _Usage) -> Reply | None:
    """Return a reply that was made on the event loop, if that did not take too long."""
    now = perf_counter()
    seconds = now - began
    if reply is None:
        return None
    if reply.cause is not None or (seconds > STALL_SECONDS and _is_its_own(before)):
        resolved.model.quickness.has_stalled(seconds, now)
    return reply if seconds <= timeout else late_reply(resolved, timeout)


def _is_its_own(before: _Usage) -> bool:
    """Whether a call took long by itself, and not because something else had the processor.

    That may be another thread, or another machine on the same host, of which the system knows nothing.
    """
    waits, cpu_seconds = _usage()
    return waits != before[0] or cpu_seconds - before[1] > STALL_SECONDS


def late_reply(resolved: ResolvedHead, timeout: float) -> Reply:
    """Return the reply of a model that has not answered in time."""
    msg = f"model {resolved.model.name!r} has not answered within {timeout:g} seconds"
    return failure_reply(msg, status=HTTPStatus.GATEWAY_TIMEOUT)
