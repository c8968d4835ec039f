"""Servers: however a client brings a request to its end, nothing of it waits for the garbage collector."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.garbage.endings import ENDINGS, NBYTES, Ending
from tests.garbage.leftovers import Left, left_of, no_collector
from tests.garbage.servers import SERVERS, Served, bundled
from tests.garbage.uploads import OPTIONS, UPLOADS

OTHERS = {"uvicorn h11", "uvicorn httptools", "aiohttp", "werkzeug"}
OF_OTHERS = 3 * NBYTES // 2
"""What the cycles of frameworks may hold: pieces of a body or an answer, and not the tensors of 3 requests."""

OF_TRIO = "trio's threads refer to what nobody waits for any more; the model itself has called them"
LEFT_OUT = {
    **{
        (server, f"{when}model async, fails too late in a thread"): OF_TRIO
        for server in ("trio", "trio TLS", "guard trio")
        for when in ("", "left while the ")
    },
    ("aiohttp", "chunks that are damaged"): "since Python 3.12, aiohttp holds our frames for the 10 s that it lingers",
}


QUIET = pytest.mark.quiet  # they take minutes
WAYS = [
    ("asyncio", True),
    ("uvloop", False),
    pytest.param("trio", True, marks=QUIET),
    pytest.param("asyncio TLS", True, marks=QUIET),
    pytest.param("uvloop TLS", True, marks=QUIET),
    pytest.param("trio TLS", True, marks=QUIET),
    pytest.param("guard", True, marks=QUIET),
    pytest.param("guard trio", True, marks=QUIET),
    pytest.param("uvicorn h11", True, marks=QUIET),
    pytest.param("uvicorn httptools", False, marks=QUIET),
    pytest.param("aiohttp", True, marks=QUIET),
    pytest.param("werkzeug", True, marks=QUIET),
]


PARTS = 6
"""Each with some of the endings. All of them together take five minutes on a busy machine, and look like a hang."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("server", "is_observed"), WAYS)
def test_nothing_waits_for_the_garbage_collector(
    server: str, is_observed: bool, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)  # records that are kept hold tracebacks
    endings = {
        name: ENDINGS[name]
        for name in [*ENDINGS][part::PARTS]
        if (server, name) not in LEFT_OUT and not (server == "werkzeug" and "async" in name)
    }
    left = _leavings(SERVERS[server](is_observed=is_observed), endings)
    most = OF_OTHERS if server in OTHERS else 0
    assert not {name: each for name, each in left.items() if each.nbytes >= most}


@pytest.mark.parametrize("name", ["left in the body", "left in windows, echoed", "wrong BOOL windows echoed"])
def test_nothing_of_a_client_of_a_guard_waits_for_the_garbage_collector(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    assert not _leavings(SERVERS["guard"](is_observed=False), {name: ENDINGS[name]})


@pytest.mark.slow
@pytest.mark.parametrize("server", ["asyncio TLS", "trio TLS"])
def test_nothing_of_a_connection_with_tls_waits_for_the_garbage_collector(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    assert not _leavings(SERVERS[server](is_observed=False), {"model ok": ENDINGS["model ok"]})


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_nothing_of_an_upload_waits_for_the_garbage_collector(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    assert not _leavings(bundled(backend, is_observed=False, options=OPTIONS), UPLOADS)


def _leavings(running: AbstractContextManager[Served], endings: dict[str, Ending]) -> dict[str, Left]:
    """Return what some endings leave, if it is more than little."""
    with no_collector(), running as (place, address):
        found = {name: left_of(partial(ending, address), 3, place) for name, ending in endings.items()}
    return {name: left for name, left in found.items() if not left.is_little}
