"""Values: JSON data that do not fit the shape or the datatype.

A server that converts such values computes with wrong data: 256 becomes 0 as UINT8, 1e39 becomes infinity as FP32, and
true becomes 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import JSON, V2
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation
from streamcodec.engine.datatypes import Datatype

_REFUSE = Expectation.REFUSE
_COUNT = f"{V2}, tensor data: flat, or nested as the shape"
_TYPES = f"{V2}, tensor data: values are of the datatype"
_NUMBERS = f"{JSON}, section 6: this is not a number"

_INTEGERS = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
_FLOATS = ("FP32", "FP64")
_LARGEST = {"FP32": "1e39", "FP64": "1e999"}


def _given(change: Callable[[list[Any]], object], *names: str) -> Make:
    """Give an input (of one of these datatypes) other data."""

    def make(target: Target) -> RawRequest:
        message = target.json(target.of(*names) if names else None)
        return target.send(message.with_input(data=change(message.entry["data"])))

    return make


def _bare(target: Target) -> RawRequest:
    """Give a value without an array around it, which only a tensor without dimensions may have."""
    message = target.json(target.find(lambda each: bool(each.shape), "with dimensions"))
    return target.send(message.with_input(data=message.entry["data"][0]))


def _beginning_with(value: object, *names: str) -> Make:
    """Let another value be the first one."""
    return _given(lambda data: [value, *data[1:]], *names)


def _literally(value: str | Callable[[Datatype], object], *names: str) -> Make:
    """Let the first value be a literal that is not JSON, or that Python would write differently."""

    def make(target: Target) -> RawRequest:
        mark = "the first value"
        message = target.json(target.of(*names))
        literal = value if isinstance(value, str) else str(value(message.probed.datatype))
        text = message.with_input(data=[mark, *message.entry["data"][1:]]).text
        return target.send(message, text=text.replace(f'"{mark}"'.encode(), literal.encode()))

    return make


PROBES = (
    Probe("values/too-few", _REFUSE, "one value less than the shape has", _COUNT, _given(lambda data: data[:-1])),
    Probe(
        "values/too-many", _REFUSE, "one value more than the shape has", _COUNT, _given(lambda data: [*data, *data[:1]])
    ),
    Probe("values/none", _REFUSE, "no values", _COUNT, _given(lambda _: [])),
    Probe("values/ragged", _REFUSE, "irregularly nested data", _COUNT, _given(lambda data: [data, *data])),
    Probe("values/scalar", _REFUSE, "a value without an array", _COUNT, _bare),
    Probe("values/object", _REFUSE, "an object", _COUNT, _given(lambda data: {"0": data})),
    Probe("values/null", _REFUSE, "null for a value", _TYPES, _beginning_with(None)),
    Probe("values/object-inside", _REFUSE, "an object for a value", _TYPES, _beginning_with({})),
    Probe("values/text-for-integer", _REFUSE, '"1" for an integer', _TYPES, _beginning_with("1", *_INTEGERS)),
    Probe("values/text-for-float", _REFUSE, '"1.5" for a float', _TYPES, _beginning_with("1.5", *_FLOATS)),
    Probe("values/text-for-boolean", _REFUSE, '"true" for a BOOL', _TYPES, _beginning_with("true", "BOOL")),
    Probe("values/boolean-for-integer", _REFUSE, "true for an integer", _TYPES, _beginning_with(True, *_INTEGERS)),
    Probe("values/boolean-for-float", _REFUSE, "true for a float", _TYPES, _beginning_with(True, *_FLOATS)),
    Probe("values/number-for-bytes", _REFUSE, "a number for an element of BYTES", _TYPES, _beginning_with(7, "BYTES")),
    Probe("values/two-for-boolean", _REFUSE, "2 for a BOOL", _TYPES, _beginning_with(2, "BOOL")),
    Probe("values/fraction-for-integer", _REFUSE, "1.5 for an integer", _TYPES, _beginning_with(1.5, *_INTEGERS)),
    Probe(
        "values/integer-too-large",
        _REFUSE,
        "the first integer above the datatype's range",
        _TYPES,
        _literally(lambda datatype: int(np.iinfo(datatype.dtype).max) + 1, *_INTEGERS),
    ),
    Probe(
        "values/integer-too-small",
        _REFUSE,
        "the first integer below the datatype's range",
        _TYPES,
        _literally(lambda datatype: int(np.iinfo(datatype.dtype).min) - 1, *_INTEGERS),
    ),
    Probe(
        "values/float-too-large",
        _REFUSE,
        "a number above the range of the datatype",
        _TYPES,
        _literally(lambda datatype: _LARGEST[datatype.name], *_LARGEST),
    ),
    Probe("values/nan-for-integer", _REFUSE, "NaN for an integer", _NUMBERS, _literally("NaN", *_INTEGERS)),
    Probe("values/hexadecimal", _REFUSE, "0x10 for a number", _NUMBERS, _literally("0x10", *_INTEGERS, *_FLOATS)),
    Probe("values/leading-zero", _REFUSE, "01 for a number", _NUMBERS, _literally("01", *_INTEGERS, *_FLOATS)),
    Probe("values/plus", _REFUSE, "+1 for a number", _NUMBERS, _literally("+1", *_INTEGERS, *_FLOATS)),
    Probe("values/bare-point", _REFUSE, "1. for a number", _NUMBERS, _literally("1.", *_FLOATS)),
    Probe("values/underscore", _REFUSE, "1_0 for a number", _NUMBERS, _literally("1_0", *_INTEGERS, *_FLOATS)),
)
"""The probes of this group."""
