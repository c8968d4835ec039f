"""Dates: each response has one, of the second in which it was made."""

from __future__ import annotations

import time
from email.utils import formatdate, parsedate_to_datetime

import pytest

from streamcodec.server.connection.dates import Dates, http_date
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request


@pytest.mark.parametrize("seconds", [0.0, 784111777.9, 951782400.0, 1e9, 1735689599.999, 4102444800.0])
def test_it_is_written_as_http_wants_it(seconds: float) -> None:
    assert http_date(seconds) == formatdate(int(seconds), usegmt=True)


def test_it_is_written_once_a_second_and_follows_the_clock_back() -> None:
    now = [100.2]
    dates = Dates(lambda: now[0])
    first = dates.encoded()
    for later in (100.0, 100.999):
        now[0] = later
        assert dates.encoded() is first
    for other in (101.0, 99.999, 5000.0, 0.0):
        now[0] = other
        assert dates.now() == formatdate(int(other), usegmt=True)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_every_answer_has_one(backend: str) -> None:
    requests = {
        "quick": GET_LIVE,
        "quick inference": infer_request(),
        "ordinary": infer_request("sleep", count=1),
        "failing": infer_request("break"),
        "large": infer_request(count=100_000),
        "not found": head("/v3", method="GET"),
        "no head": b"GET \x01\r\n\r\n",
    }
    with server_here(models(), backend=backend) as (_, address):
        for name, request in requests.items():
            before = int(time.time())
            with Wire(address) as wire:
                fields = wire.send(request).response().fields
            assert before <= parsedate_to_datetime(fields["date"]).timestamp() <= time.time(), name


def test_so_has_a_refused_connection() -> None:
    with server_here(models()) as (server, address):
        server._admission.enter = lambda *_: False  # type: ignore[method-assign]  # noqa: SLF001 - as if all were taken
        with Wire(address) as wire:
            answer = wire.send(GET_LIVE).response()
    assert answer.status == 503
    assert "date" in answer.fields
