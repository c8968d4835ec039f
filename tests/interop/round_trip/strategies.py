"""Strategies: the messages that one codec can hand to another, with nothing left out but what one of them loses."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from streamcodec import DATATYPES
from tests.interop.round_trip.plain import Members, PlainMessage, PlainTensor

LONG = os.environ.get("STREAMCODEC_LONG") == "1"
ROUND_TRIPS = settings(
    max_examples=2500 if LONG else 100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # drawing is slow where others use the processor too
)

_ANY_INTEGERS = st.integers()
_ANY_IDS = st.none() | st.text()
INTEGERS_OF_64_BITS = st.integers(-(2**63), 2**64 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a way from one codec to another carries without loss; by default all that the protocol knows."""

    datatypes: tuple[str, ...] = tuple(DATATYPES)
    bytes_are_text: bool = False
    """Whether BYTES must be UTF-8 even in binary."""
    quiets_fp32: bool = False
    """Whether signalling NaNs of FP32 become quiet even in binary."""
    json_nan: bool = True
    json_infinity: bool = True
    integers: st.SearchStrategy[int] = _ANY_INTEGERS
    """Integers that are values of parameters."""
    tensor_parameters: bool = True
    ids: st.SearchStrategy[str | None] = _ANY_IDS


_NAMES = st.text(min_size=1, max_size=8)
_SHAPES = st.lists(st.integers(0, 3) | st.integers(1, 3), max_size=4)
_TEXTS = (st.text(max_size=9) | st.sampled_from(["", "\0", "a\0", '"\\', "\u2028", "\N{FOX FACE}"])).map(str.encode)
_BYTES = st.binary(max_size=9) | st.sampled_from([b"\xff\0", b"\4\0\0\0", b"\xed\xa0\x80"]) | _TEXTS
_DELICATE = ("FP32", "FP64", "BYTES")
"""Where codecs differ; these come more often."""
_FLOATS = {"FP16": (0x7C00, 10), "BF16": (0x7F80, 7), "FP32": (0x7F80_0000, 23), "FP64": (0x7FF0 << 48, 52)}
"""The bits of the exponent, and how many bits the fraction has."""


def _is_nan(bits: int, datatype: str) -> bool:
    exponent, width = _FLOATS[datatype]
    return bits & exponent == exponent and bits & ((1 << width) - 1) != 0


def _floats(datatype: str, *, is_binary: bool, carried: Carried) -> st.SearchStrategy[int]:
    """Any bits; in JSON there is one NaN, which has neither sign nor payload."""
    exponent, width = _FLOATS[datatype]
    quiet = 1 << (width - 1)
    sign = 1 << (8 * DATATYPES[datatype].itemsize - 1)
    remarkable = [0, 1, quiet, exponent - 1, exponent, exponent | 1, exponent | quiet, exponent | quiet | 1]
    bits = st.integers(0, 2 * sign - 1) | st.sampled_from([s | r for s in (0, sign) for r in remarkable])
    if not is_binary:
        bits = bits.map(lambda value: exponent | quiet if _is_nan(value, datatype) else value)
        if not carried.json_nan:
            bits = bits.filter(lambda value: not _is_nan(value, datatype))
        if not carried.json_infinity:
            bits = bits.filter(lambda value: value & ~sign != exponent)
    elif datatype == "FP32" and carried.quiets_fp32:
        bits = bits.map(lambda value: value | quiet if _is_nan(value, datatype) else value)
    return bits


def _elements(datatype: str, *, is_binary: bool, carried: Carried) -> st.SearchStrategy[str]:
    if datatype == "BYTES":
        return (_BYTES if is_binary and not carried.bytes_are_text else _TEXTS).map(bytes.hex)
    if datatype == "BOOL":
        return st.sampled_from(["00", "01"])
    size = DATATYPES[datatype].itemsize
    if datatype in _FLOATS:
        bits = _floats(datatype, is_binary=is_binary, carried=carried)
    else:
        top = 1 << (8 * size - 1)
        bits = st.integers(0, 2 * top - 1) | st.sampled_from([top - 1, top, 2 * top - 1])
    return bits.map(lambda value: value.to_bytes(size, "little").hex())


def parameters(carried: Carried) -> st.SearchStrategy[Members]:
    """Any JSON objects; no key is long enough to be one that the protocol or a peer keeps for itself."""
    finite = st.floats(allow_nan=False, allow_infinity=False)
    values = st.recursive(
        st.none() | st.booleans() | carried.integers | finite | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=4,
    )
    return st.dictionaries(st.text(max_size=5), values, max_size=3)


@st.composite
def _tensors(draw: st.DrawFn, name: str, carried: Carried) -> PlainTensor:
    datatype = draw(st.sampled_from([*carried.datatypes, *_DELICATE, *_DELICATE]))
    is_binary = not DATATYPES[datatype].has_json or draw(st.booleans())
    shape = draw(_SHAPES)
    count = math.prod(shape)
    elements = _elements(datatype, is_binary=is_binary, carried=carried)
    return PlainTensor(
        name=name,
        datatype=datatype,
        shape=shape,
        elements=draw(st.lists(elements, min_size=count, max_size=count)),
        is_binary=is_binary,
        parameters=draw(parameters(carried)) if carried.tensor_parameters else {},
    )


@st.composite
def _all_tensors(draw: st.DrawFn, carried: Carried) -> list[PlainTensor]:
    names = draw(st.lists(_NAMES, min_size=1, max_size=5, unique=True))
    return [draw(_tensors(name, carried)) for name in names]


def outputs(entries: st.SearchStrategy[Members], *, min_size: int = 1) -> st.SearchStrategy[list[Members]]:
    """Lists of requested outputs with these parameters."""
    output = st.fixed_dictionaries({"name": _NAMES, "parameters": entries})
    return st.lists(output, min_size=min_size, max_size=4, unique_by=lambda entry: str(entry["name"]))


@st.composite
def requests(
    draw: st.DrawFn, carried: Carried, *, wanted: st.SearchStrategy[list[Members]], asks_for_form: bool = True
) -> PlainMessage:
    """Requests; `asks_for_form` is whether the sender leaves it to the caller to ask for all outputs in binary."""
    members = draw(parameters(carried))
    if asks_for_form and draw(st.booleans()):
        members["binary_data_output"] = draw(st.booleans())
    return PlainMessage(
        tensors=draw(_all_tensors(carried)),
        id=draw(carried.ids),
        parameters=members,
        outputs=draw(st.none() | wanted),
    )


def responses(carried: Carried) -> st.SearchStrategy[PlainMessage]:
    """Responses."""
    return st.builds(
        PlainMessage,
        tensors=_all_tensors(carried),
        id=carried.ids,
        parameters=parameters(carried),
        model_name=st.text(),
        model_version=st.none() | st.text(),
    )


def output_parameters(carried: Carried) -> st.SearchStrategy[Members]:
    """Parameters of a requested output, with or without a wish for its form."""
    wish = st.just(Members()) | st.booleans().map(lambda value: {"binary_data": value})
    return st.tuples(parameters(carried), wish).map(lambda pair: pair[0] | pair[1])
