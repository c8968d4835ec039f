"""Driving: queues requests, and calls a model as often as one batch needs: a function, or an `async def`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Final, TypeVar, cast

from streamcodec.runtime.models.failures import is_ending
from streamcodec.service import Batch, BatchPlace, InferenceRequest, Model, Reservation
from streamcodec.service.batches.collector import BatchCollector, Closed, Waiting
from streamcodec.service.batches.joining import Calls, Check, calls
from streamcodec.service.batches.members import Failed, Member, block_of, group_of
from streamcodec.service.models.batching import QueueFullError

_MemberT = TypeVar("_MemberT", bound=Member)

_numbers: Final = count()


def tell_places(closed: Closed[_MemberT]) -> None:
    """Tell those requests of a batch that are watched what they are a part of."""
    members = closed.items
    if not any(member.is_watched for member in members):
        return
    rows, number = sum([member.rows for member in members]), next(_numbers)
    for index, (member, waited) in enumerate(zip(members, closed.waited, strict=True)):
        member.place = BatchPlace(
            number=number,
            rows=rows,
            own_rows=member.rows,
            requests=len(members),
            index=index,
            reason=closed.reason,
            waited=waited,
        )


def entered(collector: BatchCollector[_MemberT], member: _MemberT, model: Model) -> Waiting[_MemberT]:
    """Put a member into the queue of its model.

    Raises:
        QueueFullError: as many rows wait as may.
    """
    key, most = group_of(member)
    waiting = collector.put(member, key, member.rows, monotonic(), most=most)
    if waiting is None:
        msg = f"{collector.rows} rows wait for model {model.name!r}, as many as may"
        raise QueueFullError(msg)
    return waiting


def calls_of(members: list[_MemberT], model: Model, check: Check, memory: Reservation) -> tuple[Calls, int]:
    """Return the calls for a batch, and the bytes of its inputs.

    Args:
        members: of the batch.
        model: is called; it takes batches.
        check: see `calls`.
        memory: of the batch, for a copy of the inputs.
    """
    nbytes = sum([array.nbytes for member in members for array in member.request.inputs.values()])
    may_copy = len(members) > 1 and block_of(members) is None and memory.ask_at_once(nbytes)
    retries = cast("Batch", model.batch).retry_alone
    return calls(members, check, retry_alone=retries, may_copy=may_copy, blocks=model.blocks), nbytes


def drive(work: Calls, model: Model, *, is_in_thread: bool) -> None:
    """Call a function.

    Args:
        work: what is called; see `calls`.
        model: the model.
        is_in_thread: whether this thread is one for models. In any other, Ctrl-C may be meant for the program.
    """
    with suppress(StopIteration):
        request = next(work)
        while True:
            request = work.send(_returned(model, request, is_in_thread=is_in_thread))


def _returned(model: Model, request: InferenceRequest, *, is_in_thread: bool) -> object:
    """Call a function once. What it raises refers to this frame, so no frame that refers to that may be `drive`'s."""
    try:
        return cast("Callable[[InferenceRequest], object]", model.predict)(request)
    except KeyboardInterrupt as error:
        if not is_in_thread:
            raise
        return Failed(error)
    except BaseException as error:  # noqa: BLE001 - a model may raise anything, and must not end the server
        return Failed(error)


async def drive_async(work: Calls, model: Model) -> None:
    """Call an `async def`."""
    with suppress(StopIteration):
        request = next(work)
        while True:
            request = work.send(await _awaited(model, request))


async def _awaited(model: Model, request: InferenceRequest) -> object:
    """Call an `async def` once; see `_returned`."""
    try:
        return await cast("Callable[[InferenceRequest], Awaitable[object]]", model.predict)(request)
    except BaseException as error:
        if is_ending(error):
            raise
        return Failed(error)
