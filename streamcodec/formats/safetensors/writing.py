"""Writing: a header as the format's reference implementation writes it, and views of the arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import DATATYPES, datatype_of
from streamcodec.engine.errors import LocalProtocolError, kind_of, shown
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Message, binary_form, message_of
from streamcodec.formats.safetensors.dtypes import NUMPY_NAMES, find_datatype
from streamcodec.formats.safetensors.reading import LENGTH_BYTES, METADATA

_OF_DTYPE: Final = {numpy_name: name for name, numpy_name in NUMPY_NAMES.items()}
_RANKS: Final = {name: rank for rank, name in enumerate(NUMPY_NAMES)}


def encode(tensors: Mapping[str, np.ndarray[Any, Any] | Rows], metadata: Mapping[str, str] | None = None) -> Message:
    """Write a file: exactly the bytes of the format's reference implementation. C-contiguous arrays are not copied.

    Args:
        tensors: arrays by name.
        metadata: strings to be stored with them, in this order; the reference implementation's order is random.

    Raises:
        LocalProtocolError: the format has no `dtype` for a value, a name is reserved by the format, or a name or
            metadata are not strings.
    """
    texts = [*tensors, *(metadata or {}), *(metadata or {}).values()]
    if METADATA in tensors or not all(type(text) is str for text in texts):
        msg = f"names and metadata are strings, and no tensor is called {METADATA}"
        raise LocalProtocolError(msg)
    header: dict[str, Any] = {} if metadata is None else {METADATA: dict(metadata)}
    names = {name: _dtype_name(name, values) for name, values in tensors.items()}
    parts = []
    position = 0
    for name in sorted(names, key=lambda name: (-_RANKS[names[name]], name)):
        values = tensors[name]
        parts.append(binary_form(values, find_datatype(names[name])))
        begin, position = position, position + parts[-1][1]
        header[name] = {"dtype": names[name], "shape": values.shape, "data_offsets": (begin, position)}
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        msg = "a name, or the metadata, hold half of a surrogate pair"
        raise LocalProtocolError(msg) from None
    text += b" " * (-len(text) % 8)
    return message_of(len(text).to_bytes(LENGTH_BYTES, "little") + text, parts)


def _dtype_name(name: str, values: object) -> str:
    """Return the format's name for the values of a tensor."""
    if isinstance(values, Rows):
        dtype = DATATYPES[values.datatype].dtype
    elif isinstance(values, np.ndarray):
        dtype = values.dtype
    else:
        msg = f"tensor {shown(name)} is a numpy array or Rows, not {kind_of(values)}"
        raise LocalProtocolError(msg)
    if dtype.kind == "u" and datatype_of(dtype).name == "BF16":  # without `ml_dtypes`
        return "BF16"
    if dtype.name not in _OF_DTYPE:
        msg = f"safetensors has no dtype for numpy's {dtype}, of tensor {shown(name)}"
        raise LocalProtocolError(msg)
    return _OF_DTYPE[dtype.name]
