"""Patched: a room of the library with one of its names changed for a while, so that a target can choose the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def patched(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Have a name of a module mean something else; cheaper than `unittest.mock`, which counts at every execution."""
    members = vars(module)
    usual, members[name] = members[name], value
    try:
        yield
    finally:
        members[name] = usual
