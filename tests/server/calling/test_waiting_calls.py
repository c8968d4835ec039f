"""Calls in a thread, for which no task waits at first: whatever happens meanwhile, the answer is the same.

A call is soon over, or takes so long that the task of its connection waits for it, too. Everything here is tried with
both.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import pytest

from streamcodec.server import ServerOptions
from streamcodec.server.connection import channels
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, infer_request
from tests.waiting import until

SECONDS = 60.0


class Gate:
    """A model that works in a thread until it may go on."""

    def __init__(self, name: str = "m") -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.model = Model(name=name, predict=self, is_inline=False)

    def __call__(self, request: InferenceRequest) -> Outputs:
        self.begun.release()
        assert self.may_end.acquire(timeout=SECONDS)
        if self.error is not None:
            raise self.error
        return request.values

    def let_end(self) -> None:
        """Wait until it has begun, and let it end."""
        assert self.begun.acquire(timeout=SECONDS)
        self.may_end.release()


@pytest.fixture(params=["asyncio", "uvloop"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["soon over", "waited for"], autouse=True)
def pause(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a call takes at least."""
    is_long = request.param == "waited for"
    monkeypatch.setattr(channels, "_CALL_SECONDS", 0.01 if is_long else 3600.0)
    return 0.1 if is_long else 0.0


def test_it_is_answered(backend: str, pause: float) -> None:
    gate = Gate()
    with server_here(ModelRegistry.of([gate.model]), backend=backend) as (server, address), Wire(address) as wire:
        for count in (4, 20_000, 400_000):
            wire.send(infer_request("m", count=count))
            time.sleep(pause)
            gate.let_end()
            assert wire.response().status == 200
        until(lambda: (server.reserved_bytes, server.requests_in_progress) == (0, 0))
        assert server.abandoned_calls == 0


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_what_it_raises_is_answered(backend: str, pause: float, error: BaseException) -> None:
    gate = Gate()
    gate.error = error
    with server_here(ModelRegistry.of([gate.model]), backend=backend) as (_, address), Wire(address) as wire:
        for _ in range(2):
            wire.send(infer_request("m", count=4))
            time.sleep(pause)
            gate.let_end()
            assert wire.response().status == 500


def test_the_next_request_waits_for_it(backend: str, pause: float) -> None:
    gate = Gate()
    with server_here(ModelRegistry.of([gate.model]), backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("m", count=4))
        assert gate.begun.acquire(timeout=SECONDS)
        wire.send(GET_LIVE + infer_request("m", count=8))
        time.sleep(pause)
        gate.may_end.release()
        assert wire.response().status == 200
        assert wire.response().document == {"live": True}
        gate.let_end()
        assert wire.response().status == 200


def test_a_client_that_only_ends_its_direction_gets_its_answer(backend: str, pause: float) -> None:
    gate = Gate()
    with server_here(ModelRegistry.of([gate.model]), backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("m", count=4))
        assert gate.begun.acquire(timeout=SECONDS)
        wire.sock.shutdown(socket.SHUT_WR)
        time.sleep(pause)
        gate.may_end.release()
        assert wire.response().status == 200


def test_a_client_that_leaves_abandons_no_call(backend: str, pause: float) -> None:
    gate = Gate()
    with server_here(ModelRegistry.of([gate.model]), backend=backend) as (server, address):
        with Wire(address) as wire:
            wire.send(infer_request("m", count=1000))
            assert gate.begun.acquire(timeout=SECONDS)
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        time.sleep(pause)
        assert server.reserved_bytes >= 4000, "the thread still works on it"
        gate.may_end.release()
        until(lambda: (server.reserved_bytes, server.requests_in_progress) == (0, 0))
        assert (server.abandoned_calls, server.unfinished_calls) == (0, 0)


def test_the_time_of_the_client_is_not_that_of_the_model(backend: str, pause: float) -> None:
    gate = Gate()
    options = ServerOptions(read_timeout=0.05, header_timeout=0.05, request_timeout=0.05, head_timeout=0.05)
    registry = ModelRegistry.of([gate.model])
    with server_here(registry, options, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("m", count=4))
        time.sleep(0.2 + pause)
        gate.let_end()
        assert wire.response().status == 200


def test_its_time_begins_with_it_and_its_thread_keeps_the_memory(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_CALL_SECONDS", 0.5)
    gate, options = Gate(), ServerOptions(model_timeout=1.0)
    registry = ModelRegistry.of([gate.model])
    with server_here(registry, options, backend=backend) as (server, address), Wire(address) as wire:
        began = time.monotonic()
        wire.send(infer_request("m", count=1000))
        assert wire.response().status == 504
        # Less than if it had begun when the task began to wait; a busy machine makes it longer, so the least counts.
        assert time.monotonic() - began >= 1.0
        assert server.reserved_bytes >= 4000
        assert (server.abandoned_calls, server.unfinished_calls) == (1, 1)
        gate.may_end.release()
        until(lambda: (server.reserved_bytes, server.unfinished_calls) == (0, 0))


def test_a_server_that_stops_gives_it_up_after_its_time(backend: str, pause: float) -> None:
    gate, options = Gate(), ServerOptions(shutdown_timeout=0.1)
    registry = ModelRegistry.of([gate.model])
    with server_here(registry, options, backend=backend) as (server, address), Wire(address) as wire:
        wire.send(infer_request("m", count=1000))
        assert gate.begun.acquire(timeout=SECONDS)
        time.sleep(pause)
    assert server.abandoned_calls == 1
    assert server.reserved_bytes >= 4000, "the thread still works on it"
    gate.may_end.release()


def test_calls_that_wait_for_a_thread_are_made_in_their_order(backend: str, pause: float) -> None:
    gate, options = Gate(), ServerOptions(max_workers=1)
    registry = ModelRegistry.of([gate.model])
    with server_here(registry, options, backend=backend) as (_, address), ExitStack() as stack:
        wires = [stack.enter_context(Wire(address)) for _ in range(4)]
        for wire in wires:
            wire.send(infer_request("m", count=4))
            time.sleep(0.02)
        time.sleep(pause)
        for wire in wires:
            gate.let_end()
            assert wire.response().status == 200
