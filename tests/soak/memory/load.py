"""Load: connections that send requests at random, alone and many at once, and judge each answer.

A server without memory may answer 503, and 413 to what never fits. It may not answer wrongly, or break off.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Final

from tests.soak.asking import Sending
from tests.soak.memory.requests import Request
from tests.soak.wire import Address, Line

_OK: Final = 200
_TOO_LARGE: Final = 413
_FULL: Final = 503
_REFUSALS: Final = range(400, 500)

_PATIENCE: Final = 60.0
"""Seconds for an answer; more than any limit of time of the server."""

_BURST: Final = 64
_BURST_EVERY: Final = 20
_PAUSE: Final = 0.02
"""Mean of seconds between two requests of one connection."""

_KEPT: Final = 0.5
"""How often a connection is kept for the next request."""


class Load:
    """What some connections do to a server for a while.

    Attributes:
        counts: what came of the requests, by kind.
        broken: some of what should not have happened.
    """

    def __init__(self, requests: dict[str, list[Request]], tiny: Sequence[Request], seed: str) -> None:
        self._requests = requests
        self._tiny = tiny
        self._random = Random(seed)  # noqa: S311 - to be the same again
        self._address: Address = ("", 0)
        self.counts: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()

    async def run(self, address: Address, connections: int, seconds: float) -> None:
        """Send requests until the time is over; or until the server has died, when nobody listens any more."""
        self._address = address
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for index in range(connections):
                tasks.create_task(self._act(end, may_burst=index == 0))

    async def _act(self, end: float, *, may_burst: bool) -> None:
        line: Line | None = None
        while time.monotonic() < end:
            try:
                if may_burst and not self._random.randrange(_BURST_EVERY):
                    await self._burst()
                is_kept = line is not None
                line = line or await Line.open(self._address)
                kind = self._random.choice([*self._requests])
                if not await self._ask(line, self._random.choice(self._requests[kind]), is_kept=is_kept):
                    line.close()
                    line = None
                await asyncio.sleep(self._random.expovariate(1) * _PAUSE)
            except ConnectionRefusedError:
                return
            except OSError as error:
                self.broken[f"connection: {type(error).__name__}"] += 1
                line = None
            if line is not None and self._random.random() > _KEPT:
                line.close()
                line = None
        if line is not None:
            line.close()

    async def _burst(self) -> None:
        """Send the first half of many requests, then the rest."""
        with ExitStack() as stack:
            lines = [await Line.open(self._address) for _ in range(_BURST)]
            for line in lines:
                stack.callback(line.close)
            chosen = [(line, self._random.choice(self._tiny)) for line in lines]
            await asyncio.gather(*(line.send([_whole(request)[: request.nbytes // 2]]) for line, request in chosen))
            await asyncio.sleep(self._random.random())
            await asyncio.gather(*(self._ask(line, request, request.nbytes // 2) for line, request in chosen))

    async def _ask(self, line: Line, request: Request, begun: int = 0, *, is_kept: bool = False) -> bool:
        """Send the rest of a request and judge its answer; return whether the connection may be used again.

        One that was kept may have been closed meanwhile, because others needed its place.
        """
        parts = [_whole(request)[begun:]] if begun else request.parts
        try:
            async with asyncio.timeout(_PATIENCE), Sending(line, parts) as sending:
                head = await line.head()
                body = await line.exactly(head.body_length)
                is_sent = sending.done()
        except (OSError, TimeoutError) as error:
            if is_kept and isinstance(error, ConnectionError):
                self.counts["closed before"] += 1
            else:
                self.broken[f"{request.kind}: {type(error).__name__}"] += 1
            return False
        self.counts["requests"] += 1
        if head.status == _OK and request.wanted is not None and body[head.header_length :] == request.wanted:
            self.counts["right"] += 1
        elif head.status in {_FULL, _TOO_LARGE}:
            self.counts[f"{head.status}"] += 1
            self.counts[f"{request.kind}: {head.status}"] += 1
        elif request.wanted is None and head.status in _REFUSALS:
            self.counts["refused"] += 1
        else:
            self.counts["wrong"] += 1
            self.broken[f"{request.kind}: {head.status} {_error(body)}"] += 1
        return is_sent and not head.is_last


def _whole(request: Request) -> bytes:
    return b"".join(request.parts)


def _error(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError):
        return "with other bytes"
