"""CORS: what a page in a real browser may do with a server that names one origin, any, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.seed_clients.browser import PageServer, browsing, serving_page
from tests.interop.seed_clients.jobs import Caller, ClientError, assert_same, floats
from tests.interop.seed_clients.programs import Program
from tests.interop.seed_clients.systems import CHROMIUM
from tests.interop.serving import ServerProcess, serving

pytestmark = pytest.mark.interop(system=CHROMIUM, feature="CORS")

_REFUSED = "TypeError: Failed to fetch"
"""All that a page is told."""


@pytest.fixture
def system() -> str:
    """The browser alone: the other clients take no notice of CORS."""
    return CHROMIUM


@pytest.fixture(scope="module")
def naming_process(tmp_path_factory: pytest.TempPathFactory, page: PageServer) -> Iterator[ServerProcess]:
    """A server that names the origin of the page."""
    with serving(tmp_path_factory.mktemp("naming"), "--cors-origin", page.origin) as process:
        yield process
        process.check()


@pytest.fixture(scope="module")
def closed_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that lets no page call it."""
    with serving(tmp_path_factory.mktemp("closed")) as process:
        yield process
        process.check()


@pytest.fixture
def client(program: Program, naming_process: ServerProcess) -> Caller:
    return Caller(program.ask, naming_process.address)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The same page, but of another origin."""
    with serving_page() as page, browsing(page, tmp_path_factory.mktemp("stranger")) as program:
        yield program


@pytest.mark.parametrize("framing", ["headerless", "length"])
@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize("back", [True, False], ids=["binary", "json"])
def test_page_of_the_named_origin_may_set_every_field_and_read_every_answer(
    client: Caller, framing: str, encoding: str, back: bool
) -> None:
    answer = client.infer({"x": floats()}, framing=framing, encoding=encoding, binary_output=back)
    assert_same(answer.outputs, {"x": floats()})
    assert ("inference-header-content-length" in answer.fields) is back


def test_page_of_the_named_origin_may_read_errors(client: Caller) -> None:
    answer = client.infer({"x": floats()}, model="nothing")
    assert (answer.status, answer.error) == (404, "there is no model 'nothing'")
    assert client.infer({"x": floats()}, surplus=1).status == 400
    assert client.get("/v2/nonsense").status == 404


def test_page_of_the_named_origin_may_read_metadata_and_health(client: Caller) -> None:
    assert client.get("/v2").document["name"] == "streamcodec"
    assert client.get("/v2/health/live").status == 200


def test_page_of_another_origin_may_not(stranger: Program, naming_process: ServerProcess) -> None:
    client = Caller(stranger.ask, naming_process.address)
    with pytest.raises(ClientError, match=_REFUSED):
        client.infer({"x": floats()})
    with pytest.raises(ClientError, match=_REFUSED):
        client.get("/v2")


def test_page_of_any_origin_may_if_all_may(stranger: Program, server: str) -> None:
    assert_same(Caller(stranger.ask, server).infer({"x": floats()}).outputs, {"x": floats()})


def test_no_page_may_unless_told_so(program: Program, closed_process: ServerProcess) -> None:
    client = Caller(program.ask, closed_process.address)
    with pytest.raises(ClientError, match=_REFUSED):
        client.infer({"x": floats()})
    with pytest.raises(ClientError, match=_REFUSED):
        client.get("/v2")
