"""What BYTES cost, per element and without any transport: `python -m tests.benchmarks.elements`.

From the wire and to it: as an object array; as `(offsets, data)`, the way Arrow stores them; and as `Elements`, which
are offsets over the wire's own bytes. Elements have 32 bytes each, or uniformly random lengths, up to 64 bytes and up
to 1,000. Rates count the payloads. What is received is validated in each case.

Beside it stands tritonclient, which knows object arrays only: `serialize_byte_tensor` and `deserialize_bytes_tensor`.
At 32 bytes, object arrays are to be 5 times as fast as that, and `(offsets, data)` 20 times, in each direction.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from streamcodec import Elements
from tests.benchmarks.measure import Sample, in_turn, print_table, ratios, variant

FROM_OBJECTS: Final = "object array to wire"
TO_OBJECTS: Final = "wire to object array"
FROM_COMPACT: Final = "(offsets, data) to wire"
TO_COMPACT: Final = "wire to (offsets, data)"
TO_ELEMENTS: Final = "wire to Elements"
OURS: Final = "streamcodec"
OTHER: Final = "tritonclient"
MISSING: Final = "tritonclient is not here. To have it: `pip install 'tritonclient[http]'`"

LENGTHS: Final[Mapping[str, tuple[int, int]]] = {
    "32 bytes": (32, 32),
    "0 to 64 bytes": (0, 64),
    "0 to 1,000 bytes": (0, 1000),
}
"""The smallest and the largest length, by the name of the case."""

WANTED: Final = {FROM_OBJECTS: 5.0, TO_OBJECTS: 5.0, FROM_COMPACT: 20.0, TO_COMPACT: 20.0}
"""Times the rate of tritonclient with object arrays in the same direction, at 32 bytes."""

_TENSOR_BYTES: Final = 7 << 20
_SECONDS_NEAR_NOTHING: Final = 1e-9

Act = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementsTime:
    """What one act took for a tensor of one kind of lengths."""

    lengths: str
    """A key of `LENGTHS`."""
    act: str
    """One of the names above."""
    who: str
    """`OURS` or `OTHER`."""
    count: int
    """Elements of the tensor."""
    nbytes: int
    """Bytes of their payloads."""
    samples: Sequence[Sample]
    """Of each round, in seconds for the whole tensor."""

    @property
    def rates(self) -> list[float]:
        """Payload bytes per second of CPU time, which other programs on the machine disturb least."""
        return [self.nbytes / max(sample.cpu, _SECONDS_NEAR_NOTHING) for sample in self.samples]


def payloads(lengths: str) -> np.ndarray[Any, Any]:
    """Return an object array of random bytes with these lengths."""
    low, high = LENGTHS[lengths]
    random = np.random.default_rng(1)
    sizes = random.integers(low, high + 1, 2 * _TENSOR_BYTES // (low + high + 8))
    array = np.empty(len(sizes), object)
    array[:] = [random.bytes(size) for size in sizes.tolist()]
    return array


def acts_for(array: np.ndarray[Any, Any]) -> dict[tuple[str, str], Act]:
    """Return everything that is compared, by act and by whose it is."""
    wire = bytes(Elements(array).data)
    offsets, data = Elements(array).compact()
    return {
        (FROM_OBJECTS, OURS): lambda: Elements(array),
        (TO_OBJECTS, OURS): lambda: Elements.from_wire(wire, array.shape).array,
        (FROM_COMPACT, OURS): lambda: Elements.from_compact(offsets, data),
        (TO_COMPACT, OURS): lambda: Elements.from_wire(wire, array.shape).compact(),
        (TO_ELEMENTS, OURS): lambda: Elements.from_wire(wire, array.shape),
        **_tritonclient_acts(array, wire),
    }


def measure_elements(rounds: int = 9, lengths: Sequence[str] = tuple(LENGTHS)) -> list[ElementsTime]:
    """Measure all acts in turn, one kind of lengths after the other."""
    times: list[ElementsTime] = []
    for name in lengths:
        array = payloads(name)
        acts = acts_for(array)
        nbytes = sum(map(len, array.tolist()))
        taken = in_turn({f"{who}: {act}": variant(run) for (act, who), run in acts.items()}, rounds)
        times += [
            ElementsTime(
                lengths=name, act=act, who=who, count=len(array), nbytes=nbytes, samples=taken[f"{who}: {act}"]
            )
            for act, who in acts
        ]
    return times


def speeds(times: Sequence[ElementsTime]) -> dict[tuple[str, str], list[float]]:
    """Return how many times tritonclient's rate ours is, round by round, by lengths and act.

    Each act is compared with that of tritonclient in the same direction, which always has an object array at its end.
    """
    others = {(time.lengths, _is_to_wire(time.act)): time for time in times if time.who == OTHER}
    return {
        (time.lengths, time.act): ratios(time.rates, others[time.lengths, _is_to_wire(time.act)].rates)
        for time in times
        if time.who == OURS and others
    }


def main() -> None:
    """Measure and print."""
    times = measure_elements()
    faster = speeds(times)
    print(f"BYTES, one tensor of {_TENSOR_BYTES >> 20} MiB, medians of {len(times[0].samples)} rounds, CPU time")
    rows = []
    for time in times:
        rate = median(time.rates)
        speed = faster.get((time.lengths, time.act)) if time.who == OURS else None
        cells = f"{time.nbytes / time.count / rate * 1e9:.1f} ns", f"{rate / 1e9:.2f} GB/s"
        rows.append([f"{time.lengths}: {time.act}", time.who, *cells, f"{median(speed):.1f}" if speed else ""])
    print_table(["", "", "per element", "payloads", f"times {OTHER}"], rows)
    if not faster:
        print(MISSING)


def _is_to_wire(act: str) -> bool:
    return act in {FROM_OBJECTS, FROM_COMPACT}


def _tritonclient_acts(array: np.ndarray[Any, Any], wire: bytes) -> dict[tuple[str, str], Act]:
    if importlib.util.find_spec("tritonclient") is None:
        return {}
    from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor  # noqa: PLC0415 - optional

    return {
        (FROM_OBJECTS, OTHER): lambda: serialize_byte_tensor(array),
        (TO_OBJECTS, OTHER): lambda: deserialize_bytes_tensor(wire),
    }


if __name__ == "__main__":
    main()
