"""Slow links: progress is what the peer has acknowledged, so honest clients are served, and slow attackers are not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from streamcodec.runtime.options import SLOW_LINKS
from streamcodec.server import ServerOptions
from tests.server.slow_links import ATTACKS, Link, honest, seconds_of_attack

SHORT = ServerOptions(read_timeout=0.75, write_timeout=0.75, head_timeout=0.5, min_rate=512_000)
"""The default limits, with a fortieth of the time, and 12.5 times the bytes."""

LINK = Link(rate=1_000_000, moving=1.0, stall=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_clients_behind_a_link_that_stalls_are_served(backend: str) -> None:
    """Each message is longer than what the system buffers, which then takes nothing for longer than the limits.

    A busy machine may hold up a client for longer, too; so each client has three attempts.
    """
    served: dict[str, bool] = {}
    for _ in range(3):
        found = honest(SHORT, LINK, 4_000_000, 0.75, backend=backend)
        served = {name: is_served or served.get(name, False) for name, is_served in found.items()}
        if all(served.values()):
            return
    pytest.fail(f"not served in three attempts: {served}")


@pytest.mark.slow
def test_clients_that_are_slow_on_purpose_are_not_served() -> None:
    with ThreadPoolExecutor(len(ATTACKS)) as threads:
        for seconds in threads.map(partial(seconds_of_attack, options=SHORT, interval=0.05, most=60.0), ATTACKS):
            assert 0.4 < seconds < 60


def test_options_for_slow_links() -> None:
    options = ServerOptions.for_slow_links(head_timeout=7.0, max_connections=3)
    assert (options.head_timeout, options.max_connections) == (7.0, 3)
    assert {name: getattr(options, name) for name in SLOW_LINKS} == SLOW_LINKS | {"head_timeout": 7.0}
    defaults = ServerOptions()
    assert all((getattr(defaults, name) > value) is (name == "min_rate") for name, value in SLOW_LINKS.items())
