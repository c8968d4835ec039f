"""The index of the repository, asked for in a body: in every framing, and by a client that does not go on."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from streamcodec import NEED_DATA
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import Model, ModelRegistry, Service
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import Wire, chunked, head

READY = b'{"ready": true}'
Address = tuple[str, int]


def _index(*fields: str, body: bytes = READY) -> bytes:
    return head("/v2/repository/index", *fields) + body


def _models() -> ModelRegistry:
    registry = models()
    registry.add(Model(name="waiting", predict=lambda request: request.inputs, ready=lambda: False))
    return registry


@pytest.fixture(scope="module", params=["asyncio", "uvloop", "trio"])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    with server_here(_models(), backend=request.param) as (_, address):
        yield address


def test_in_every_framing(address: Address) -> None:
    squeezed = gzip.compress(READY)
    forms = [
        _index(f"Content-Length: {len(READY)}"),
        _index("Transfer-Encoding: chunked", body=chunked(READY, [4])),
        _index("Content-Encoding: gzip", f"Content-Length: {len(squeezed)}", body=squeezed),
    ]
    with Wire(address) as wire:
        for form in forms * 3:  # the server knows a head again
            names = {entry["name"] for entry in wire.send(form).response().document}
            assert "identity" in names
            assert "waiting" not in names
            everything = wire.send(_index("Content-Length: 0", body=b"")).response().document
            assert {entry["name"] for entry in everything} == {*names, "waiting"}


def test_a_client_that_waits_for_100_continue(address: Address) -> None:
    with Wire(address) as wire:
        for _ in range(2):
            wire.send(_index(f"Content-Length: {len(READY)}", "Expect: 100-continue", body=b""))
            assert wire.response().status == 100
            assert wire.send(READY).response().status == 200


def test_after_a_body_that_is_refused_the_connection_goes_on(address: Address) -> None:
    with Wire(address) as wire:
        assert "boolean" in wire.send(_index("Content-Length: 11", body=b'{"ready":1}')).response().error
        assert wire.send(_index("Content-Length: 5000", body=bytes(5000))).response().status == 413
        assert wire.send(_index(f"Content-Length: {len(READY)}")).response().status == 200


def test_a_bomb_is_given_up(address: Address) -> None:
    bomb = gzip.compress(bytes(8 << 20))
    with Wire(address) as wire:
        answer = wire.send(_index("Content-Encoding: gzip", f"Content-Length: {len(bomb)}", body=bomb)).response()
    assert (answer.status, answer.error[:16]) == (413, "the body goes on")


def test_one_that_does_not_come_is_told_so() -> None:
    service = Service(_models())
    session = Session(service, RequestCache(service), Admission(ServerOptions()))
    session.connection.feed(_index(f"Content-Length: {len(READY)}", body=READY[:-1]))
    assert session.next_event() is NEED_DATA
    assert not session.is_spare
    assert session.give_up() is Step.SEND
    assert bytes(session.outgoing[0]).startswith(b"HTTP/1.1 408 ")  # type: ignore[arg-type] # the head
