"""nginx and HAProxy as docs/howto/proxies.md sets them, in front of two servers that are restarted under load."""

from __future__ import annotations

import pytest

from tests.server.rolling import HAPROXY, NGINX, SIZES, Way, proxied, restarted
from tests.server.wire import Wire, head

pytestmark = pytest.mark.slow
_needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not here: apt-get install nginx")
_needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not here: apt-get install haproxy")


@_needs_nginx
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("nbytes", SIZES.values(), ids=SIZES)
def test_nginx_hands_on_no_refusals(nbytes: int, is_kept: bool) -> None:
    """One 502 in some twenty restarts has no known cause; with refusals after the delay, 15 and more were lost."""
    answered, lost = restarted(Way("nginx", "as shown", 2), nbytes, is_kept=is_kept, pause=2)
    assert answered > 100
    assert lost.total() <= 1, lost
    assert "503" not in lost


@_needs_nginx
def test_a_refusal_does_not_wait_for_the_body() -> None:
    with proxied(Way("nginx", "as shown", 0)) as (server, _), Wire((server.host, server.port)) as wire:
        wire.send(head("/v2/models/nobody/infer", f"Content-Length: {64 << 20}"), bytes(1 << 20))
        assert wire.response().status == 404


@_needs_haproxy
@pytest.mark.parametrize("is_kept", [True, False])
def test_haproxy_loses_nothing(is_kept: bool) -> None:
    """It looks every 2 s, and a look may take 2 s."""
    answered, lost = restarted(Way("haproxy", "as shown", 6), SIZES["4 KiB"], is_kept=is_kept)
    assert answered > 100
    assert not lost
