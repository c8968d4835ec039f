"""JSON output: writing JSON, both the values of a tensor and other text of messages and answers."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.elements.payloads import payloads_as_text
from streamcodec.engine.errors import NotRepresentableError


class NonFiniteOutput(StrEnum):
    """How NaN and the infinities are written in JSON, which has no form for them."""

    LITERAL = "literal"
    """`NaN`, `Infinity`, `-Infinity`, as Triton writes them and every known client reads them."""
    NULL = "null"
    """`null`, as KServe writes them: legal JSON, but the value is lost."""
    ERROR = "error"
    """Refuse to write the message: the client must request binary data."""


def encode_data(array: np.ndarray[Any, Any], datatype: Datatype, nonfinite: NonFiniteOutput) -> list[Any]:
    """Return the values of an array for `json.dumps`, flat, in row-major order.

    Raises:
        NotRepresentableError: a value has no JSON form.
    """
    if datatype.is_bytes:
        return payloads_as_text(array.reshape(-1).tolist())
    if datatype.kind == "f":
        return encode_floats(array, nonfinite)
    values: list[Any] = array.reshape(-1).tolist()
    return values


def encode_floats(array: np.ndarray[Any, Any], nonfinite: NonFiniteOutput) -> list[Any]:
    """Return the same for floats.

    Raises:
        NotRepresentableError: a value is not finite, and that is an error.
    """
    values: list[Any] = array.reshape(-1).tolist()
    if nonfinite is NonFiniteOutput.LITERAL or bool(np.isfinite(array).all()):
        return values
    if nonfinite is NonFiniteOutput.ERROR:
        msg = "a value is not finite, which JSON cannot say; ask for binary data"
        raise NotRepresentableError(msg)
    return [value if math.isfinite(value) else None for value in values]


def check_form(datatype: Datatype) -> None:
    """Refuse a datatype without a JSON form.

    Raises:
        NotRepresentableError: the datatype has no JSON form.
    """
    if not datatype.has_json:
        msg = f"{datatype.name} has no JSON form; ask for binary data"
        raise NotRepresentableError(msg)


to_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Writes JSON without unneeded spaces, as a `str`. The encoder is made once, like the decoder of `text.py`."""


def dump_json(value: object) -> bytes:
    """Write JSON without unneeded spaces, as UTF-8."""
    return to_json(value).encode()
