"""Servers: however a client brings a request to its end, nothing of it waits for the garbage collector."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from tests.garbage.endings import ENDINGS, NBYTES
from tests.garbage.leftovers import left_of, no_collector
from tests.garbage.servers import SERVERS

OTHERS = SERVERS.keys() - {"asyncio", "uvloop", "trio"}
OF_OTHERS = 3 * NBYTES // 2
"""What the cycles of frameworks may hold: pieces of a body or an answer, and not the tensors of 3 requests."""

LEFT_OUT = {
    ("trio", "model async, fails too late in a thread"): "trio's threads refer to what nobody waits for any more",
    ("trio", "left while the model async, fails too late in a thread"): "the same: the model itself has called them",
    ("aiohttp", "chunks that are damaged"): "since Python 3.12, aiohttp holds our frames for the 10 s that it lingers",
}


QUIET = pytest.mark.quiet  # they take minutes
WAYS = [
    ("asyncio", True),
    ("uvloop", False),
    pytest.param("trio", True, marks=QUIET),
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
    found = {}
    with no_collector(), SERVERS[server](is_observed=is_observed) as (place, address):
        for name, ending in ENDINGS.items():
            if (server, name) in LEFT_OUT or (server == "werkzeug" and "async" in name):
                continue
            left = left_of(partial(ending, address), 3, place)
            if not (left.is_little or (server in OTHERS and left.nbytes < OF_OTHERS)):
                found[name] = left
    assert not found
