"""Servers: however a client brings a request to its end, nothing of it waits for the garbage collector."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import pytest

from tests.garbage.endings import ENDINGS, NBYTES
from tests.garbage.leftovers import Left, left_of, no_collector
from tests.garbage.servers import SERVERS

OTHERS = SERVERS.keys() - {"asyncio", "uvloop", "trio", "guard", "guard trio"}
OF_OTHERS = 3 * NBYTES // 2
"""What the cycles of frameworks may hold: pieces of a body or an answer, and not the tensors of 3 requests."""

LEFT_OUT = {
    ("trio", "model async, fails too late in a thread"): "trio's threads refer to what nobody waits for any more",
    ("trio", "left while the model async, fails too late in a thread"): "the same: the model itself has called them",
    ("guard trio", "model async, fails too late in a thread"): "the same, in the server behind",
    ("guard trio", "left while the model async, fails too late in a thread"): "the same",
    ("aiohttp", "chunks that are damaged"): "since Python 3.12, aiohttp holds our frames for the 10 s that it lingers",
}


QUIET = pytest.mark.quiet  # they take minutes
WAYS = [
    ("asyncio", True),
    ("uvloop", False),
    pytest.param("trio", True, marks=QUIET),
    pytest.param("guard", True, marks=QUIET),
    pytest.param("guard trio", True, marks=QUIET),
    pytest.param("uvicorn h11", True, marks=QUIET),
    pytest.param("uvicorn httptools", False, marks=QUIET),
    pytest.param("aiohttp", True, marks=QUIET),
    pytest.param("werkzeug", True, marks=QUIET),
]


@pytest.mark.slow
@pytest.mark.parametrize(("server", "is_observed"), WAYS)
def test_nothing_waits_for_the_garbage_collector(
    server: str, is_observed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)  # records that are kept hold tracebacks
    names = [
        name for name in ENDINGS if (server, name) not in LEFT_OUT and not (server == "werkzeug" and "async" in name)
    ]
    assert not _leavings(server, names, is_observed=is_observed)


@pytest.mark.parametrize("name", ["left in the body", "left in windows, echoed", "wrong BOOL windows echoed"])
def test_nothing_of_a_client_of_a_guard_waits_for_the_garbage_collector(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    assert not _leavings("guard", [name], is_observed=False)


def _leavings(server: str, names: Iterable[str], *, is_observed: bool) -> dict[str, Left]:
    """Return what some endings leave, if it is more than little."""
    found = {}
    with no_collector(), SERVERS[server](is_observed=is_observed) as (place, address):
        for name in names:
            left = left_of(partial(ENDINGS[name], address), 3, place)
            if not (left.is_little or (server in OTHERS and left.nbytes < OF_OTHERS)):
                found[name] = left
    return found
