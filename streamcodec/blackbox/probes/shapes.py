"""Shapes: invalid values of `shape`, and products that overflow machine integers."""

from __future__ import annotations

import math
from collections.abc import Callable

from streamcodec.blackbox.messages import ABSENT, RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import V2
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

_REFUSE = Expectation.REFUSE
_SIZES = f"{V2}, tensor: shape is an array of sizes"
_COUNT = f"{V2}, tensor: data has as many elements as shape says"


def _shaped(shape: Callable[[list[int]], object]) -> Make:
    """Say another shape in a good message; the bytes are the right ones."""

    def make(target: Target) -> RawRequest:
        message = target.binary(target.fixed()) if target.has_binary else target.json(target.fixed())
        return target.send(message.with_input(shape=shape(message.entry["shape"])))

    return make


def _overflowing(target: Target) -> RawRequest:
    """Declare a number of elements whose size in bytes, modulo 2^64, is the actual size."""
    message = target.binary(target.fixed())
    shape = message.entry["shape"]
    itemsize = message.probed.datatype.itemsize
    wrapped = (1 << 64) // itemsize + math.prod(shape)
    return target.send(message.with_input(shape=[*[1] * (len(shape) - 1), wrapped]))


PROBES = (
    Probe(
        "shapes/minus-one",
        _REFUSE,
        "-1 as the first size, which means any in metadata",
        _SIZES,
        _shaped(lambda shape: [-1, *shape[1:]]),
    ),
    Probe(
        "shapes/negative-pair",
        _REFUSE,
        "two more sizes of -1, whose product is 1",
        _SIZES,
        _shaped(lambda shape: [-1, -1, *shape]),
    ),
    Probe(
        "shapes/negative",
        _REFUSE,
        "the right sizes, all negative",
        _SIZES,
        _shaped(lambda shape: [-size for size in shape] or [-1]),
    ),
    Probe(
        "shapes/fraction",
        _REFUSE,
        "sizes as 2.0",
        _SIZES,
        _shaped(lambda shape: [float(size) for size in shape] or [1.0]),
    ),
    Probe(
        "shapes/text", _REFUSE, 'sizes as "2"', _SIZES, _shaped(lambda shape: [str(size) for size in shape] or ["1"])
    ),
    Probe("shapes/boolean", _REFUSE, "one more size, true", _SIZES, _shaped(lambda shape: [True, *shape])),
    Probe("shapes/null-inside", _REFUSE, "one more size, null", _SIZES, _shaped(lambda shape: [None, *shape])),
    Probe("shapes/nested", _REFUSE, "an array of arrays", _SIZES, _shaped(lambda shape: [shape])),
    Probe("shapes/number", _REFUSE, "a number instead of an array", _SIZES, _shaped(math.prod)),
    Probe(
        "shapes/object",
        _REFUSE,
        "an object instead of an array",
        _SIZES,
        _shaped(lambda shape: {"0": math.prod(shape)}),
    ),
    Probe("shapes/null", _REFUSE, "null", _SIZES, _shaped(lambda _: None)),
    Probe("shapes/absent", _REFUSE, "no shape", _SIZES, _shaped(lambda _: ABSENT)),
    Probe(
        "shapes/one-more",
        _REFUSE,
        "one element more than its bytes",
        _COUNT,
        _shaped(lambda shape: [math.prod(shape) + 1]),
    ),
    Probe(
        "shapes/doubled",
        _REFUSE,
        "twice as many elements as its bytes",
        _COUNT,
        _shaped(lambda shape: [*shape, 2]),
    ),
    Probe("shapes/zero", _REFUSE, "no elements, but bytes", _COUNT, _shaped(lambda shape: [0, *shape[1:]])),
    Probe("shapes/2^31", _REFUSE, "2^31 elements", _COUNT, _shaped(lambda _: [1 << 31])),
    Probe("shapes/2^63", _REFUSE, "2^63 elements", _COUNT, _shaped(lambda _: [1 << 63])),
    Probe(
        "shapes/product-wraps",
        _REFUSE,
        "2^32 x 2^32 elements, which is 0 in 64 bits",
        _COUNT,
        _shaped(lambda _: [1 << 32, 1 << 32]),
    ),
    Probe(
        "shapes/bytes-wrap",
        _REFUSE,
        "so many elements that their size, in 64 bits, wraps to the sent size",
        _COUNT,
        _overflowing,
    ),
    Probe(
        "shapes/2^80",
        _REFUSE,
        "two more sizes of 2^40 before the others",
        _COUNT,
        _shaped(lambda shape: [1 << 40] * 2 + shape),
    ),
    Probe("shapes/4000-digits", _REFUSE, "a size of 4,000 digits", _COUNT, _shaped(lambda _: [10**3999])),
    Probe("shapes/rank-1000", _REFUSE, "1,000 dimensions of 2", _COUNT, _shaped(lambda _: [2] * 1000)),
)
"""The probes of this group."""
