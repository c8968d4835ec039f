"""Client: a process that drives many connections at once, each with a mind of its own.

What a connection does, and in which order, follows from the seed and its number alone; when it does it is the
machine's. Orders come as lines of JSON on standard input, one for each phase; at the end of a phase all connections are
closed, and a line of JSON says what has been seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from random import Random
from typing import Any

from tests.soak.asking import FullError, ask
from tests.soak.good import Maker, Request
from tests.soak.mischief import ACTS, GOOD_WEIGHT
from tests.soak.wire import Address, Line

_PATIENCE = 60.0
"""Seconds for one act; whatever takes longer hangs."""

_MAX_PAUSE = 2.0
_MAX_SHOWN = 20
_LARGEST_EVERY = 50
"""One connection in so many sends the largest tensors."""


@dataclass(slots=True)
class Seen:
    """What the connections of this process have seen."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    """What should never have happened."""
    sent: int = 0
    """Bytes of good requests that were answered."""

    def complain(self, text: str) -> None:
        self.counts["broken"] += 1
        if len(self.broken) < _MAX_SHOWN:
            self.broken.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What is to be done."""

    seed: str
    seconds: float
    pause: float
    """Mean seconds between two acts of a connection."""
    is_good: bool = False
    """Whether there is to be no mischief."""
    without: tuple[str, ...] = ()
    """Kinds of good requests that are left out."""


class Actor:
    """One connection after the other, one at a time."""

    def __init__(self, address: Address, index: int, phase: Phase, noise: bytes, seen: Seen) -> None:
        self._address = address
        self._index = index
        self._phase = phase
        self._random = Random(f"{phase.seed}/{index}")  # noqa: S311 - to be the same again, not to be secret
        self._maker = Maker(self._random, noise, phase.without)
        self._seen = seen
        self._line: Line | None = None
        self._end = time.monotonic() + phase.seconds

    async def run(self) -> None:
        """Act until the phase is over."""
        names = ["good", *ACTS]
        weights = [GOOD_WEIGHT, *(0 if self._phase.is_good else weight for weight, _ in ACTS.values())]
        await asyncio.sleep(self._random.uniform(0, self._phase.pause))
        while time.monotonic() < self._end:
            (name,) = self._random.choices(names, weights)
            try:
                await (self._good() if name == "good" else self._mischief(name))
            except TimeoutError:
                self._complain(name, "nothing for too long")
            except AssertionError as error:
                self._complain(name, str(error))
            except OSError as error:
                self._complain(name, f"the connection broke: {error}")
            await asyncio.sleep(self._random.expovariate(1) * self._phase.pause)
        self._drop()

    async def _good(self) -> None:
        if self._random.random() < 1 / 10:
            requests = self._maker.pipelined()
        else:
            requests = [self._maker.next(may_be_largest=self._index % _LARGEST_EVERY == 0)]
        while not await self._is_answered(requests):  # whoever is told to come back may be told so again and again
            if time.monotonic() > self._end:
                self._seen.counts["good: full to the end"] += 1
                return
            self._seen.counts["good: asked again"] += 1

    async def _is_answered(self, requests: list[Request]) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE):
                is_kept = await ask(await self._connected(), requests)
        except FullError as full:
            self._seen.counts["good: full"] += 1
            self._drop()
            await asyncio.sleep(min(full.seconds, _MAX_PAUSE) * self._random.uniform(1, 1.5))
            return False
        except (AssertionError, OSError, TimeoutError) as error:
            raise type(error)(f"{requests[0].kind} of {requests[0].nbytes} bytes: {error}") from error
        if not is_kept:
            self._drop()
        self._seen.counts[f"good {requests[0].kind}: answered"] += len(requests)
        self._seen.sent += sum(request.nbytes for request in requests)
        return True

    async def _mischief(self, name: str) -> None:
        if name == "slow reader":
            self._drop()
        line = await self._connected(receive_bytes=16 << 10 if name == "slow reader" else None)
        _, act = ACTS[name]
        try:
            async with asyncio.timeout(_PATIENCE):
                outcome = await act(line, self._random, self._maker)
        finally:
            self._drop()
        self._seen.counts[f"{name}: {outcome}"] += 1

    async def _connected(self, *, receive_bytes: int | None = None) -> Line:
        if self._line is None:
            self._line = await Line.open(self._address, receive_bytes=receive_bytes)
        return self._line

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _complain(self, name: str, text: str) -> None:
        self._drop()
        self._seen.complain(f"connection {self._index}, {name}: {text}")


async def run_phase(address: Address, first: int, count: int, phase: Phase, noise: bytes) -> Seen:
    """Let all connections act; return what they have seen."""
    seen = Seen()
    async with asyncio.TaskGroup() as tasks:
        for index in range(first, first + count):
            tasks.create_task(Actor(address, index, phase, noise, seen).run())
    return seen


def main() -> None:
    """Do phase after phase, until there are no more orders."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.client")
    parser.add_argument("--address", type=json.loads, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--largest", type=int, required=True, metavar="BYTES")
    options = parser.parse_args()
    noise = Random(options.first).randbytes(options.largest)  # noqa: S311 - as above
    for order in sys.stdin:
        phase = Phase(**json.loads(order))
        address = (options.address[0], options.address[1])
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            seen = runner.run(run_phase(address, options.first, options.count, phase, noise))
        print(json.dumps({"counts": seen.counts, "broken": seen.broken, "sent": seen.sent}), flush=True)


def _loop_factory() -> Any:  # noqa: ANN401 - of uvloop, which may not be there
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an optional package

    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
