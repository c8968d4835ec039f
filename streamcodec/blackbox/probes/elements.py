"""Elements: length prefixes of BYTES that do not fit the bytes of the tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

from streamcodec.blackbox.inputs import prefixed
from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import BINARY
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

_REFUSE = Expectation.REFUSE
_PREFIX = f"{BINARY}: each element of BYTES is its length in 4 bytes, then its bytes"
_COUNT = f"{BINARY}: a BYTES tensor has as many elements as shape says"

_LAST = (1 << 32) - 1
_SIGNED = 1 << 31


def _made_of(make_tensor: Callable[[int], bytes]) -> Make:
    """Send a BYTES tensor with bytes made by a function of its number of elements; its declared size is right."""

    def make(target: Target) -> RawRequest:
        probed = target.of("BYTES")
        return target.send(target.binary(probed).replaced(make_tensor(math.prod(probed.sample_shape()))))

    return make


def _ending_in(last: bytes) -> Make:
    """Let the last element be these bytes."""
    return _made_of(lambda count: prefixed(b"ok") * (count - 1) + last)


PROBES = (
    Probe(
        "elements/last-overruns",
        _REFUSE,
        "a last element with a length of 100, of which 1 byte is sent",
        _PREFIX,
        _ending_in(prefixed(b"a", 100)),
    ),
    Probe(
        "elements/last-one-over",
        _REFUSE,
        "a last element with a length of one byte more than is sent",
        _PREFIX,
        _ending_in(prefixed(b"abc", 4)),
    ),
    Probe(
        "elements/first-overruns",
        _REFUSE,
        "a first element with a length of more than the whole tensor",
        _PREFIX,
        _made_of(lambda count: prefixed(b"a", 100_000) + prefixed(b"ok") * (count - 1)),
    ),
    Probe(
        "elements/2^32-1",
        _REFUSE,
        "a last element with a length of 4 GiB - 1, of which 1 byte is sent",
        _PREFIX,
        _ending_in(prefixed(b"a", _LAST)),
    ),
    Probe(
        "elements/2^31",
        _REFUSE,
        "a last element with a length that is negative as a signed integer",
        _PREFIX,
        _ending_in(prefixed(b"a", _SIGNED)),
    ),
    Probe("elements/prefix-cut", _REFUSE, "a tensor that ends within a length prefix", _PREFIX, _ending_in(b"\1\0\0")),
    Probe("elements/prefix-alone", _REFUSE, "a last length prefix without its bytes", _PREFIX, _ending_in(b"\1\0\0\0")),
    Probe(
        "elements/trailing-bytes",
        _REFUSE,
        "two bytes after the last element",
        _PREFIX,
        _ending_in(prefixed(b"a") + b"\0\0"),
    ),
    Probe(
        "elements/big-endian",
        _REFUSE,
        "lengths in big-endian order",
        _PREFIX,
        _made_of(lambda count: b"\0\0\0\1a" * count),
    ),
    Probe(
        "elements/one-more",
        _REFUSE,
        "one element more than the shape has",
        _COUNT,
        _made_of(lambda count: prefixed(b"ok") * (count + 1)),
    ),
    Probe(
        "elements/one-less",
        _REFUSE,
        "one element less than the shape has",
        _COUNT,
        _made_of(lambda count: prefixed(b"ok") * (count - 1)),
    ),
    Probe("elements/none", _REFUSE, "no bytes for a shape that has elements", _COUNT, _made_of(lambda _: b"")),
)
"""The probes of this group."""
