"""Ids: a call has one, however often its request is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamcodec.client.uploads import uploading
from streamcodec.server import ServerOptions
from tests.client.answers.test_answers import GOOD, INPUTS
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import scripted
from tests.server.breaking import breaking
from tests.server.models import models
from tests.server.programs import server_here

IDS = pytest.mark.parametrize("request_id", [None, "", "7"])


def _ids(requests: list[bytes]) -> list[str]:
    """Return all ids in requests."""
    return [json.loads(found) for found in re.findall(rb'"id":("[^"]*")', b"".join(requests))]


@KINDS
@IDS
def test_a_request_that_is_sent_again_is_the_same(kind: Kind, request_id: str | None) -> None:
    with scripted([GOOD, b""], [GOOD]) as server, kind.client(server.url) as client:
        for _ in range(2):
            client.infer("m", INPUTS, request_id=request_id, idempotent=True)
    first, lost, again = server.requests
    assert first == lost == again
    assert len(_ids([lost])) == 1
    assert request_id is None or _ids([lost]) == [request_id]


@KINDS
def test_a_stream_that_begins_again_has_its_id(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's close and the second request cross."""
    monkeypatch.setattr("streamcodec.client.connections.connection.input_test", lambda _: lambda: False)
    with scripted([GOOD], [GOOD]) as server, kind.client(server.url) as client:
        for _ in range(2):
            with client.stream("m", INPUTS, request_id="7") as events:
                assert [*events]
            assert server.has_closed()
    assert _ids(server.requests) == ["7"] * 2


@KINDS
@IDS
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_request_that_goes_on_has_its_id(
    kind: Kind, request_id: str | None, is_recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_FIRST_PAUSE", 1e-4)
    cuts: Iterator[int] = iter([100, 900, 300_000, 250_000])
    x = np.zeros(100_000)
    resumable = tmp_path / "upload" if is_recorded else True
    with (
        server_here(models(), ServerOptions(resumable_uploads=1)) as (_, address),
        breaking(address, cuts) as link,
        kind.client(link.url) as client,
    ):
        result = client.infer("identity", {"x": x}, request_id=request_id, resumable=resumable)
        usual = client.infer("identity", {"x": [1]}).header.id
    assert link.breaks >= 2
    assert result.header.id == (request_id if request_id is not None else "resumable" if is_recorded else usual)
