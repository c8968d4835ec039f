"""What Triton and KServe do alike (`tests/interop/servers`) is also done with ours installed, but for two faults."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.drivers import Driver, Kind
from tests.interop.servers import test_every_server

FAULTS = {
    "test_listed_output_without_a_form_comes_as_json_although_binary_data_output_is_true",
    "test_server_bids_the_body_of_a_request_come_that_it_refuses",
}

_KNOWN = {"client", "url", "deviation"}
_CASES = {
    name: case
    for name, case in vars(test_every_server).items()
    if name.startswith("test_") and _KNOWN.issuperset(inspect.signature(case).parameters)
}


@pytest.fixture(params=["sync", "asyncio"])
def client(request: pytest.FixtureRequest, ours: str) -> Iterator[Driver]:
    with Kind(request.param).client(ours, timeout=60) as driver:
        yield driver


def arguments(case: Any, client: Driver, url: str) -> dict[str, Any]:  # noqa: ANN401 - a test
    given = {"client": client, "url": url, "deviation": lambda _: None}
    return {name: given[name] for name in inspect.signature(case).parameters}


@pytest.mark.parametrize("name", sorted(set(_CASES) - FAULTS))
def test_it_holds(name: str, client: Driver, ours: str) -> None:
    _CASES[name](**arguments(_CASES[name], client, ours))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_these_faults_are_gone(name: str, client: Driver, ours: str) -> None:
    with pytest.raises(AssertionError):
        _CASES[name](**arguments(_CASES[name], client, ours))


def test_there_are_cases() -> None:
    assert len(_CASES) > 12
