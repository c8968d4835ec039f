"""Every public name of tritonclient's HTTP client is here, with the same arguments and defaults."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, get_type_hints

import pytest

from tests.tritonclient.faces import OURS, THEIRS

pytest.importorskip("tritonclient.http", reason="tritonclient is not here")

_CLASSES = {
    "http": [
        "InferenceServerClient",
        "InferAsyncRequest",
        "InferInput",
        "InferRequestedOutput",
        "InferResult",
        "InferenceServerClientPlugin",
        "InferenceServerException",
        "Request",
    ],
    "http.aio": ["InferenceServerClient"],
    "http.auth": ["BasicAuth"],
    "http.aio.auth": ["BasicAuth"],
    "utils": ["InferenceServerException"],
    "utils.shared_memory": ["SharedMemoryRegion"],
}
_METHODS = {"http": 28, "http.aio": 27}
"""Public methods of the clients."""


def _arguments(function: Callable[..., Any]) -> list[tuple[str, str, object]]:
    return [
        (parameter.name, parameter.kind.name, _default(parameter.default))
        for parameter in inspect.signature(function).parameters.values()
    ]


def _default(value: object) -> object:
    return dict(value) if isinstance(value, MappingProxyType) else value


@pytest.mark.parametrize("name", [f"{module}.{name}" for module, names in _CLASSES.items() for name in names])
def test_classes(name: str) -> None:
    module, _, kind = name.rpartition(".")
    ours = getattr(importlib.import_module(f"{OURS}.{module}"), kind)
    theirs = getattr(importlib.import_module(f"{THEIRS}.{module}"), kind)
    assert _arguments(ours) == _arguments(theirs)
    methods = {method for method in dir(theirs) if not method.startswith("_")} - {*dir(Exception)}
    assert methods <= {*dir(ours)}
    for method in methods:
        mine, other = getattr(ours, method), getattr(theirs, method)
        assert _arguments(mine) == _arguments(other), method
        assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(other), method
        assert inspect.getdoc(mine), method
    entered = {"__enter__", "__exit__", "__aenter__", "__aexit__", "__call__"}
    assert entered & {*dir(ours)} == entered & {*dir(theirs)}


@pytest.mark.parametrize("module", _METHODS)
def test_types(module: str) -> None:
    client = importlib.import_module(f"{OURS}.{module}").InferenceServerClient
    for name in [name for name in dir(client) if not name.startswith("_")]:
        hints = get_type_hints(getattr(client, name))
        assert {*inspect.signature(getattr(client, name)).parameters} - {"self"} == {*hints} - {"return"}, name
        assert "Call" not in str(hints["return"]), name


@pytest.mark.parametrize("module", _METHODS)
def test_there_are_as_many_methods(module: str) -> None:
    for package in (OURS, THEIRS):
        client = importlib.import_module(f"{package}.{module}").InferenceServerClient
        assert len([name for name in dir(client) if not name.startswith("_")]) == _METHODS[module]


@pytest.mark.parametrize("module", ["utils", "utils.shared_memory"])
def test_functions(module: str) -> None:
    ours, theirs = (importlib.import_module(f"{package}.{module}") for package in (OURS, THEIRS))
    names = [name for name, value in vars(theirs).items() if inspect.isfunction(value)]
    assert {*names} <= {*ours.__all__}
    for name in names:
        assert _arguments(getattr(ours, name)) == _arguments(getattr(theirs, name)), name


@pytest.mark.parametrize("module", ["http", "http.aio", "http.auth", "http.aio.auth"])
def test_names_of_the_modules(module: str) -> None:
    ours, theirs = (importlib.import_module(f"{package}.{module}") for package in (OURS, THEIRS))
    own = {name for name, value in vars(theirs).items() if getattr(value, "__module__", "").startswith(THEIRS)}
    assert {name for name in own if not name.startswith("_")} - {"InferenceServerClientBase"} <= {*dir(ours)}
    assert {*ours.__all__} >= {*getattr(theirs, "__all__", ())}


def test_reserved_parameters() -> None:
    ours, theirs = (importlib.import_module(f"{package}.utils") for package in (OURS, THEIRS))
    for name in ("TRITON_RESERVED_REQUEST_PARAMS", "TRITON_RESERVED_REQUEST_PARAMS_PREFIX"):
        assert getattr(ours, name) == getattr(theirs, name)
