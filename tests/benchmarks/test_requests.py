"""The requests that wrk sends: our server answers each kind as the row of the table says."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.benchmarks import kinds, load, vshape, ways
from tests.benchmarks.beside import Row
from tests.benchmarks.peers import Peers, Running
from tests.benchmarks.wrk import MARK

_NUMBER = b"%016d" % 1_795_000_000_000_001


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """Run our server."""
    with Peers(Path()) as peers:
        yield peers.ours()


@pytest.mark.parametrize("row", [*vshape.rows(), *kinds.rows(), *ways.rows()], ids=lambda row: row.case)
def test_a_request_is_answered_or_refused(server: Running, row: Row) -> None:
    for request in row.requests()[:3]:
        with load.connect(server) as sock:
            sock.sendall(request.replace(MARK.encode(), _NUMBER))
            status = load.receive(sock).status
        assert (status >= HTTPStatus.BAD_REQUEST) == row.is_refused, row.case


def test_shapes_and_outputs_vary_and_numbers_are_in_what_is_new() -> None:
    rows = {row.case: row.requests() for row in vshape.rows()}
    assert [len(set(rows[f"{count} shapes"])) for count in ("64", "512", "4,096")] == [64, 512, 4_096]
    assert len(set(rows["changing outputs"])) == len(set(rows["200 models"])) == 512
    assert all(request.count(MARK.encode()) == 2 for request in rows["64 shapes, new ids"])
