"""Abilities: what a server's metadata says of what it can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_EXTENSION: Final = "binary_tensor_data"
_SILENT: Final = "kserve"
"""The name of a server that reads binary tensors without saying so."""


def reads_binary(metadata: Mapping[str, Any]) -> bool:
    """Tell from the metadata of a server whether it reads binary tensors."""
    extensions = metadata.get("extensions")
    return (isinstance(extensions, list) and _EXTENSION in extensions) or metadata.get("name") == _SILENT
