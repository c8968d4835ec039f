"""Datatypes: names that are not in the protocol, and bytes that are not values of their datatype."""

from __future__ import annotations

from streamcodec.blackbox.messages import ABSENT, RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import BINARY, V2
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation
from streamcodec.engine.datatypes import DATATYPES

_REFUSE = Expectation.REFUSE
_NAMES = f"{V2}, tensor data types: 14 names, in upper case"
_BOOL = f"{BINARY}: a BOOL is one byte, 0 or 1"
_OTHER = f"{V2}, tensor: datatype is that of the data"


def _named(name: object) -> Make:
    return lambda target: target.send(target.any_form().with_input(datatype=name))


def _in_small_letters(target: Target) -> RawRequest:
    message = target.any_form()
    return target.send(message.with_input(datatype=message.probed.datatype.name.lower()))


def _of_another_size(target: Target) -> RawRequest:
    """Name a datatype with items of another size; the bytes are the right ones."""
    message = target.binary(target.fixed())
    itemsize = message.probed.datatype.itemsize
    other = next(each.name for each in DATATYPES.values() if not each.is_bytes and each.itemsize != itemsize)
    return target.send(message.with_input(datatype=other))


def _bool(value: int) -> Make:
    """Spoil the first byte of a BOOL tensor."""

    def make(target: Target) -> RawRequest:
        message = target.binary(target.of("BOOL"))
        return target.send(message.carrying(bytes([value]) + message.tensor[1:]))

    return make


PROBES = (
    Probe("datatypes/unknown", _REFUSE, "FP31", _NAMES, _named("FP31")),
    Probe("datatypes/small-letters", _REFUSE, "the right name in lower case", _NAMES, _in_small_letters),
    Probe("datatypes/empty", _REFUSE, "an empty name", _NAMES, _named("")),
    Probe("datatypes/number", _REFUSE, "a number instead of a name", _NAMES, _named(11)),
    Probe("datatypes/array", _REFUSE, "an array instead of a name", _NAMES, _named(["FP32"])),
    Probe("datatypes/null", _REFUSE, "null", _NAMES, _named(None)),
    Probe("datatypes/absent", _REFUSE, "no datatype", _NAMES, _named(ABSENT)),
    Probe("datatypes/other-size", _REFUSE, "a datatype with items of another size", _OTHER, _of_another_size),
    Probe("datatypes/bool-2", _REFUSE, "a BOOL of 2", _BOOL, _bool(2)),
    Probe("datatypes/bool-255", _REFUSE, "a BOOL of 255", _BOOL, _bool(255)),
)
"""The probes of this group."""
