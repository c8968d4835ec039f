"""The pool: many calls at once, each on a connection of its own, never more than there may be, and none left behind."""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import anyio
import numpy as np
import pytest

from streamcodec import Limits, RemoteProtocolError, Rows
from streamcodec.client import AsyncClient, Client, Timeout
from streamcodec.client.caller import Caller
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.pool import ConnectionPool
from tests.client.answers.test_answers import GOOD, INPUTS, VALUES
from tests.client.drivers import KINDS, Driver, Kind
from tests.client.scripted import Step, scripted
from tests.server.lanes import eventually
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import TIMEOUT

LOOPS = pytest.mark.parametrize(
    ("backend", "options"),
    [("asyncio", {}), ("asyncio", {"use_uvloop": True}), ("trio", {})],
    ids=["asyncio", "uvloop", "trio"],
)
THREADS = 16
TASKS = 200
SOON = 10.0
"""Seconds in which a thread gets its turn."""
LARGE = np.zeros(64 << 20, np.uint8)
"""More than the system takes while nobody reads."""


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with server_here(models()) as (_, address):
        yield address


@contextmanager
def _counted(address: tuple[str, int]) -> Iterator[list[int]]:
    """Watch how many connections this process has to the server, until the end, when there must be none."""
    counts: list[int] = []
    is_over = threading.Event()

    established = re.compile(rf"(\S+) \S+:{address[1]:04X} 01 ")  # with its own end, in Linux's table

    def count() -> int:
        # The table is read in pieces: a connection that is made meanwhile may move others, which come twice.
        return len(set(established.findall(Path("/proc/self/net/tcp").read_text())))

    def watch() -> None:
        while not is_over.wait(0.005):
            counts.append(count())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield counts
    finally:
        is_over.set()
        thread.join()
    assert count() == 0


def test_threads_that_share_a_client(address: tuple[str, int]) -> None:
    url = f"http://{address[0]}:{address[1]}"

    def ask(client: Client, number: int) -> list[float]:
        return [float(client.infer("identity", {"x": 1000.0 * number + turn})["x"]) for turn in range(20)]

    with (
        _counted(address) as counts,
        Client(url, timeout=60, max_connections=5) as client,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        answers = list(threads.map(lambda number: ask(client, number), range(THREADS)))
        assert eventually(lambda: max(counts, default=0) >= 2), "connections that are kept are seen at last"
    assert answers == [[1000.0 * number + turn for turn in range(20)] for number in range(THREADS)]
    assert max(counts) <= 5


@pytest.mark.slow
@LOOPS
def test_tasks_that_share_a_client(address: tuple[str, int], backend: str, options: dict[str, bool]) -> None:
    answers: dict[int, float] = {}

    async def ask(client: AsyncClient, number: int) -> None:
        answers[number] = float((await client.infer("identity", {"x": number}))["x"])

    async def main() -> None:
        url = f"http://{address[0]}:{address[1]}"
        async with AsyncClient(url, timeout=60, max_connections=7) as client, anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(ask, client, number)

    with _counted(address) as counts:
        anyio.run(main, backend=backend, backend_options=options)
    assert answers == {number: number for number in range(TASKS)}
    assert max(counts) <= 7


def test_calls_of_threads_are_made_at_the_same_time(address: tuple[str, int]) -> None:
    url = f"http://{address[0]}:{address[1]}"
    with _counted(address) as counts, Client(url) as client, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: client.infer("sleep", {"x": 0.3}), range(4)))
    assert max(counts) == 4


@pytest.mark.slow
@LOOPS
def test_calls_of_tasks_are_made_at_the_same_time(
    address: tuple[str, int], backend: str, options: dict[str, bool]
) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://{address[0]}:{address[1]}") as client, anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(client.infer, "sleep", {"x": 0.3})

    with _counted(address) as counts:
        anyio.run(main, backend=backend, backend_options=options)
    assert max(counts) == 4


@pytest.mark.slow
@KINDS
def test_waiting_for_a_connection_has_a_time_of_its_own_and_belongs_to_the_call(kind: Kind) -> None:
    for times, text in (
        ({"timeout": Timeout(pool=0.2)}, r"no connection was free for 0\.2 seconds: all 1 of max_connections"),
        ({"total_timeout": 0.2}, r"total_timeout of 0\.2 seconds"),
    ):
        with scripted([GOOD, GOOD]) as server, kind.client(server.url, max_connections=1) as client:
            with client.stream("m", INPUTS) as events:
                next(events)
                with pytest.raises(TimeoutError, match=text):
                    client.infer("m", INPUTS, **times)
                list(events)
            client.infer("m", INPUTS)
        assert server.accepted == 1


@pytest.mark.slow
@KINDS
def test_a_connection_that_was_kept_for_too_long_is_not_used_again(kind: Kind) -> None:
    for expiry, accepted in ((0.05, 2), (5, 1), (None, 1)):
        scripts: list[list[Step]] = [[GOOD], [GOOD]] if accepted == 2 else [[GOOD, GOOD]]
        with scripted(*scripts) as server, kind.client(server.url, keepalive_expiry=expiry) as client:
            client.infer("m", INPUTS)
            time.sleep(0.1)
            client.infer("m", INPUTS)
        assert server.accepted == accepted


@KINDS
def test_a_closed_client_keeps_nothing_and_can_be_used_again(kind: Kind) -> None:
    with scripted([GOOD], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        client.client.close()
        assert server.has_closed()
        with client.stream("m", INPUTS) as events:
            next(events)
            client.client.close()  # while a call uses it
            list(events)
        assert server.has_closed()


@KINDS
def test_a_connection_that_takes_no_other_request_is_closed_at_once(kind: Kind) -> None:
    is_closed = threading.Event()

    def wait(sock: socket.socket) -> None:
        if not sock.recv(1):
            is_closed.set()

    last = GOOD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    with scripted([last, wait]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        assert is_closed.wait(SOON)


def test_a_connection_that_an_interrupt_has_taken_from_its_call_is_closed_with_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with scripted([GOOD], [GOOD]) as server, Client(server.url) as client:
        client.infer("m", INPUTS)
        assert server.has_closed()
        monkeypatch.setattr(Caller, "_perform", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.infer("m", INPUTS)
        moved = client.sent_bytes, client.received_bytes
        client.close()
        assert server.has_closed(), "without a request"
        assert (client.sent_bytes, client.received_bytes) == moved


@KINDS
def test_what_was_copied_is_counted_over_all_connections(kind: Kind) -> None:
    with scripted([GOOD], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        first = client.client.received_copied
        assert server.has_closed()
        client.infer("m", INPUTS)
        assert client.client.received_copied == 2 * first > 0
    assert server.accepted == 2


# Bytes that have moved


def _moved(driver: Driver) -> tuple[int, int]:
    return driver.client.sent_bytes, driver.client.received_bytes


@KINDS
def test_what_has_moved_is_counted_over_all_connections(kind: Kind) -> None:
    with scripted([GOOD, GOOD], [GOOD]) as server, kind.client(server.url) as client:
        assert _moved(client) == (0, 0)
        for count in (1, 2, 3):
            client.infer("m", INPUTS)
            assert _moved(client) == (sum(map(len, server.requests)), count * len(GOOD))
            assert client.client.received_copied < count * len(GOOD)
            assert count == 1 or server.has_closed()
    assert _moved(client) == (sum(map(len, server.requests)), 3 * len(GOOD))


@KINDS
def test_what_moves_is_counted_while_it_does(kind: Kind) -> None:
    may_go_on = threading.Event()
    head = GOOD.index(b"\r\n\r\n")

    def read_slowly(sock: socket.socket) -> None:
        nbytes = len(sock.recv(1 << 16))
        sock.sendall(GOOD[:head])
        assert may_go_on.wait(TIMEOUT)
        while nbytes < LARGE.nbytes:
            nbytes += len(sock.recv(1 << 16))
        sock.sendall(GOOD[head:])

    with (
        scripted([read_slowly]) as server,
        kind.client(server.url) as client,
        ThreadPoolExecutor() as threads,
    ):
        call = threads.submit(client.infer, "m", {"x": LARGE})
        while client.client.received_bytes < head:
            time.sleep(0.01)
        sent, received = _moved(client)
        assert (0 < sent < LARGE.nbytes, received) == (True, head)
        may_go_on.set()
        assert np.array_equal(call.result()["y"], VALUES)
        sent, received = _moved(client)
        assert (sent - LARGE.nbytes < 1000, received) == (True, len(GOOD))


@KINDS
def test_what_is_sent_again_counts_again_and_what_is_cut_as_far_as_it_went(kind: Kind) -> None:
    with scripted([GOOD, _hang_up], [GOOD[:-1]]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        with pytest.raises(RemoteProtocolError, match="ended"):
            client.infer("m", INPUTS, idempotent=True)
        assert _moved(client) == (3 * len(server.requests[0]), 2 * len(GOOD) - 1)


# Kept connections that have died


def _after(answer: bytes, *steps: Step) -> list[Step]:
    """Answer a request, then do something else with the next one."""
    return [answer, *steps]


def _reset(sock: socket.socket) -> None:
    sock.recv(1 << 16)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _hang_up(sock: socket.socket) -> None:
    sock.recv(1 << 16)


@KINDS
@pytest.mark.parametrize("how", [_reset, _hang_up])
def test_a_kept_connection_that_dies_before_the_answer_is_replaced_once(kind: Kind, how: Step) -> None:
    with scripted([GOOD, how], [GOOD, how], [GOOD]) as server, kind.client(server.url) as client:
        for _ in range(3):
            assert np.array_equal(client.infer("m", INPUTS, idempotent=True)["y"], VALUES)
    assert server.accepted == 3


@KINDS
@pytest.mark.parametrize("how", [_reset, _hang_up])
def test_what_the_server_may_have_run_is_not_sent_again(kind: Kind, how: Step) -> None:
    with scripted([GOOD, how], [GOOD, how], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        with pytest.raises(Exception, match=r"without an answer|reset"):
            client.infer("m", INPUTS)
        client.infer("m", INPUTS)
        with pytest.raises(Exception, match=r"without an answer|reset"), client.stream("m", INPUTS) as events:
            next(iter(events))
        client.infer("m", INPUTS)
    assert server.accepted == 3


@KINDS
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what has been acknowledged")
def test_what_the_server_had_closed_before_is_sent_again(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The close and the request cross; here the client does not look before it sends."""
    monkeypatch.setattr("streamcodec.client.connections.connection.input_test", lambda _: lambda: False)
    with scripted([GOOD], [GOOD], [GOOD]) as server, kind.client(server.url) as client:
        for count in range(3):
            if count < 2:
                result = client.infer("m", INPUTS)
                assert np.array_equal(result["y"], VALUES)
            else:
                with client.stream("m", INPUTS) as events:
                    assert len([*events]) == 3
            assert server.has_closed()
    assert server.accepted == 3


@KINDS
def test_values_as_json_and_windows_of_a_list_are_sent_again(kind: Kind) -> None:
    rows = Rows("FP32", (2, 2), [np.zeros((1, 2), np.float32)] * 2)
    with scripted([GOOD, _hang_up], [GOOD, _hang_up], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        client.infer("m", {"x": np.arange(100_000)}, is_binary=False, idempotent=True)
        client.infer("m", {"x": rows}, idempotent=True)
    first, second = (request.partition(b"\r\n\r\n")[2] for request in server.requests[1:])
    assert b"99998,99999]" in first
    assert second.endswith(bytes(16))


@KINDS
def test_the_new_connection_is_not_replaced_again(kind: Kind) -> None:
    with scripted([GOOD, _hang_up], [_reset], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        with pytest.raises(Exception, match=r"without an answer|reset"):
            client.infer("m", INPUTS, idempotent=True)
        client.infer("m", INPUTS)


@KINDS
@pytest.mark.parametrize("piece", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_after_the_first_byte_of_an_answer_nothing_is_sent_again(kind: Kind, piece: bytes) -> None:
    with scripted([GOOD, piece], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        with pytest.raises(Exception, match="connection"):
            client.infer("m", INPUTS)
        client.infer("m", INPUTS)
    assert server.accepted == 2


@KINDS
def test_windows_that_are_made_once_are_not_sent_again(kind: Kind) -> None:
    made = []

    def windows() -> Iterator[np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
        made.append(1)
        yield np.zeros((1, 2), np.float32)

    def hang_up_after_the_window(sock: socket.socket) -> None:
        received = b""
        while not received.endswith(bytes(8)):
            received += sock.recv(1 << 16)

    with scripted([GOOD, hang_up_after_the_window], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        with pytest.raises(Exception, match=r"without an answer|reset|pipe"):
            client.infer("m", {"x": Rows("FP32", (1, 2), windows())})
        client.infer("m", INPUTS)
    assert made == [1]


@pytest.mark.slow
@KINDS
def test_time_that_is_over_is_not_given_once_more(kind: Kind) -> None:
    with scripted([GOOD, b"", 0.4]) as server, kind.client(server.url, timeout=0.2) as client:
        client.infer("m", INPUTS)
        with pytest.raises(TimeoutError):
            client.infer("m", INPUTS)
    assert server.accepted == 1


# The policy alone


class _Waiter:
    """Somebody who waits."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True


def test_places_go_to_those_who_have_waited_longest() -> None:
    pool = ConnectionPool(2, 60)
    assert pool.enter(_Waiter) is None
    assert pool.enter(_Waiter) is None
    first, second, third = waiters = [_Waiter() for _ in range(3)]
    assert [pool.enter(lambda waiter=waiter: waiter) for waiter in waiters] == waiters  # type: ignore[misc]
    pool.give_up(second)
    pool.leave()
    assert (first.is_set, second.is_set, third.is_set) == (True, False, False)
    assert pool.enter(_Waiter) is not None, "nobody overtakes those who wait"
    pool.give_up(first)  # whose place had come already
    assert third.is_set
    for _ in range(3):
        pool.leave()
    assert pool.enter(_Waiter) is None


def _connection() -> tuple[Connection, socket.socket]:
    left, right = socket.socketpair()
    return Connection(left, Limits(), is_paced=False), right


def test_the_connection_that_was_used_last_is_taken_first_and_dead_ones_never() -> None:
    pool = ConnectionPool(4, 10)
    pairs = [_connection() for _ in range(4)]
    for time_, (connection, _) in enumerate(pairs):
        pool.give_back(connection, float(time_), is_good=True)
    pairs[3][1].close()
    assert pool.take(9.0) is pairs[2][0]
    assert pairs[3][0].socket.fileno() == -1
    pairs[1][1].send(b"what nobody asked for")
    assert pool.take(10.5) is None, "one has bytes, and the other is too old"
    pool.give_back(pairs[2][0], 11.0, is_good=False)
    assert Counter(connection.socket.fileno() for connection, _ in pairs) == {-1: 4}
    for _, peer in pairs:
        peer.close()
