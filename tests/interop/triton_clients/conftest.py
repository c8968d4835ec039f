"""One client of each kind for all tests, so that its connections serve one request after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version

import pytest

from tests.interop.serving import ServerProcess
from tests.interop.triton_clients.clients import Aio, Client, Sync

_PACKAGES = {"tritonclient sync": "geventhttpclient", "tritonclient aio": "aiohttp"}
"""What the clients stand on."""


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("tritonclient sync", id="sync", marks=pytest.mark.interop(system="tritonclient sync")),
        pytest.param("tritonclient aio", id="aio", marks=pytest.mark.interop(system="tritonclient aio")),
    ],
)
def system(request: pytest.FixtureRequest, peer_version: Callable[[str, str], None]) -> str:
    """Each of the two clients."""
    name: str = request.param
    peer_version(name, ", ".join(f"{package} {version(package)}" for package in ("tritonclient", _PACKAGES[name])))
    return name


@pytest.fixture(scope="session")
def _client(system: str, server_process: ServerProcess) -> Iterator[Client]:
    with closing(_open(system, server_process)) as client:
        yield client


@pytest.fixture(scope="session")
def _compressing_client(system: str, compressing_process: ServerProcess) -> Iterator[Client]:
    with closing(_open(system, compressing_process, verbose=True)) as client:
        yield client


@pytest.fixture
def client(_client: Client, server: str) -> Client:  # noqa: ARG001 - `server` watches the process
    return _client


@pytest.fixture
def compressing_client(_compressing_client: Client, compressing_server: str) -> Client:  # noqa: ARG001 - the same
    """A client of the server that compresses and writes NaN as null; it prints what it sends and gets."""
    return _compressing_client


def _open(system: str, server: ServerProcess, *, verbose: bool = False) -> Client:
    kinds: dict[str, type[Client]] = {"tritonclient sync": Sync, "tritonclient aio": Aio}
    return kinds[system](server.address, verbose=verbose)
