"""Servers that several tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.server.models import models
from tests.server.programs import MODELS, Program, server_here, serving
from tests.server.wire import GET_LIVE, Wire


@pytest.fixture(scope="session")
def program() -> Iterator[Program]:
    """A server process with the test models, which must end well and without complaints of its own."""
    with serving(MODELS) as program:
        yield program
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        complaints = program.complaints()
        assert "connection failed" not in complaints, complaints
        assert "Warning" not in complaints, complaints


@pytest.fixture(scope="session", params=["asyncio", "trio"])
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """The address of a server in this process, on each event loop."""
    with server_here(models(), backend=request.param) as (_, address):
        yield address


@pytest.fixture
def address(shared: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """The same; after the test it must still answer others."""
    with Wire(shared) as good:
        good.send(GET_LIVE)
        yield shared
        assert good.response().status == 200
    with Wire(shared) as good:  # where others use the processor too, the first may have been idle for too long
        assert good.send(GET_LIVE).response().status == 200
