"""Keys: what agrees for requests that go together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from streamcodec.formats.v2.model import RequestHeader

_OF_ONE_FORM: Final = frozenset({"binary_data", "binary_data_output", "binary_data_size"})
"""Parameters that say how tensors are written. A model need not know them."""


def key_of(header: RequestHeader, version: str) -> Hashable:
    """Return what agrees for requests that go together."""
    tensors = tuple(
        [(tensor.name, tensor.datatype.name, tensor.shape[1:], _text(tensor.parameters)) for tensor in header.tensors]
    )
    return version, tensors, _text(header.parameters)


def kept(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters that a model may want to know."""
    if _OF_ONE_FORM.issuperset(parameters):
        return {}
    return {name: value for name, value in parameters.items() if name not in _OF_ONE_FORM}


def _text(parameters: Mapping[str, Any]) -> str:
    """Return parameters in a form in which two are equal only if they mean the same: 1 is not True."""
    return "" if _OF_ONE_FORM.issuperset(parameters) else repr(sorted(kept(parameters).items()))
