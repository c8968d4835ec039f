"""KServe's ModelServer with ours installed, and without it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.interop.servers.processes import Peer, running

INTERPRETER = "STREAMCODEC_KSERVE_PYTHON"
HOW = f"KServe is not here: {INTERPRETER} is not set; .ci/run installs it and runs these tests"

Start = Callable[..., AbstractContextManager[Peer]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            if INTERPRETER not in os.environ:
                item.add_marker(pytest.mark.skip(reason=HOW))


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Start a server with the settings of `program.Settings`."""

    @contextmanager
    def started(**settings: object) -> Iterator[Peer]:
        folder = tmp_path_factory.mktemp("kserve")
        (folder / "settings.json").write_text(json.dumps(settings))
        with running(os.environ[INTERPRETER], "tests.kserve.program", folder) as peer:
            yield peer

    return started


@pytest.fixture(scope="session")
def peers(start: Start) -> Iterator[dict[str, Peer]]:
    """Both servers, side by side."""
    with ExitStack() as stack:
        yield {
            "theirs": stack.enter_context(start(installs=False)),
            "ours": stack.enter_context(start()),
        }


@pytest.fixture
def theirs(peers: dict[str, Peer]) -> str:
    """URL of the server that is all KServe's."""
    peers["theirs"].check()
    return peers["theirs"].url


@pytest.fixture
def ours(peers: dict[str, Peer]) -> str:
    """URL of the server with ours installed."""
    peers["ours"].check()
    return peers["ours"].url
