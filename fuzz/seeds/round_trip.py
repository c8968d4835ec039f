"""Seeds of the round trips: each datatype, layout and form once, and each of what cannot be written."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from targets.case import Face, Kind
from targets.recipe import NAMES, PARAMETERS, Form, Layout, Recipe
from targets.round_trip import Case, Placing

from streamcodec import DATATYPES, NonFiniteOutput

_BYTES = bytes(range(1, 90, 3))
_TEXT = b"\x03abc\x00\x02\xc3\xa9\x01\x00\x05hello"
_SIGNALLING = bytes.fromhex("0100807f 0000c07f 010000ff")
_NONFINITE = struct.pack("<4f", 1.5, float("inf"), float("nan"), -0.0)


def seeds() -> Iterator[tuple[str, Case]]:
    """Yield every seed with its name."""
    for name in DATATYPES:
        payload = _TEXT if name == "BYTES" else _BYTES
        yield f"binary-{name}", _one(datatype_name=name, payload=payload)
        yield f"json-{name}", _one(datatype_name=name, payload=payload, is_binary=False)
        yield f"raw-{name}", _one(Kind.RAW, datatype_name=name, payload=payload, shape=(1,))
        for form in (Form.DECLARED, Form.PACKED):
            yield f"{form.name.lower()}-{name}", _one(datatype_name=name, form=form, payload=payload, shape=(3, 2))
    for layout in Layout:
        yield f"layout-{layout.name.lower()}", _one(datatype_name="INT32", layout=layout, payload=_BYTES, shape=(3, 2))
    for shape in ((), (0,), (3, 0), (1, 2, 3)):
        yield f"shape-{len(shape)}-{sum(shape)}", _one(datatype_name="BYTES", payload=_TEXT, shape=shape)
        yield f"windows-{len(shape)}-{sum(shape)}", _one(payload=_BYTES, shape=shape, placing=Placing.WINDOWS)
    for mode in NonFiniteOutput:
        yield f"nonfinite-{mode}", _one(Kind.RESPONSE, payload=_NONFINITE, shape=(4,), is_binary=False, nonfinite=mode)
    yield "signalling-nan", _one(Kind.RESPONSE, payload=_SIGNALLING, shape=(3,))
    for number, name in enumerate(NAMES):
        yield f"name-{number}", _one(name=name, payload=_BYTES)
    for number, parameters in enumerate(PARAMETERS):
        yield f"parameters-{number}", _one(parameters=parameters, payload=_BYTES, is_binary=False)
    pair = (Recipe(payload=_BYTES), Recipe(name="y", datatype_name="BOOL", payload=_BYTES[1:], is_binary=False))
    yield "pair", Case(recipes=pair, id="id", has_outputs=True, face=Face.PUSH, piece=3)
    yield "pair-of-one-name", Case(recipes=(pair[0], Recipe(payload=_BYTES[1:])))
    yield "pair-scattered", Case(recipes=pair, face=Face.SCATTER)
    yield "nothing", Case(recipes=(), id="")
    yield "id-surrogate", Case(recipes=pair, id="\ud800")
    yield "text-not-utf8", _one(datatype_name="BYTES", payload=b"\x02\xff\xff", is_binary=False)
    yield "raw-elements", _one(Kind.RAW, datatype_name="BYTES", payload=_TEXT, shape=(2,))


_OF_MESSAGE = {"nonfinite", "placing"}


def _one(kind: Kind = Kind.REQUEST, **values: Any) -> Case:  # noqa: ANN401 - of a recipe or of its message
    of_message = {key: values.pop(key) for key in _OF_MESSAGE & set(values)}
    return Case(recipes=(Recipe(**values),), kind=kind, first_piece=5, piece=7, **of_message)
