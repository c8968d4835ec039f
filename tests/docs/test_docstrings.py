"""The examples in docstrings do what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import streamcodec

_PLACEHOLDERS = {"streamcodec.tritonclient.grpc", "streamcodec.tritonclient.utils.cuda_shared_memory"}
"""Modules that say where to find what they are named for, and cannot be imported."""

_MODULES = sorted(
    {module.name for module in pkgutil.walk_packages(streamcodec.__path__, "streamcodec.")} - _PLACEHOLDERS
)

_NEEDED = {
    "streamcodec.metrics.otel": "opentelemetry",
    "streamcodec.metrics.prometheus": "prometheus_client",
}
"""Packages of extras, by the modules that are about them."""


@pytest.fixture(autouse=True)
def _machine_that_is_busy() -> Iterator[None]:
    """Let Hypothesis draw and run as slowly as it may be where others use the processor too."""
    settings.register_profile("busy", suppress_health_check=[HealthCheck.too_slow], deadline=None)
    settings.load_profile("busy")
    yield
    settings.load_profile("default")


@pytest.mark.parametrize("name", ["streamcodec", *_MODULES])
def test_examples(name: str) -> None:
    if name.startswith("streamcodec.kserve"):
        pytest.importorskip("kserve", reason="KServe's packages would crowd out ours; it has an environment of its own")
    if (package := _NEEDED.get(name)) is not None:
        pytest.importorskip(package, reason=f"{name} is about an extra")
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert not failed, "doctest has printed what differs"


def test_there_are_examples() -> None:
    """Guards the finder: a docstring that it does not reach is not tested."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    here = [name for name in _MODULES if not name.startswith("streamcodec.kserve") and name not in _NEEDED]
    tests = [test for name in here for test in finder.find(importlib.import_module(name)) if test.examples]
    assert {"streamcodec.formats.v2.decoder.request_decoder", "streamcodec.http.server.ServerConnection"} <= {
        test.name for test in tests
    }
