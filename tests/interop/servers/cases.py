"""Cases: the tensors that make the tour to each server and back, and the cells of the matrix they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from tests.interop.tensors import BINARY_ONLY, TENSORS, Array, elements

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

CASES: dict[str, Array] = TENSORS | {
    "BF16": np.array([0x8000, 0x0001, 0x3EAB, 0x7F7F, 0xFF80, 0x7F81], dtype=np.uint16).view(ml_dtypes.bfloat16),
    "INT8 of shape [0, 3], size 0": np.empty((0, 3), dtype=np.int8),
    "BYTES of 1 MiB each": elements(b"\0" * (1 << 20), b"", b"\0a" * (1 << 19)),
}
"""All tensors; the datatype is the first word of the name."""

NO_JSON = [*BINARY_ONLY, "BF16"]
"""Those that have no form in JSON."""

_FEATURES = {
    "scalar": "scalars",
    "size 0": "empty tensors",
    "[2, 0, 3]": "empty tensors",
    "payloads": "NaN payloads",
    "BYTES with": "BYTES hostile to text",
    "BYTES not": "BYTES hostile to text",
    "BYTES of 1 MiB": "BYTES hostile to text",
    "BYTES": "BYTES",
    "BF16": "BF16",
    "FP16": "FP16",
    "BOOL": "BOOL",
    "INT64": "64-bit extremes",
}
"""What in the name of a case makes it one of a feature; the first one counts."""


def tours(names: Iterable[str], forms: Iterable[str] = ("binary", "json")) -> list[ParameterSet]:
    """Return the cases (name, there, back): each tensor sent and answered in each combination of the forms."""
    ways = list(product(forms, repeat=2))
    return [
        pytest.param(
            name,
            there == "binary",
            back == "binary",
            id=f"{name}, {there} to {back}",
            marks=pytest.mark.interop(feature=_feature(name, is_binary=there == back == "binary")),
        )
        for name in names
        for there, back in ways
    ]


def model_of(array: Array) -> str:
    """Return the model that takes arrays of that rank."""
    return "matrix" if array.ndim == 2 else "identity"


def _feature(name: str, *, is_binary: bool) -> str:
    found = next((feature for part, feature in _FEATURES.items() if part in name), None)
    if found is not None:
        return found
    if is_binary:
        return "binary tensors"
    return "non-finite as JSON" if "infinities" in name else "JSON tensors"
