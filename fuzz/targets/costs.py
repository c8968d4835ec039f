"""Costs: what an input takes of the processor and of memory, and whether that is too much for its bytes.

A peer pays for what it sends by the byte, so time and memory may grow with the bytes that come in and with those that
are made of them, and no faster. The bounds have slack: they are several times what the dearest right message takes. A
way in which a refusal costs a second a megabyte is far beyond them; so is one that keeps fifty times its text.

Time is CPU time of this thread, the least of some runs. The bounds are in seconds of a machine on which a plain loop
takes `_REFERENCE_SECONDS`; a slower one, or one whose code is instrumented, is given as much more.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Final

from targets import compression, connections, decoder, header
from targets.case import Case, Face

_LOOP: Final = 20_000
_REFERENCE_SECONDS: Final = 0.001
_FIXED_SECONDS: Final = 0.003
_RUNS: Final = 3
_INSTRUMENTED: Final = 4
"""How many times longer instrumented code may take."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a byte may cost."""

    seconds_in: float
    seconds_out: float
    memory_in: float
    memory_out: float
    memory: int = 512 << 10
    """Whatever the input is."""


RATES: Final = {
    "header": Rates(0.4e-6, 0.05e-6, 64, 4),
    "decoder": Rates(0.4e-6, 0.05e-6, 64, 4),
    "compression": Rates(0.4e-6, 0.02e-6, 4, 4),
    "http": Rates(8e-6, 0.05e-6, 64, 4, 4 << 20),
}
"""By target. A request without a body has some 30 bytes, and `h11` takes a tenth of a millisecond for its
head; what was collected of a body that is refused later counts as nothing that was made, and is a MiB at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one input took."""

    target: str
    seconds: float
    nbytes: int
    """Of what came in."""
    output_bytes: int
    """Of what was made of it."""
    peak_bytes: int = 0
    """Memory at most; 0 where it was not measured."""

    @property
    def share(self) -> float:
        """How much of what it may take it has taken: of time or of memory, whichever is more. 1 is the bound."""
        rates = RATES[self.target]
        allowed = rates.seconds_in * self.nbytes + rates.seconds_out * self.output_bytes + _FIXED_SECONDS
        memory = rates.memory_in * self.nbytes + rates.memory_out * self.output_bytes + rates.memory
        return max(self.seconds / (allowed * _slowness()), self.peak_bytes / memory)

    def __str__(self) -> str:
        """Say it in words."""
        return (
            f"{self.share:.2f} of the bound: {self.nbytes:,} bytes in, {self.output_bytes:,} out, "
            f"{self.seconds * 1e3:.2f} ms ({self.seconds / max(1, self.nbytes) * 1e6:.2f} us a byte), "
            f"{self.peak_bytes / 1024:,.0f} KiB at most"
        )


Act = Callable[[], int]
"""Does the work; returns how many bytes it has made."""


def cost_of(target: str, data: bytes, *, with_memory: bool = True) -> Cost:
    """Measure one input of a target."""
    nbytes, act = _ACTS[target](data)
    seconds, made = min(_timed(act) for _ in range(_RUNS))
    peak = _peak_of(act) if with_memory else 0
    return Cost(target=target, seconds=seconds, nbytes=nbytes, output_bytes=made, peak_bytes=peak)


def judged(target: str, look: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Have a fuzz target complain of inputs that take too much time, too."""

    def judge(data: bytes) -> None:
        look(data)
        cost = cost_of(target, data, with_memory=False)
        if cost.share > _INSTRUMENTED:
            raise AssertionError(f"too much time for its bytes: {cost}")

    return judge


def _timed(act: Act) -> tuple[float, int]:
    was_enabled = gc.isenabled()
    gc.disable()  # when it runs depends on everything else
    try:
        began = time.thread_time()
        made = act()
        return time.thread_time() - began, made
    finally:
        if was_enabled:
            gc.enable()


def _peak_of(act: Act) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@cache
def _slowness() -> float:
    def loop() -> int:
        total = 0
        for number in range(_LOOP):
            total += number & 7
        return total

    return max(1.0, min(_timed(loop)[0] for _ in range(_RUNS)) / _REFERENCE_SECONDS)


def _of_header(data: bytes) -> tuple[int, Act]:
    case = header.Case.read(data)

    def act() -> int:
        result = header.parsed(case)
        return 0 if isinstance(result, Exception) else sum(spec.nbytes for spec in result.tensors)

    return len(case.text), act


def _of_decoder(data: bytes) -> tuple[int, Act]:
    case = Case.read(data)

    def act() -> int:
        outcome = decoder.decode(case, Face.PUSH, repeat(len(case.stream)))
        return sum(tensor.spec.nbytes for tensor in outcome.tensors)

    return len(case.stream), act


def _of_compression(data: bytes) -> tuple[int, Act]:
    case = compression.Case.read(data)
    return len(case.body), lambda: len(compression.inflate(case, [case.body]).output)


def _of_http(data: bytes) -> tuple[int, Act]:
    case = connections.Case.read(data)

    def act() -> int:
        outcome = connections.run(case, Face.PUSH, repeat(max(1, len(case.stream))))
        return sum(len(message.body or b"") for message in outcome.messages)

    return len(case.stream), act


_ACTS: Final[dict[str, Callable[[bytes], tuple[int, Act]]]] = {
    "header": _of_header,
    "decoder": _of_decoder,
    "compression": _of_compression,
    "http": _of_http,
}
