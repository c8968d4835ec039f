"""Driving: calls a model as often as one batch needs: a function, or an `async def`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Final, TypeVar, cast

from streamcodec.runtime.models.ending import is_ending
from streamcodec.service import BatchPlace, InferenceRequest, Model
from streamcodec.service.batches.collector import Closed
from streamcodec.service.batches.joining import Calls, Failed, Member

_MemberT = TypeVar("_MemberT", bound=Member)

_numbers: Final = count()


def tell_places(closed: Closed[_MemberT]) -> None:
    """Tell the requests of a batch what they are a part of."""
    members = closed.items
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


def bytes_of(members: Sequence[Member]) -> int:
    """Return the bytes of all rows of a batch."""
    return sum([array.nbytes for member in members for array in member.request.inputs.values()])


def drive(work: Calls, model: Model, *, is_in_thread: bool) -> None:
    """Call a function.

    Args:
        work: what is called; see `calls`.
        model: the model.
        is_in_thread: whether this thread is one for models. In any other, Ctrl-C may be meant for the program.
    """
    predict = cast("Callable[[InferenceRequest], object]", model.predict)
    with suppress(StopIteration):
        request = next(work)
        while True:
            returned: object
            try:
                returned = predict(request)
            except KeyboardInterrupt as error:
                if not is_in_thread:
                    raise
                returned = Failed(error)
            except BaseException as error:  # noqa: BLE001 - a model may raise anything, and must not end the server
                returned = Failed(error)
            request = work.send(returned)


async def drive_async(work: Calls, model: Model) -> None:
    """Call an `async def`."""
    predict = cast("Callable[[InferenceRequest], Awaitable[object]]", model.predict)
    with suppress(StopIteration):
        request = next(work)
        while True:
            returned: object
            try:
                returned = await predict(request)
            except BaseException as error:
                if is_ending(error):
                    raise
                returned = Failed(error)
            request = work.send(returned)
