"""The tensors that every foreign client sends, and how two arrays are compared bit by bit.

This file is also imported by the KServe script, in an environment that has numpy but neither streamcodec nor pytest.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BYTES = np.dtype(object)
"""What clients call an array of BYTES."""


def elements(*values: bytes, shape: tuple[int, ...] | None = None) -> Array:
    """Make an array of BYTES; numpy's own strings would lose the NULs at their ends."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(array.shape if shape is None else shape)


def fingerprint(array: Array) -> dict[str, Any]:
    """Say all that matters of an array, short enough for one line of JSON.

    Text counts as its UTF-8: clients give elements as `str` where the tensor travelled as JSON, else as `bytes`.
    """
    if array.dtype == BYTES:
        values = [v.encode() if isinstance(v, str) else v for v in array.reshape(-1).tolist()]
        return {"dtype": "object", "shape": list(array.shape), "elements": [value.hex() for value in values]}
    data = np.ascontiguousarray(array).tobytes()
    start, digest = data[:64].hex(), hashlib.sha256(data).hexdigest()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "starts": start, "sha256": digest}


def _integers(dtype: str) -> Array:
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max]
    return np.array(values, dtype=dtype).reshape(2, 3)


def _floats(dtype: str) -> Array:
    limits = np.finfo(dtype)
    values = [-0.0, 1 / 3, limits.max, limits.min, limits.tiny, limits.smallest_subnormal]
    return np.array(values, dtype=dtype).reshape(3, 2)


PLAIN: dict[str, Array] = {
    "BOOL": np.array([[True, False, False], [False, True, True]]),
    "UINT8": _integers("uint8"),
    "UINT16": _integers("uint16"),
    "UINT32": _integers("uint32"),
    "UINT64": _integers("uint64"),
    "INT8": _integers("int8"),
    "INT16": _integers("int16"),
    "INT32": _integers("int32"),
    "INT64": _integers("int64"),
    "FP32": _floats("float32"),
    "FP64": _floats("float64"),
    "BYTES": elements(b"plain", "größer: 日本語 🦊".encode(), b'"quoted"\\n', b"\n\t", b" ", b"x" * 300, shape=(3, 2)),
    "BYTES with NULs": elements(b"\0", b"a\0b", b"a\0", b"\0\0\0"),
    "BYTES with empty elements": elements(b"", b"a", b"", b""),
    "FP32 scalar": np.array(1.5, dtype=np.float32),
    "INT64 scalar": np.array(-(2**63), dtype=np.int64),
    "BYTES scalar": elements(b"alone", shape=()),
    "FP64 of one element": np.array([0.1]),
    "BYTES of one element": elements(b"alone"),
    "BOOL of rank 8": np.arange(24).reshape(1, 2, 1, 3, 1, 2, 2, 1) % 2 == 0,
    "FP32 of size 0": np.empty((0,), dtype=np.float32),
    "INT8 of shape [2, 0, 3]": np.empty((2, 0, 3), dtype=np.int8),
    "BYTES of size 0": elements(),
}
"""Tensors that can travel in both forms; the datatype is the first word of the name."""

NOT_FINITE: dict[str, Array] = {
    "FP32 infinities and NaN": np.array([np.inf, -np.inf, np.nan], dtype=np.float32),
    "FP64 infinities and NaN": np.array([np.inf, -np.inf, np.nan]),
}
"""Tensors for which JSON has no form of its own, but peers have."""

BINARY_ONLY: dict[str, Array] = {
    "FP16": _floats("float16"),
    "FP32 NaN payloads, quiet and signalling": np.array(
        [0x7FC00001, 0xFFC12345, 0x7F800001, 0xFF812345], dtype=np.uint32
    ).view(np.float32),
    "FP64 NaN payloads, quiet and signalling": np.array(
        [0x7FF8000000000001, 0xFFF8123456789ABC, 0x7FF0000000000001, 0xFFF0123456789ABC], dtype=np.uint64
    ).view(np.float64),
    "BYTES not in UTF-8": elements(b"\xff\xfe\x00", b"\x80", bytes(range(256)), shape=(3, 1)),
}
"""Tensors that have no form in JSON."""

TENSORS: dict[str, Array] = {**PLAIN, **NOT_FINITE, **BINARY_ONLY}
"""All of the above."""


_FEATURES = {
    "scalar": "scalars",
    "size 0": "empty tensors",
    "[2, 0, 3]": "empty tensors",
    "payloads": "NaN payloads",
    "BYTES with": "BYTES hostile to text",
    "BYTES not": "BYTES hostile to text",
    "BYTES": "BYTES",
    "BF16": "BF16",
    "FP16": "FP16",
    "BOOL": "BOOL",
    "INT64": "64-bit extremes",
}


def feature(name: str, *forms: str) -> str:
    """Return the feature of the interop matrix that a tensor shows when it travels in these forms, there and back.

    The first part that its name has counts; a tensor that has none shows its form.
    """
    if "NaN" in name and "json" in forms:
        return "non-finite as JSON"
    found = next((feature for part, feature in _FEATURES.items() if part in name), None)
    if found is not None:
        return found
    return "JSON tensors" if "json" in forms else "binary tensors"


def datatype(name: str) -> str:
    """Return the protocol's name of the datatype of one of the tensors above."""
    return name.partition(" ")[0]
