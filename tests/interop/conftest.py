"""The servers under test, one of each for all foreign clients; and the recorder's place in pytest."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.interop.recorder import Recorder
from tests.interop.serving import ServerProcess, serving

_RECORDER = pytest.StashKey[Recorder]()


@pytest.fixture(scope="session")
def server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), "--classification", "--cors-origin", "*") as process:
        yield process


@pytest.fixture(scope="session")
def compressing_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(
        tmp_path_factory.mktemp("compressing"), "--compress", "--nonfinite", "null", "--cors-origin", "*"
    ) as process:
        yield process


@pytest.fixture
def server(server_process: ServerProcess) -> Iterator[str]:
    """HOST:PORT of the server; fails the test that finds it dead and the one after which it is."""
    server_process.check()
    yield server_process.address
    server_process.check()


@pytest.fixture
def compressing_server(compressing_process: ServerProcess) -> Iterator[str]:
    """HOST:PORT of a server that compresses when asked, and writes NaN and the infinities as null."""
    compressing_process.check()
    yield compressing_process.address
    compressing_process.check()


@pytest.fixture
def deviation(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Take, after the assertion that proves it, "what the peer does, one clause; what we do about it"."""
    recorder = request.config.stash[_RECORDER]
    return lambda text: recorder.add_deviation(request.node.nodeid, text)


@pytest.fixture(scope="session")
def peer_version(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Take a system and its versions, "name x.y.z, name x.y.z"."""
    return request.config.stash[_RECORDER].add_versions


def pytest_addoption(parser: pytest.Parser) -> None:
    # Known where the command line names this folder; elsewhere these tests run as all others do.
    parser.addoption(
        "--interop-record", type=Path, metavar="FILE", help="write what came of the interop matrix into this record"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("interop") is not None:
            item.add_marker(pytest.mark.slow)
    config.stash[_RECORDER] = Recorder(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.config.stash[_RECORDER].see(report)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    record: Path | None = session.config.getoption("--interop-record", default=None)
    if record is not None and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        session.config.stash[_RECORDER].merge_into(record)
