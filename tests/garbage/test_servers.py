"""Servers: however a client brings a request to its end, nothing of it waits for the garbage collector."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from tests.garbage.endings import ENDINGS, NBYTES
from tests.garbage.leftovers import left_of, no_collector
from tests.garbage.servers import SERVERS

OF_TRIO = "fails too late in a thread"
"""A model that itself calls trio's threads, which refer to what they raise if nobody waits for it any more."""

OTHERS = SERVERS.keys() - {"asyncio", "uvloop", "trio"}
OF_OTHERS = 3 * NBYTES // 4
"""What the cycles of frameworks may hold: pieces of a body or an answer, and for 3 requests no tensor."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "is_observed"),
    [
        ("asyncio", True),
        ("uvloop", False),
        ("trio", True),
        ("uvicorn h11", True),
        ("uvicorn httptools", False),
        ("aiohttp", True),
        ("werkzeug", True),
    ],
)
def test_nothing_waits_for_the_garbage_collector(
    server: str, is_observed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)  # records that are kept hold tracebacks
    found = {}
    with no_collector(), SERVERS[server](is_observed=is_observed) as (place, address):
        for name, ending in ENDINGS.items():
            if (server == "trio" and OF_TRIO in name) or (server == "werkzeug" and "async" in name):
                continue
            left = left_of(partial(ending, address), 3, place)
            if not (left.is_little or (server in OTHERS and left.nbytes < OF_OTHERS)):
                found[name] = left
    assert not found
