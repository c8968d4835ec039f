"""Calls: where models run. In worker threads, so that the event loop goes on; or on the event loop, if they are async.

The thread of a model that does not return cannot be ended. When its connection has to end all the same, the call is
abandoned, and counted.

A model that takes windows waits for them wherever it runs: a thread has the event loop wait in its place, an `async
def` awaits them. Rows that a model answers with are made where it has run, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import anyio

from streamcodec.core.encoder import Part
from streamcodec.core.model import RequestHeader, TensorSpec
from streamcodec.core.rows import Rows, Window, synchronous
from streamcodec.http.messages import HttpEvent
from streamcodec.service import Inference, Reply
from streamcodec.service.models import Values
from streamcodec.service.windows import check_end, checked

AsyncPull = Callable[[], Coroutine[Any, Any, HttpEvent]]
"""Waits for the next event of a request."""

_T = TypeVar("_T")


class Caller:
    """Calls models, a bounded number of them at once.

    Attributes:
        abandoned: calls that had not returned when their connections had to end.
    """

    def __init__(self, max_workers: int) -> None:
        """Use so many worker threads."""
        self._workers = anyio.CapacityLimiter(max_workers)
        self.abandoned = 0

    async def call(self, inference: Inference, pull: AsyncPull) -> Reply:
        """Have the model of a request called; `pull` is for one that takes windows."""
        if inference.opening.model.is_async:
            return await self._await(inference, pull)
        return await self._in_thread(inference.run, lambda: anyio.from_thread.run(pull))

    def sendable(self, parts: list[Part]) -> list[Part]:
        """Return the parts of an answer with rows that never make the event loop wait: a thread makes them."""
        return [self._rows_of_thread(part) if isinstance(part, Rows) else part for part in parts]

    async def _await(self, inference: Inference, pull: AsyncPull) -> Reply:
        opening = inference.opening
        request = inference.request(lambda spec, header: _windows_of(spec, header, pull))
        try:
            outputs = await opening.model.predict(request)  # type: ignore[misc] # as it says of itself
            outputs = {name: await _synchronous(value, name, request.header) for name, value in outputs.items()}
            if opening.encoding is None:
                return opening.reply(outputs, request.header)
            return await self._in_thread(opening.reply, outputs, request.header)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            return opening.failure(error)

    async def _in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        try:
            return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True, limiter=self._workers)
        except anyio.get_cancelled_exc_class():
            self.abandoned += 1
            raise

    def _rows_of_thread(self, rows: Rows) -> Rows:
        if rows.is_asynchronous:
            return rows
        return Rows(rows.datatype, rows.shape, self._iterate(iter(synchronous(rows))))

    async def _iterate(self, windows: Iterator[Window]) -> AsyncIterator[Window]:
        while (window := await self._in_thread(lambda: next(windows, None))) is not None:
            yield window


async def _windows_of(spec: TensorSpec, header: RequestHeader, pull: AsyncPull) -> AsyncIterator[Window]:
    """Yield the windows of one input, as `windows_of` does."""
    is_last = False
    while not is_last:
        event = checked(await pull(), spec)
        yield event.array
        is_last = event.is_last
    if spec is header.tensors[-1]:
        check_end(await pull())


async def _synchronous(value: Values, name: str, header: RequestHeader) -> Values:
    """Wait for rows that are wanted as JSON, which is written all at once; leave everything else as it is."""
    if not isinstance(value, Rows) or not isinstance(value.windows, AsyncIterable):
        return value
    requested = next((output for output in header.outputs or () if output.name == name), None)
    if header.wants_binary(requested):
        return value
    return Rows(value.datatype, value.shape, [window.copy() async for window in value.windows])
