"""Budget: memory in flight is counted, waited for in order of arrival, and given back however a request ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    NEED_DATA,
    LimitExceededError,
    Limits,
    Pool,
    Tensor,
    TensorSpec,
    Windows,
    encode_request,
)
from streamcodec.server import Server, ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import InferenceRequest, Model, Service
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.models.model import Outputs
from tests.server.models import models
from tests.server.programs import server_here, serving
from tests.server.wire import GET_LIVE, Answer, Wire, chunked, floats, head, infer_request, post
from tests.waiting import until

Address = tuple[str, int]
SLOW = 60.0
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
    with pytest.raises(LimitExceededError, match="11 bytes of memory, the server has 10 for all requests") as caught:
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


def test_who_waits_has_what_is_there_already_and_no_more() -> None:
    budget = Budget(10)
    one, other = Reservation(budget), Reservation(budget)
    assert one.ask(5)
    assert other.ask(5)
    assert not one.ask(8, held=2)
    assert (one.nbytes, one.missing, budget.reserved) == (2, 6, 7)
    assert not other.ask(9, held=1), "whoever came first comes first"
    assert (one.nbytes, one.missing, budget.reserved) == (8, 0, 9)
    other.release()
    one.release()
    assert budget.reserved == 0


def test_who_has_something_comes_before_those_who_have_nothing() -> None:
    budget = Budget(10)
    one, other, third = (Reservation(budget) for _ in range(3))
    assert one.ask(10)
    assert not other.ask(10)
    assert not third.ask(1)
    assert one.ask(7)
    assert one.ask(10, held=1), "nobody could go on if it had to wait for the other"
    one.release()
    assert (other.nbytes, third.missing) == (10, 1)


def test_what_is_there_already_is_not_waited_for() -> None:
    budget = Budget(10)
    one, other, third = (Reservation(budget) for _ in range(3))
    assert one.ask(5)
    assert other.ask(5)
    assert not third.ask(1)
    assert one.ask(9, held=9)
    assert budget.reserved == 14
    other.release()
    assert (third.missing, budget.reserved) == (0, 10)
    assert not other.ask(1), "nobody gets anything while there is more than there should be"
    one.release()
    assert (other.missing, budget.reserved) == (0, 2)


def test_what_is_handed_over_is_given_back_by_the_other() -> None:
    budget = Budget(10)
    one = Reservation(budget)
    assert one.ask(6)
    other = one.handed_over()
    one.release()
    assert budget.reserved == 6
    other.release()
    assert budget.reserved == 0


def test_idle_blocks_of_the_pool_are_given_back_before_anybody_waits() -> None:
    pool = Pool(min_bytes=1)
    budget = Budget(100, pool)
    one, other = Reservation(budget), Reservation(budget)
    older, newer = _lease(pool, 30), _lease(pool, 40)
    assert one.ask(100)
    del older
    del newer
    assert pool.idle_bytes == 70, "what was in use is counted with what it was used for"
    one.release()
    assert pool.idle_bytes == 70
    assert other.ask(30)
    assert pool.idle_bytes == 70
    assert other.ask(31)
    assert pool.idle_bytes == 40, "the oldest goes first"
    assert not one.ask(100)
    other.release()
    assert (one.nbytes, pool.idle_bytes) == (100, 0)


def _lease(pool: Pool, nbytes: int) -> np.ndarray[Any, Any]:
    (slab,) = pool.slabs(TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(nbytes,), nbytes=nbytes))
    assert slab.array is not None
    return slab.array


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
    windows = chain.from_iterable(rows.windows for rows in request.rows.values())
    return {"y": np.array([sum(float(window.sum()) for window in windows)], np.float32)}


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
    until(lambda: server.reserved_bytes == 0)


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_a_request_as_large_as_the_budget_is_served_a_larger_one_not(
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


def test_inputs_whose_windows_come_one_after_the_other_count_as_two(gate: Gate, backend: str) -> None:
    tensors = [Tensor(name=f"x{number}", array=np.ones((1024, 1), np.float32)) for number in range(20)]
    message = encode_request(tensors, parameters={"binary_data_output": True})
    lines = [f"{name}: {value}" for name, value in message.headers]
    request = b"".join((head("/v2/models/sum/infer", *lines), *message.buffers))
    options = ServerOptions(max_memory_bytes=(message.header_length or 0) + 2 * 4096)
    with _serving(gate, backend, options) as (_, address):
        assert floats(_ask(address, request)) == [20 * 1024]


def test_a_header_of_unknown_length_may_be_longer_than_the_budget_and_does_not_have_to_be(
    gate: Gate, backend: str
) -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}'
    sent = _in_chunks(post(body, model="plain"))
    with _serving(gate, backend, ServerOptions(max_memory_bytes=len(body) + 16)) as (_, address):
        assert _ask(address, sent).status == 200
    with _serving(gate, backend, ServerOptions(max_memory_bytes=len(body) + 15)) as (_, address):
        assert _ask(address, sent).status == 413


def test_requests_whose_headers_tell_how_much_they_take_do_not_wait_for_each_other(backend: str) -> None:
    size = 1 << 20
    tensor = b'{"name":"x","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}' % (size, size)
    body = b'{"inputs":[%b],"parameters":{"binary_data_output":true}}' % tensor + bytes(size)
    service = Service(models(), limits=Limits(max_header_bytes=1 << 20))
    options = ServerOptions(max_memory_bytes=2 << 20, budget_timeout=SLOW)
    with (
        server_here(service, options, backend=backend) as (server, address),
        Wire(address) as one,
        Wire(address) as other,
        ThreadPoolExecutor() as threads,
    ):
        for wire in (one, other):
            wire.send(head("/v2/models/identity/infer", "Transfer-Encoding: chunked"))
        until(lambda: server.reserved_bytes == 2 * 2048)  # a step for each, and no guess
        answers = threads.map(lambda wire: wire.send(chunked(body, [])).response(), (one, other))
        assert [answer.status for answer in answers] == [200, 200]


def test_the_arrays_of_json_tensors_count(gate: Gate, backend: str) -> None:
    numbers = b",".join([b"1"] * 1000)
    body = b'{"inputs":[{"name":"x","datatype":"INT64","shape":[1000],"data":[%b]}]}' % numbers
    request = post(body, model="gate")
    with _serving(gate, backend, ServerOptions()) as (server, address), Wire(address) as wire:
        wire.send(request)
        assert gate.entered.acquire(timeout=SLOW)
        assert server.reserved_bytes == len(body) + 2 * 8000
    gate.may_go.clear()
    with _serving(gate, backend, ServerOptions(max_memory_bytes=len(body) + 15_999)) as (_, address):
        assert _ask(address, request).status == 413


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_who_has_waited_in_vain_is_told_to_come_back(gate: Gate, backend: str, is_chunked: bool) -> None:
    request = infer_request("gate", count=1000)
    options = ServerOptions(max_memory_bytes=_body_bytes(request) + 100, budget_timeout=0.3)
    with _serving(gate, backend, options) as (_, address), Wire(address) as first:
        first.send(request)
        assert gate.entered.acquire(timeout=SLOW)
        answer = _ask(address, _in_chunks(request) if is_chunked else request)
        assert (answer.status, answer.fields["retry-after"]) == (503, "1")
        assert _ask(address, GET_LIVE).status == 200, "health checks take no memory"
        gate.may_go.set()
        assert first.response().status == 200
        assert _ask(address, request).status == 200


def test_who_has_waited_in_vain_keeps_nobody_waiting_while_it_is_told_so() -> None:
    service, admission = Service(models()), Admission(ServerOptions(max_memory_bytes=1000))
    first, second, third = (Session(service, RequestCache(service), admission) for _ in range(3))
    for session, length, step in ((first, 600, NEED_DATA), (second, 900, Step.WAIT), (third, 300, Step.WAIT)):
        session.connection.feed(head("/v2/models/identity/infer", f"Content-Length: {length}"))
        assert session.next_event() is step
    second.refuse_for_memory()
    assert third.reservation.missing == 0


@pytest.mark.slow
def test_the_tensors_of_a_request_that_waits_are_not_read(gate: Gate, backend: str) -> None:
    request, large = infer_request("gate", count=1000), infer_request("gate", count=4 << 20)
    options = ServerOptions(max_memory_bytes=_body_bytes(large), budget_timeout=SLOW, min_rate=0)
    with (
        _serving(gate, backend, options) as (server, address),
        Wire(address) as first,
        Wire(address) as second,
        ThreadPoolExecutor() as threads,
    ):
        first.send(request)
        assert gate.entered.acquire(timeout=SLOW)
        sending = threads.submit(second.send, large)
        time.sleep(0.3)
        assert server.reserved_bytes < _body_bytes(request) + (128 << 10), "what came with the head, and one read"
        gate.may_go.set()
        assert first.response().status == 200
        assert sending.result(SLOW).response(has_body=False).status == 200


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


@pytest.mark.slow
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


# Who announces much, and brings little


def test_heads_reserve_next_to_nothing(gate: Gate, backend: str) -> None:
    with _serving(gate, backend, ServerOptions(max_memory_bytes=1 << 30)) as (server, address):
        wires = [Wire(address) for _ in range(40)]
        for wire in wires[::2]:
            wire.send(head("/v2/models/plain/infer", "Transfer-Encoding: chunked"), b"1\r\n{\r\n")
        for wire in wires[1::2]:
            wire.send(head("/v2/models/plain/infer", f"Content-Length: {1 << 30}"), b"{")
        until(lambda: server.reserved_bytes == 40 * (16 << 10))
        for wire in wires:
            wire.sock.close()


@pytest.mark.slow
def test_who_announces_all_the_memory_and_stops_does_not_shut_others_out(gate: Gate, backend: str) -> None:
    request = infer_request("plain", count=4 << 20)
    most = _body_bytes(request)
    with (
        _serving(gate, backend, ServerOptions(max_memory_bytes=most, budget_timeout=600)) as (server, address),
        Wire(address) as slow,
    ):
        slow.send(request[: 1 << 20])
        until(lambda: server.reserved_bytes == most)
        assert _ask(address, infer_request("plain", count=1 << 17)).status == 200
        assert server.reserved_bytes < 2 << 20, "what has come, and one read"
        slow.send(request[1 << 20 :])
        assert slow.response(has_body=False).status == 200, "it goes on as if nothing had happened"


@pytest.mark.slow
def test_who_is_slow_and_cannot_be_given_more_is_told_to_come_back(gate: Gate, backend: str) -> None:
    request, other = infer_request("plain", count=1 << 20), infer_request("gate", count=1 << 18)
    options = ServerOptions(max_memory_bytes=_body_bytes(request), budget_timeout=5)
    with _serving(gate, backend, options) as (server, address), Wire(address) as slow, Wire(address) as quick:
        slow.send(request[: 3 << 20])
        until(lambda: server.reserved_bytes == _body_bytes(request))
        quick.send(other)
        assert gate.entered.acquire(timeout=SLOW), "it has the memory that the other does not use"
        slow.send(request[3 << 20 :][: 1 << 19])
        answer = slow.response()
        assert (answer.status, answer.fields["retry-after"]) == (503, "1")


@pytest.mark.slow
def test_who_has_sent_much_and_then_stops_loses_it_while_others_wait(gate: Gate, backend: str) -> None:
    request, other = infer_request("plain", count=1 << 20), infer_request("plain", count=1 << 19)
    options = ServerOptions(max_memory_bytes=_body_bytes(request), budget_timeout=SLOW, head_timeout=2)
    with _serving(gate, backend, options) as (server, address), Wire(address) as slow:
        slow.send(request[: 3 << 20])
        until(lambda: server.reserved_bytes == _body_bytes(request))
        assert _ask(address, other).status == 200
        assert slow.response().status == 408


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells how much a process has had at most"
)
@pytest.mark.parametrize("flags", [[], ["--pool-memory", "0"]], ids=["pool", "no pool"])
def test_tensors_of_ever_larger_sizes_take_no_more_than_the_budget(flags: list[str]) -> None:
    with serving("--max-memory", "48M", *flags) as program:
        status = Path(f"/proc/{program.process.pid}/status")
        idle = _most_mib(status)
        for mib in (10, 15, 20, 25, 30, 36, 44) * 2:
            with Wire(program.address) as wire:
                answer = wire.send(infer_request("identity", count=mib << 18)).response(has_body=False)
                assert (answer.status, int(answer.fields["content-length"]) > mib << 20) == (200, True)
                wire.sock.shutdown(socket.SHUT_WR)
                while wire.sock.recv(1 << 20):
                    pass
        assert _most_mib(status) < idle + 48 + 16, "a pool of its own would have kept 181 MiB"


def _most_mib(status: Path) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def test_a_block_that_is_used_again_is_there_as_a_whole_although_its_request_shrinks() -> None:
    """Else whoever stops sending to one used block after the other could have more than there is."""
    pool = Pool()
    _lease(pool, 1 << 20)  # which is put back at once, so that there is a block to be used again
    budget = Budget(3 << 20, pool, min_rate=1.0)
    slow, block = Reservation(budget), _lease(pool, 1 << 20)
    assert slow.ask(1 << 20)
    slow.taken = lambda: 1 << 10
    waiting = Reservation(budget)
    assert not waiting.ask(3 << 20)
    for now in range(5):
        waiting.press(float(now))
    assert slow.nbytes == 1 << 10
    assert waiting.missing  # the block is there
    other = Reservation(budget)
    waiting.release()
    assert other.ask(2 << 20)
    other.release()
    del block
    slow.release()
    assert other.ask(3 << 20)


def test_idle_blocks_are_looked_at_only_where_they_take_somebodys_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, trimmed = Pool(max_idle_bytes=100), list[int]()
    monkeypatch.setattr(pool, "trim", trimmed.append)
    reservation = Reservation(Budget(1000, pool))
    for nbytes in (900, 901, 1000, 0):
        assert reservation.ask(nbytes)
    assert trimmed == [99, 0]
