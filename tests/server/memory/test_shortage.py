"""Shortage of memory: wherever it is met, it ends a request or a connection, and never the server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from streamcodec import NEED_DATA
from streamcodec.engine import machine
from streamcodec.engine.memory import placement
from streamcodec.server import Server, ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service, demo_models
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.models.model import Outputs
from tests.server.programs import ROOT, server_here
from tests.server.wire import GET_LIVE, Wire, floats, infer_request, post

pytestmark = pytest.mark.slow

STRIDE = 29
"""One allocation in so many is tried here; `python -m tests.server.shortage NAME 1` tries all."""


@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this interpreter has no way to let allocations fail")
@pytest.mark.parametrize("name", ["small", "health", "JSON", "large", "chunked", "refused"])
def test_one_allocation_fails_wherever_it_is(name: str) -> None:
    command = [sys.executable, "-m", "tests.server.shortage", name, str(STRIDE)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    result = json.loads(run.stdout)
    found, expected = result["found"], str(result["expected"])
    # numpy reads what it could not allocate, in its own ways of accumulating: nobody here can help that.
    crashes = found.pop("ended by 11", 0) + found.pop("ended by 139", 0)
    assert crashes <= 3, result
    assert found.pop(expected) > 0
    assert all(outcome == "503" or outcome.startswith("closed") for outcome in found), result


# At the places where our own code takes memory by size


class Scarce:
    """Lets one call fail, the n-th."""

    def __init__(self, function: Callable[..., Any], at: int) -> None:
        self.function = function
        self.left = at

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - anything
        self.left -= 1
        if self.left < 0 and self.left == -1:
            raise MemoryError
        return self.function(*arguments, **options)


REQUESTS = {
    "large": infer_request(count=1 << 18),
    "small": infer_request("threaded"),
    "JSON": post(b'{"inputs":[{"name":"x","datatype":"INT64","shape":[3],"data":[1,2,3]}]}', model="threaded"),
    "texts": post(b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"data":["a","b"]}]}', model="threaded"),
}


def _registry() -> ModelRegistry:
    registry = demo_models()
    registry.add(Model(name="threaded", predict=lambda request: dict(request.inputs)))
    return registry


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("site", ["aligned_block", "scratch_bytes", "empty"])
def test_memory_by_size_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, loop: str, site: str) -> None:
    service = Service(_registry(), max_pool_bytes=0)
    with server_here(service, backend=loop) as (server, address):
        for request in REQUESTS.values():
            for at in range(3):
                with monkeypatch.context() as patch:
                    patch.setattr(*_site(site, at))
                    assert _status(address, request) in {0, 200, 503}
                assert _status(address, request) == 200
        _assert_nothing_is_held(server)


def _assert_nothing_is_held(server: Server) -> None:
    deadline = time.monotonic() + 60
    while server.reserved_bytes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.reserved_bytes == 0


def _site(site: str, at: int) -> tuple[Any, str, Scarce]:
    if site == "empty":
        return np, "empty", Scarce(np.empty, at)
    owner = machine if site == "scratch_bytes" else placement
    return owner, site, Scarce(getattr(owner, site), at)


def _status(address: tuple[str, int], request: bytes) -> int:
    """Return the status of the answer, 0 if there is none."""
    try:
        with Wire(address) as wire:
            return wire.send(request).response().status
    except ConnectionError:
        return 0


# Of what is not ours


def test_a_model_that_has_no_memory_is_503(caplog: pytest.LogCaptureFixture) -> None:
    def predict(_: InferenceRequest) -> Outputs:
        raise MemoryError

    async def predict_async(_: InferenceRequest) -> Outputs:
        raise MemoryError

    registry = _registry()
    registry.add(Model(name="inline", predict=predict, is_inline=True))
    registry.add(Model(name="thread", predict=predict))
    registry.add(Model(name="task", predict=predict_async))
    with server_here(registry) as (server, address):
        for name in ("inline", "thread", "task"):
            for count in (4, 1 << 17):
                with Wire(address) as wire:
                    answer = wire.send(infer_request(name, count=count)).response()
                    assert (answer.status, answer.fields["retry-after"]) == (503, "1")
                    assert name in answer.error
                    assert wire.send(GET_LIVE).response().status == 200
        _assert_nothing_is_held(server)
    assert not caplog.records


def test_a_connection_without_memory_for_a_session_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with server_here(_registry()) as (_, address):
        with monkeypatch.context() as patch:
            patch.setattr("streamcodec.server.serving.Session", Scarce(Session, 0))
            with Wire(address) as wire:
                assert wire.response().status == 503
        with Wire(address) as wire:
            assert floats(wire.send(infer_request()).response()) == [0, 1, 2, 3]


def _failing(*_: object) -> Any:  # noqa: ANN401 - never returns
    raise MemoryError


def _session() -> Session:
    service = Service(_registry())
    return Session(service, RequestCache(service), Admission(ServerOptions()))


def test_a_request_is_refused_where_its_session_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session()
    session.connection.feed(infer_request("threaded", count=1 << 15)[:1000])
    assert session.next_event() is NEED_DATA
    monkeypatch.setattr(session, "_next_step", _failing)
    assert session.next_event() is Step.SEND
    head = bytes(session.outgoing[0])  # type: ignore[arg-type] # which it is
    assert head.startswith(b"HTTP/1.1 503")
    assert b"Connection: close" in head or b"connection: close" in head.lower()


@pytest.mark.parametrize("name", ["_next_step", "_send"])
def test_a_session_that_cannot_even_refuse_ends(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    session = _session()
    if name == "_send":  # else there is no request to be refused
        session.connection.feed(infer_request("threaded", count=1 << 15)[:1000])
        assert session.next_event() is NEED_DATA
        monkeypatch.setattr(session, "_send", _failing)
    monkeypatch.setattr(session, "_next_step", _failing)
    assert session.next_event() is Step.CLOSE


def test_who_waits_is_granted_also_where_there_is_no_memory_to_be_told() -> None:
    budget = Budget(10)
    one, other = Reservation(budget), Reservation(budget)
    assert one.ask(10)
    assert not other.ask(5)
    other.on_granted = _failing
    one.release()
    assert (other.missing, other.nbytes, budget.reserved) == (0, 5, 5)


def test_who_could_not_be_let_wait_is_forgotten() -> None:
    budget = Budget(10)
    one, other = Reservation(budget), Reservation(budget)
    assert one.ask(10)
    other.missing = 5  # as it is where the queue had no memory for it
    other.release()
    one.release()
    assert budget.reserved == 0
