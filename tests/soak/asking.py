"""Asking: a good request sent, and its answer held against what it must be while it arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence

from tests.soak.good import Output, Request, check_header
from tests.soak.wire import Buffer, Head, Line

_OK = 200
_FULL = 503
_SMALL_BYTES = 64 << 10


class FullError(Exception):
    """The server has no room for this request now: 503 with Retry-After."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


async def ask(line: Line, requests: Sequence[Request], *, sending: Iterable[Buffer] | None = None) -> bool:
    """Send requests in one go and check their answers, reading while it sends.

    Args:
        line: fresh, or kept from an earlier answer.
        requests: one, or several that are pipelined.
        sending: what is sent for them, if it is not their own parts.

    Returns:
        Whether the connection may be used again.

    Raises:
        FullError: the server answers that it is full.
        AssertionError: an answer is not what it must be.
        OSError: the connection broke.
    """
    parts = [part for request in requests for part in request.parts] if sending is None else sending
    if sum(request.nbytes for request in requests) <= _SMALL_BYTES:
        await line.send([b"".join(parts)])
        return await _check_all(line, requests)
    async with Sending(line, parts) as task:
        is_kept = await _check_all(line, requests)
        return is_kept and task.done()


class Sending:
    """Sends in a task of its own, whose failure shows in the answer that does not come."""

    def __init__(self, line: Line, parts: Iterable[Buffer]) -> None:
        self._coroutine = line.send(parts)

    async def __aenter__(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self._coroutine)
        return self._task

    async def __aexit__(self, *_: object) -> None:
        if not self._task.done():
            await asyncio.sleep(0)  # the last piece may have gone already
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _check_all(line: Line, requests: Sequence[Request]) -> bool:
    head = None
    for request in requests:
        head = await line.head()
        await check_answer(line, head, request)
    return head is not None and not head.is_last


async def check_answer(line: Line, head: Head, request: Request) -> None:
    """Read the body of an answer, and check it.

    Raises:
        FullError: the server answers that it is full.
        AssertionError: the answer is not what it must be.
    """
    if head.status == _FULL and "retry-after" in head.fields:
        await line.exactly(head.body_length)
        raise FullError(int(head.fields["retry-after"]))
    if head.status != _OK:
        raise AssertionError(f"a good request is answered {head.status}: {await line.document(head)}")
    if request.outputs is None:
        await line.document(head)
        return
    check_header(request, json.loads(await line.exactly(head.header_length)))
    left = head.body_length - head.header_length
    for output in request.outputs:
        left -= await _check_output(line, output)
    assert left == 0, f"{left} bytes follow the last output"


async def _check_output(line: Line, output: Output) -> int:
    """Compare the bytes of one output as they come; return how many there were."""
    wanted = memoryview(output.data or b"")
    position = 0
    while position < len(wanted):
        chunk = await line.some(len(wanted) - position)
        assert chunk == bytes(wanted[position : position + len(chunk)]), f"bytes of {output.name} have changed"
        position += len(chunk)
    return position
