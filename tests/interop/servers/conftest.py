"""The foreign servers, one of each for all tests, and our clients for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.client.drivers import Driver, Kind
from tests.interop.servers.processes import Peer, running

_HOW = "{what} is not here: {variable} is not set; tests/interop/run installs what is missing and runs everything"
_TIMEOUT = 60.0


@pytest.fixture(scope="session")
def triton_process(
    tmp_path_factory: pytest.TempPathFactory, peer_version: Callable[[str, str], None]
) -> Iterator[Peer]:
    python = _interpreter("STREAMCODEC_TRITON_PYTHON", "a Triton server")
    with running(python, "tests.interop.servers.triton_program", tmp_path_factory.mktemp("triton")) as peer:
        peer_version("Triton server", peer.name_and_version())
        yield peer


@pytest.fixture(scope="session")
def kserve_process(
    tmp_path_factory: pytest.TempPathFactory, peer_version: Callable[[str, str], None]
) -> Iterator[Peer]:
    python = _interpreter("STREAMCODEC_KSERVE_PYTHON", "KServe's ModelServer")
    with running(python, "tests.interop.servers.kserve_program", tmp_path_factory.mktemp("kserve")) as peer:
        peer_version("KServe ModelServer", peer.name_and_version())
        yield peer


@pytest.fixture(scope="session")
def mlserver_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    python = _interpreter("STREAMCODEC_MLSERVER_PYTHON", "MLServer")
    with running(python, "tests.interop.servers.mlserver_program", tmp_path_factory.mktemp("mlserver")) as peer:
        yield peer


@pytest.fixture
def mlserver(mlserver_process: Peer) -> Iterator[str]:
    """URL of the MLServer; fails the test that finds it dead and the one after which it is."""
    mlserver_process.check()
    yield mlserver_process.url
    mlserver_process.check()


@pytest.fixture
def triton(triton_process: Peer) -> Iterator[str]:
    """URL of the Triton server; fails the test that finds it dead and the one after which it is."""
    triton_process.check()
    yield triton_process.url
    triton_process.check()


@pytest.fixture
def kserve(kserve_process: Peer) -> Iterator[str]:
    """URL of KServe's ModelServer; fails the test that finds it dead and the one after which it is."""
    kserve_process.check()
    yield kserve_process.url
    kserve_process.check()


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each of our clients, for tests that give it options of their own."""
    return Kind(request.param)


@pytest.fixture
def client(kind: Kind, url: str) -> Iterator[Driver]:
    """Each of our clients."""
    with kind.client(url, timeout=_TIMEOUT) as driver:
        yield driver


def _interpreter(variable: str, what: str) -> str:
    python = os.environ.get(variable)
    if python is None:
        pytest.skip(_HOW.format(what=what, variable=variable))
    return python
