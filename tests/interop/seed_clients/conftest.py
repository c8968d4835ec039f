"""The clients, one of each for all tests, so that their connections serve one request after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import pytest

from tests.interop.seed_clients import programs
from tests.interop.seed_clients.browser import PageServer, browsing, serving_page
from tests.interop.seed_clients.jobs import Caller
from tests.interop.seed_clients.programs import Program, Starter
from tests.interop.seed_clients.recording import RecordingServer, recording
from tests.interop.seed_clients.systems import ALL, CHROMIUM, GO, NODE, PYTHON, as_params


@pytest.fixture(scope="session")
def page() -> Iterator[PageServer]:
    """The server of the page that Chromium runs."""
    with serving_page() as server:
        yield server


@pytest.fixture(scope="session")
def start(
    tmp_path_factory: pytest.TempPathFactory, peer_version: Callable[[str, str], None], page: PageServer
) -> Iterator[Callable[[str], Program]]:
    """Start a client, or return it if it runs already."""
    starters: dict[str, Starter] = {
        PYTHON: programs.python_requests,
        NODE: programs.node,
        CHROMIUM: partial(browsing, page),
        GO: programs.go,
    }
    with ExitStack() as stack:

        @cache
        def started(system: str) -> Program:
            directory: Path = tmp_path_factory.mktemp("client")
            program = stack.enter_context(starters[system](directory))
            peer_version(system, program.versions)
            return program

        yield started


@pytest.fixture(params=as_params(ALL))
def system(request: pytest.FixtureRequest) -> str:
    """Each of the clients, by its name in the matrix."""
    name: str = request.param
    return name


@pytest.fixture
def program(system: str, start: Callable[[str], Program]) -> Program:
    return start(system)


@pytest.fixture
def client(program: Program, server: str) -> Caller:
    return Caller(program.ask, server)


@pytest.fixture
def compressing_client(program: Program, compressing_server: str) -> Caller:
    """The client, with the server that compresses and writes NaN as null."""
    return Caller(program.ask, compressing_server)


@pytest.fixture
def recorder() -> Iterator[RecordingServer]:
    with recording() as server:
        yield server


@pytest.fixture
def recorded_client(program: Program, recorder: RecordingServer) -> Caller:
    """The client, with a server that notes what it sends."""
    return Caller(program.ask, recorder.address)
