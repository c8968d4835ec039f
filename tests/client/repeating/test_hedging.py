"""Hedges: a second request beside a slow one; one answer is taken, and nothing is left of the other."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import LocalProtocolError, RemoteProtocolError, Rows
from streamcodec.client import AsyncClient, Client, InferResult, ServerError
from streamcodec.client.exchange import ClientExchange
from streamcodec.client.repeating.hedging import hedged
from streamcodec.engine.limits import DEFAULT_LIMITS
from tests.client.answers.test_answers import GOOD, INPUTS, VALUES
from tests.client.counting import BUSY, Handler, answers, counting
from tests.client.scripted import Scripted, response
from tests.server.wire import TIMEOUT

LOOPS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
SOON = 0.05
"""Seconds before the second request."""
LONG = TIMEOUT
"""The same, if there shall be none."""
REFUSED = response(b'{"error":"no"}', status="400 Bad Request")


def _infer(
    backend: str,
    server: Scripted,
    hedge: float,
    max_connections: int = 10,
    inputs: Mapping[str, Any] = INPUTS,
    **options: Any,  # noqa: ANN401 - those of `infer`
) -> InferResult:
    async def main() -> InferResult:
        async with AsyncClient(server.url, timeout=TIMEOUT, max_connections=max_connections) as client:
            return await client.infer("m", inputs, idempotent=True, hedge=hedge, **options)

    return anyio.run(main, backend=backend)


class _Two:
    """The answers to two requests: each comes when the other request has come, or has been answered."""

    def __init__(self, first: bytes, second: bytes | None) -> None:
        self._first, self._second = first, second
        self.is_answered = threading.Event()
        self.left: list[int] = []

    def slow(self, number: int, sock: socket.socket) -> None:
        """Let the first one have its answer only after the second one."""
        if number == 0:
            assert self.is_answered.wait(TIMEOUT)
            if self._first:
                sock.sendall(self._first)
            elif not sock.recv(1):
                self.left.append(number)
            return
        if self._second is not None:
            sock.sendall(self._second)
        self.is_answered.set()


@LOOPS
def test_the_second_answer_wins_and_the_first_connection_is_closed(backend: str) -> None:
    two = _Two(b"", GOOD)
    out = np.zeros_like(VALUES)
    with counting(two.slow) as server:
        result = _infer(backend, server, SOON, out={"y": out})
    assert result["y"] is out
    assert np.array_equal(out, VALUES)
    assert len(server.requests) == 2
    assert two.left == [0]
    assert len(set(server.requests)) == 1


@LOOPS
def test_a_quick_answer_needs_no_second_request(backend: str) -> None:
    with counting(answers(GOOD)) as server:
        assert np.array_equal(_infer(backend, server, LONG)["y"], VALUES)
    assert len(server.requests) == 1


@LOOPS
@pytest.mark.parametrize("second", [None, BUSY], ids=["breaks", "is refused"])
def test_the_first_answer_comes_although_the_second_attempt_fails(backend: str, second: bytes | None) -> None:
    with counting(_Two(GOOD, second).slow) as server:
        assert np.array_equal(_infer(backend, server, SOON)["y"], VALUES)
    assert len(server.requests) == 2


@LOOPS
def test_the_second_answer_comes_although_the_first_attempt_fails(backend: str) -> None:
    has_second = threading.Event()

    def handle(number: int, sock: socket.socket) -> None:
        if number == 0:
            assert has_second.wait(TIMEOUT)
        else:
            has_second.set()
            time.sleep(2 * SOON)
            sock.sendall(GOOD)

    with counting(handle) as server:
        assert np.array_equal(_infer(backend, server, SOON)["y"], VALUES)
    assert len(server.requests) == 2


@LOOPS
def test_both_fail(backend: str) -> None:
    cases: list[tuple[Handler, type[Exception], int]] = [
        (_Two(BUSY, None).slow, ServerError, 2),
        (_Two(b"", REFUSED).slow, ServerError, 2),  # it is an answer
        (answers(b""), RemoteProtocolError, 1),  # before there was a second one
    ]
    for handle, kind, count in cases:
        with counting(handle) as server, pytest.raises(kind):
            _infer(backend, server, SOON if count > 1 else LONG)
        assert len(server.requests) == count


@LOOPS
def test_each_attempt_may_be_hedged(backend: str) -> None:
    with counting(answers(b"", b"", GOOD)) as server:
        assert np.array_equal(_infer(backend, server, LONG, retries=2)["y"], VALUES)
    assert len(server.requests) == 3


@LOOPS
def test_a_hedge_waits_for_a_place(backend: str) -> None:
    def handle(_: int, sock: socket.socket) -> None:
        time.sleep(4 * SOON)
        sock.sendall(GOOD)

    with counting(handle) as server:
        assert np.array_equal(_infer(backend, server, SOON, max_connections=1)["y"], VALUES)
    assert len(server.requests) == 1


@LOOPS
def test_windows_are_read_by_one_attempt_at_a_time(backend: str) -> None:
    starts: list[int] = []

    class Windows:
        def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
            starts.append(1)
            yield np.zeros((1, 2), np.float32)

    def handle(number: int, sock: socket.socket) -> None:
        if number:
            time.sleep(4 * SOON)
            sock.sendall(GOOD)

    with counting(handle) as server:
        rows = {"x": Rows("FP32", (1, 2), Windows())}
        assert np.array_equal(_infer(backend, server, SOON, inputs=rows, retries=1)["y"], VALUES)
    assert (len(server.requests), len(starts)) == (2, 2), "once without an answer, and again after it"


@LOOPS
def test_the_text_of_large_values_is_made_for_each_attempt(backend: str) -> None:
    with counting(_Two(b"", GOOD).slow) as server:
        _infer(backend, server, SOON, inputs={"x": np.arange(100_000)}, is_binary=False)
    assert len(server.requests) == 2
    assert len(set(server.requests)) == 1


@LOOPS
def test_an_answer_that_is_cut_is_not_made_again_whichever_attempt_had_it(backend: str) -> None:
    with counting(_Two(b"", GOOD[:-1]).slow) as server, pytest.raises(RemoteProtocolError, match="ended"):
        _infer(backend, server, SOON, retries=1)
    assert len(server.requests) == 2


@LOOPS
def test_a_server_that_reads_json_only_is_noticed_by_the_answer_that_has_come_first(backend: str) -> None:
    is_answered = threading.Event()
    metadata = json.dumps({"name": "little", "extensions": []}).encode()

    def handle(number: int, sock: socket.socket) -> None:
        if number == 0:
            assert is_answered.wait(TIMEOUT)
        elif number == 1:
            sock.sendall(response(b"<html>", status="400 Bad Request"))
            is_answered.set()
        elif number == 2:
            sock.sendall(response(metadata))
        else:
            sock.sendall(GOOD)

    with counting(handle) as server:
        assert np.array_equal(_infer(backend, server, SOON, max_connections=2)["y"], VALUES)
    firsts = [request.partition(b" ")[0] for request in server.requests[:4]]
    assert firsts == [b"POST", b"POST", b"GET", b"POST"]
    assert b"Inference-Header-Content-Length" not in server.requests[3]


@LOOPS
def test_two_answers_at_once(backend: str) -> None:
    async def main() -> None:
        both_come = anyio.Event()
        taken: list[ClientExchange] = []

        def attempt(prepare: Callable[[], Awaitable[None]]) -> Callable[[ClientExchange], Awaitable[None]]:
            async def make(exchange: ClientExchange) -> None:
                await prepare()
                assert exchange.on_answer is not None
                exchange.on_answer(200)
                taken.append(exchange)

            return make

        async def come() -> None:
            both_come.set()
            await anyio.lowlevel.checkpoint()

        exchange = ClientExchange("GET", "/", [("Host", "x")], None, DEFAULT_LIMITS)
        winner = await hedged(attempt(both_come.wait), attempt(come), exchange, SOON)
        assert taken == [winner.result()]

    anyio.run(main, backend=backend)


@LOOPS
def test_what_one_attempt_receives_is_not_the_others(backend: str) -> None:
    begun: list[ClientExchange] = []

    async def fail(exchange: ClientExchange) -> None:
        begun.append(exchange)
        await anyio.sleep(2 * SOON)
        raise ConnectionResetError

    async def main() -> None:
        exchange = ClientExchange("GET", "/", [("Host", "x")], None, DEFAULT_LIMITS)
        failed = await hedged(fail, fail, exchange, SOON)
        with pytest.raises(ConnectionResetError):
            failed.result()

    anyio.run(main, backend=backend)
    first, second = begun
    assert first._outputs is not second._outputs  # noqa: SLF001 - a later attempt would hide what they share


def test_who_may_hedge() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(LocalProtocolError, match="hedge needs an AsyncClient"):
        client.infer("m", INPUTS, idempotent=True, hedge=1)

    async def refused(message: str, options: dict[str, Any]) -> None:
        async with AsyncClient("http://127.0.0.1:1") as client:
            with pytest.raises(LocalProtocolError, match=message):
                await client.infer("m", INPUTS, **options)

    anyio.run(refused, "idempotent=True", {"hedge": 1})
    for hedge in (0, -1.0, "1", True):
        anyio.run(refused, "number of seconds", {"hedge": hedge, "idempotent": True})
