"""The names of the clients in the matrix, and how a test says which of them it is for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

PYTHON = "Python requests"
NODE = "Node fetch"
CHROMIUM = "Chromium fetch"
GO = "Go net/http"

JAVASCRIPT = (NODE, CHROMIUM)
ALL = (PYTHON, NODE, CHROMIUM, GO)

_IDS = {PYTHON: "requests", NODE: "node", CHROMIUM: "chromium", GO: "go"}


def as_params(systems: Iterable[str]) -> list[object]:
    """Return parameters for the fixture `system`."""
    return [pytest.param(name, id=_IDS[name], marks=pytest.mark.interop(system=name)) for name in systems]


def only(*systems: str) -> pytest.MarkDecorator:
    """Run a test with these clients instead of all."""
    return pytest.mark.parametrize("system", as_params(systems), indirect=True)


def cell(system: str, feature: str, *values: object, name: str) -> object:
    """Return one set of values of a test that chooses its clients itself: `system` first, then the values."""
    marks = pytest.mark.interop(system=system, feature=feature)
    return pytest.param(system, *values, id=f"{_IDS[system]}, {name}", marks=marks)
