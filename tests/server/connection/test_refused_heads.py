"""A `HEAD` that is refused behind another request: both are answered, and nothing is logged."""

from __future__ import annotations

import pytest

from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire

REFUSED = {
    417: b"HEAD / HTTP/1.1\r\nHost: x\r\nExpect: foo\r\n\r\n",
    505: b"HEAD / HTTP/2.0\r\nHost: x\r\n\r\n",
    400: b"HEAD / HTTP/1.1\r\nHost: a b\r\n\r\n",
}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_answers_before_it_arrive(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    with server_here(models(), backend=backend) as (_, address):
        for status, request in REFUSED.items():
            with Wire(address) as wire:
                wire.send(GET_LIVE + request)
                assert wire.response().status == 200
                assert wire.response(has_body=False).status == status
                assert wire.sock.recv(100) == b""
    assert caplog.records == []
