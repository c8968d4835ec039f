"""Budget: memory in flight is counted, waited for in order of arrival, and given back however a request ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from streamcodec import LimitExceededError, Windows
from streamcodec.server import Server, ServerOptions
from streamcodec.server.budget import Budget, Reservation
from streamcodec.service import InferenceRequest, Model
from streamcodec.service.models import Outputs
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Answer, Wire, chunked, floats, head, infer_request, post

Address = tuple[str, int]
SLOW = 30.0
"""Seconds that nothing in these tests takes, unless it hangs."""


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What counts


def test_what_fits_is_granted_at_once_and_what_does_not_waits() -> None:
    budget = Budget(10)
    first, second = Reservation(budget), Reservation(budget)
    granted: list[str] = []
    second.on_granted = lambda: granted.append("second")
    assert first.ask(10)
    assert not second.ask(1)
    assert (budget.reserved, second.nbytes, second.missing) == (10, 0, 1)
    first.release()
    assert granted == ["second"]
    assert (budget.reserved, second.nbytes, second.missing) == (1, 1, 0)


def test_more_than_there_is_is_refused_and_as_much_as_there_is_is_not() -> None:
    budget = Budget(10)
    assert Reservation(budget).ask(10)
    with pytest.raises(LimitExceededError, match="11 bytes of memory, the server has 10") as caught:
        Reservation(budget).ask(11)
    assert (caught.value.limit, caught.value.status_hint) == ("max_memory_bytes", 413)
    assert budget.reserved == 10


def test_nobody_is_passed_over() -> None:
    budget = Budget(10)
    holds, large, small = (Reservation(budget) for _ in range(3))
    assert holds.ask(5)
    assert not large.ask(8)
    assert not small.ask(1), "there would be room, but it is not its turn"
    holds.release()
    assert (large.missing, small.missing) == (0, 0)


def test_who_gives_up_lets_those_behind_it_have_their_turn() -> None:
    budget = Budget(10)
    holds, large, small = (Reservation(budget) for _ in range(3))
    assert holds.ask(5)
    assert not large.ask(8)
    assert not small.ask(5)
    large.release()
    assert small.nbytes == 5
    for reservation in (holds, small, large):
        reservation.release()
        reservation.release()
    assert budget.reserved == 0


def test_a_reservation_grows_and_shrinks() -> None:
    budget = Budget(10)
    one, other = Reservation(budget), Reservation(budget)
    assert one.ask(4)
    assert one.ask(10)
    assert not other.ask(3)
    assert one.ask(7)
    assert (other.nbytes, budget.reserved) == (3, 10)
    assert not one.ask(8)
    one.release()
    assert budget.reserved == 3


def test_what_is_handed_over_is_given_back_by_the_other() -> None:
    budget = Budget(10)
    one = Reservation(budget)
    assert one.ask(6)
    other = one.handed_over()
    one.release()
    assert budget.reserved == 6
    other.release()
    assert budget.reserved == 0


# Over sockets


@dataclass
class Gate:
    """A model that does not answer before it is told to."""

    may_go: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def predict(self, request: InferenceRequest) -> Outputs:
        self.entered.release()
        assert self.may_go.wait(SLOW)
        return dict(request.inputs)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.may_go.set()


def _sum(request: InferenceRequest) -> Outputs:
    return {"y": np.array([sum(float(window.sum()) for window in request.rows["x"].windows)])}  # type: ignore[union-attr,misc] # not asynchronous


@contextmanager
def _serving(gate: Gate, backend: str, options: ServerOptions) -> Iterator[tuple[Server, Address]]:
    """Serve; whoever waits at the gate is let go at the end, and nothing may be held then."""
    registry = models()
    registry.add(Model(name="gate", predict=gate.predict))
    registry.add(Model(name="plain", predict=lambda request: dict(request.inputs)))
    registry.add(Model(name="sum", predict=_sum, windows=Windows(max_window_bytes=4096)))
    with server_here(registry, options, backend=backend) as (server, address):
        yield server, address
        gate.may_go.set()
        _assert_nothing_is_held(server)
    assert server.reserved_bytes == 0


def _body_bytes(request: bytes) -> int:
    return len(request.partition(b"\r\n\r\n")[2])


def _ask(address: Address, request: bytes) -> Answer:
    with Wire(address) as wire:
        return wire.send(request).response()


def _in_chunks(request: bytes) -> bytes:
    begin, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in begin.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", chunked(body, [7, 300])])


def _assert_nothing_is_held(server: Server) -> None:
    deadline = time.monotonic() + 10
    while server.reserved_bytes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.reserved_bytes == 0


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_a_request_as_large_as_the_budget_is_served_and_a_larger_one_is_not(
    gate: Gate, backend: str, is_chunked: bool
) -> None:
    request = infer_request("plain", count=4000)
    size = _body_bytes(request)
    sent = _in_chunks(request) if is_chunked else request
    with _serving(gate, backend, ServerOptions(max_memory_bytes=size)) as (_, address):
        assert floats(_ask(address, sent)) == list(range(4000))
    with _serving(gate, backend, ServerOptions(max_memory_bytes=size - 1)) as (_, address):
        answer = _ask(address, sent)
        assert (answer.status, str(size) in answer.error) == (413, True)


def test_a_request_that_can_never_fit_is_refused_before_its_body_is_sent(gate: Gate, backend: str) -> None:
    with _serving(gate, backend, ServerOptions(max_memory_bytes=1000)) as (_, address), Wire(address) as wire:
        answer = wire.send(head("/v2/models/gate/infer", "Content-Length: 1001", "Expect: 100-continue")).response()
        assert answer.status == 413


def test_a_model_that_takes_windows_needs_no_more_than_its_windows(gate: Gate, backend: str) -> None:
    request = infer_request("sum", count=100_000)
    length = int(request.lower().partition(b"header-content-length: ")[2].split(b"\r\n")[0])
    for sent in (request, _in_chunks(request)):
        with _serving(gate, backend, ServerOptions(max_memory_bytes=length + 4096)) as (_, address):
            assert _ask(address, sent).status == 200
        with _serving(gate, backend, ServerOptions(max_memory_bytes=length + 4095)) as (_, address):
            assert _ask(address, sent).status == 413


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_who_has_waited_in_vain_is_told_to_come_back(gate: Gate, backend: str, is_chunked: bool) -> None:
    request = infer_request("gate", count=1000)
    options = ServerOptions(max_memory_bytes=_body_bytes(request) + 100, budget_timeout=0.1)
    with _serving(gate, backend, options) as (_, address), Wire(address) as first:
        first.send(request)
        assert gate.entered.acquire(timeout=SLOW)
        answer = _ask(address, _in_chunks(request) if is_chunked else request)
        assert (answer.status, answer.fields["retry-after"]) == (503, "1")
        assert _ask(address, GET_LIVE).status == 200, "health checks take no memory"
        gate.may_go.set()
        assert first.response().status == 200
        assert _ask(address, request).status == 200


def test_the_body_of_a_request_that_waits_is_not_read(gate: Gate, backend: str) -> None:
    request = infer_request("gate", count=1000)
    options = ServerOptions(max_memory_bytes=100 << 20, budget_timeout=SLOW)
    large = head("/v2/models/gate/infer", f"Content-Length: {100 << 20}", "Expect: 100-continue")
    with _serving(gate, backend, options) as (server, address), Wire(address) as first, Wire(address) as second:
        first.send(request)
        assert gate.entered.acquire(timeout=SLOW)
        second.send(large)
        second.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            second.response()  # which would be 100
        assert server.reserved_bytes == _body_bytes(request)
        gate.may_go.set()
        assert first.response().status == 200
        second.sock.settimeout(10)
        assert second.response(has_body=False).status == 100


def test_requests_are_served_in_order_of_arrival(gate: Gate, backend: str) -> None:
    request = infer_request("gate", count=1000)
    options = ServerOptions(max_memory_bytes=_body_bytes(request), budget_timeout=SLOW)
    with _serving(gate, backend, options) as (_, address), Wire(address) as first:
        first.send(request)
        assert gate.entered.acquire(timeout=SLOW)
        others = [Wire(address) for _ in range(3)]
        for wire in others:
            wire.send(request)
            time.sleep(0.05)  # so that there is an order
        gate.may_go.set()
        for wire in (first, *others):
            assert wire.response().status == 200
            wire.sock.close()


ENDS = {
    "served": lambda wire: wire.send(infer_request("plain", count=4000)).response(),
    "served in chunks": lambda wire: wire.send(_in_chunks(infer_request("plain", count=4000))).response(),
    "refused by its head": lambda wire: wire.send(post(b"{}", "Content-Encoding: zip")).response(),
    "refused by its header": lambda wire: wire.send(post(b"{}")).response(),
    "cut within the header": lambda wire: wire.send(infer_request("plain", count=4000)[:200]),
    "cut within a tensor": lambda wire: wire.send(infer_request("plain", count=4000)[:-1]),
    "ended within a tensor": lambda wire: wire.send(infer_request("plain")[:-1]).sock.shutdown(socket.SHUT_WR),
    "too slow": lambda wire: wire.send(infer_request("plain")[:-1]).response(),
    "model raised": lambda wire: wire.send(infer_request("break", count=4000)).response(),
    "gone while the model works": lambda wire: wire.send(infer_request("sleep", count=1)),
    "answer not read": lambda wire: wire.send(infer_request("plain", count=1 << 20)),
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_held_of_a_request_however_it_ends(gate: Gate, backend: str, end: str) -> None:
    with _serving(gate, backend, ServerOptions(read_timeout=0.3)) as (server, address):
        for _ in range(3):
            with Wire(address) as wire:
                ENDS[end](wire)
        _assert_nothing_is_held(server)


def test_nothing_is_held_of_requests_that_gave_up_waiting(gate: Gate, backend: str) -> None:
    request = infer_request("gate", count=1000)
    options = ServerOptions(max_memory_bytes=_body_bytes(request), budget_timeout=0.2)
    with _serving(gate, backend, options) as (server, address), Wire(address) as first:
        first.send(request)
        assert gate.entered.acquire(timeout=SLOW)
        for _ in range(5):
            with Wire(address) as wire:
                wire.send(request)
        gate.may_go.set()
        assert first.response().status == 200
        _assert_nothing_is_held(server)
        assert _ask(address, request).status == 200


def test_the_thread_of_a_model_that_was_given_up_keeps_its_memory_until_it_returns(gate: Gate, backend: str) -> None:
    request = infer_request("gate", count=1000)
    with _serving(gate, backend, ServerOptions(model_timeout=0.1)) as (server, address):
        assert _ask(address, request).status == 504
        assert server.reserved_bytes == _body_bytes(request)
        gate.may_go.set()
        _assert_nothing_is_held(server)
