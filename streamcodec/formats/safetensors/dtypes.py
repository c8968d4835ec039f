"""The dtypes of safetensors, as datatypes of the engine."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from streamcodec.engine.datatypes import DATATYPES, Datatype

NUMPY_NAMES: Final[dict[str, str]] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
"""Names in the format, and in numpy or `ml_dtypes`. They are in the format's order: a file begins with the last."""


@cache
def find_datatype(name: str) -> Datatype | None:
    """Find a datatype at its first use: importing `ml_dtypes` takes longer than the rest of this package."""
    if name == "BF16":
        return DATATYPES[name]
    if not name.startswith("F8"):
        return Datatype(name, np.dtype(NUMPY_NAMES[name]).newbyteorder("<"))
    try:
        import ml_dtypes  # noqa: PLC0415 - see above
    except ImportError:
        return None
    return Datatype(name, np.dtype(getattr(ml_dtypes, NUMPY_NAMES[name])))
