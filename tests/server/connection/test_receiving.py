"""Receiving: what an endpoint bounds, attacked: time, memory, and those who share it."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import anyio
import numpy as np
import pytest

from streamcodec import LimitExceededError, MessageError, OutOfMemoryError, RemoteProtocolError, encode_request
from streamcodec.asgi import SharedBudget, receive_request
from streamcodec.asgi.app import AsgiPeer, Message, Scope, head_of
from streamcodec.embedding.endpoint import SHARED_BUDGET, in_shared_pool, options_of, receive_from
from streamcodec.engine.limits import DEFAULT_LIMITS
from streamcodec.runtime.options import ServerOptions
from streamcodec.service.request.reception import ReceivedRequest, Reception
from tests.asgi.client import Exchanged, scope_of
from tests.asgi.test_app import infer, on_both, run

X: Final = np.arange(50_000, dtype=np.float32)
SMALL: Final = np.arange(16, dtype=np.float32)


class Trickle:
    """A client that sends so many bytes, then pauses, again and again."""

    def __init__(self, body: bytes, nbytes: int, seconds: float, at_once: int = 0) -> None:
        self._pieces = deque([body[:at_once]])
        self._pieces.extend(body[start : start + nbytes] for start in range(at_once, len(body), nbytes))
        self._seconds = seconds
        self._due = 0.0
        self.received = 0

    async def receive(self) -> Message:
        if self.received:
            self._due = self._due or anyio.current_time() + self._seconds
            await anyio.sleep_until(self._due)  # which may be cancelled, and go on later
        self._due = 0.0
        self.received += 1
        return {"type": "http.request", "body": self._pieces.popleft(), "more_body": bool(self._pieces)}


async def receive_with(
    scope: Scope, receive: Callable[[], Any], budget: SharedBudget, options: ServerOptions
) -> ReceivedRequest:
    """Receive with limits that endpoints do not choose."""
    reception = Reception(head_of(scope, DEFAULT_LIMITS), place=in_shared_pool, paced=True)
    return await receive_from(AsgiPeer(scope, receive, _no_send), reception, budget, options)


async def _no_send(_: Message) -> None:
    """Send nothing."""


def chunked(scope: Scope) -> Scope:
    fields = [field for field in scope["headers"] if field[0] != b"content-length"]
    return {**scope, "headers": [*fields, (b"transfer-encoding", b"chunked")]}


@on_both
def test_bytes_that_come_one_by_one_are_not_enough(backend: str) -> None:
    scope, body = infer(X)
    budget = SharedBudget(1 << 20)

    async def main() -> None:
        client = Trickle(body, 1, 0.005, at_once=len(body) // 2)
        with anyio.fail_after(60), pytest.raises(RemoteProtocolError, match="body of the request comes") as caught:
            await receive_request(scope, client.receive, timeout=0.1, min_rate=1e7, budget=budget)
        assert caught.value.status_hint == 408

    run(main, backend=backend)
    assert budget.budget.reserved == 0


@on_both
def test_a_json_header_that_comes_byte_by_byte_has_an_end(backend: str) -> None:
    scope, body = infer(X)
    options = ServerOptions(header_timeout=0.2, read_timeout=0.1)

    async def main() -> None:
        client = Trickle(body, 1, 0.01)
        with anyio.fail_after(60), pytest.raises(RemoteProtocolError, match="JSON header of the request") as caught:
            await receive_with(scope, client.receive, SharedBudget(1 << 20), options)
        assert caught.value.status_hint == 408

    run(main, backend=backend)


@on_both
def test_a_client_that_is_quick_enough_has_its_time(backend: str) -> None:
    scope, body = infer(X)

    async def main() -> None:
        client = Trickle(body, 20_000, 0.03)
        received = await receive_request(scope, client.receive, timeout=5.0, min_rate=1e4)
        assert np.array_equal(received.inputs["x"], X)

    run(main, backend=backend)


def test_without_a_time_out_there_is_no_limit_of_time() -> None:
    options = options_of(None, 1e9)
    assert (options.read_timeout, options.min_rate) == (float("inf"), 0.0)
    scope, body = infer(SMALL)

    async def main() -> None:
        received = await receive_request(scope, Trickle(body, 100, 0.02).receive, timeout=None, min_rate=1e9)
        assert np.array_equal(received.inputs["x"], SMALL)

    run(main)


def test_memory_is_counted_as_long_as_the_request_exists() -> None:
    scope, body = infer(X)
    budget = SharedBudget(1 << 20)
    for length in (scope, chunked(scope)):
        gc.disable()
        try:
            received = run(receive_with, length, Exchanged(deque([body])).receive, budget, ServerOptions())
            assert budget.budget.reserved == len(body)
            x = received.inputs["x"]
            del received
            assert budget.budget.reserved == 0
        finally:
            gc.enable()
        assert np.array_equal(x, X)


def test_what_is_made_of_the_body_counts_too() -> None:
    budget = SharedBudget(1 << 20)
    message = encode_request({"x": np.array([b"a", b"bc"] * 50, object)})
    body = b"".join(message.buffers)
    scope = scope_of("POST", "/", [(name.encode(), value.encode()) for name, value in message.headers])
    received = run(receive_with, scope, Exchanged(deque([body])).receive, budget, ServerOptions())
    assert budget.budget.reserved >= len(body) + 100 * 8
    del received
    assert budget.budget.reserved == 0


def test_a_request_larger_than_the_budget_is_refused_before_its_body() -> None:
    scope, body = infer(X)
    client = Exchanged(deque([body]))
    budget = SharedBudget(100_000)
    with pytest.raises(LimitExceededError) as caught:
        run(receive_with, scope, client.receive, budget, ServerOptions())
    assert caught.value.status_hint == 413
    assert client.received == 0


@pytest.mark.parametrize("has_field", [True, False])
def test_a_long_json_header_is_refused_when_it_takes_more_than_the_budget(has_field: bool) -> None:
    body = b'{"inputs":[],"parameters":{"x":"' + b"x" * 200_000
    fields = [(b"inference-header-content-length", b"300000")] if has_field else []
    budget = SharedBudget(100_000)
    with pytest.raises(MessageError) as caught:
        run(
            receive_with,
            chunked(scope_of("POST", "/", fields)),
            Trickle(body, 4096, 0.0).receive,
            budget,
            ServerOptions(),
        )
    assert caught.value.status_hint == 413
    assert budget.budget.reserved == 0


@pytest.mark.slow
@on_both
def test_those_who_find_no_memory_wait_or_are_told_to_come_back(backend: str) -> None:
    scope, body = infer(X)
    budget = SharedBudget(300 << 10)
    options = ServerOptions(budget_timeout=0.2)

    async def main() -> None:
        first = await receive_with(scope, Exchanged(deque([body])).receive, budget, options)
        with pytest.raises(OutOfMemoryError) as caught:
            await receive_with(scope, Exchanged(deque([body])).receive, budget, options)
        assert caught.value.status_hint == 503
        received: list[ReceivedRequest] = []

        async def wait() -> None:
            received.append(await receive_with(scope, Exchanged(deque([body])).receive, budget, options))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.05)
            assert not received
            del first
        assert np.array_equal(received[0].inputs["x"], X)

    run(main, backend=backend)
    gc.collect()
    assert budget.budget.reserved == 0


@on_both
@pytest.mark.slow
def test_clients_that_only_announce_do_not_keep_others_out(backend: str) -> None:
    scope, body = infer(X)
    budget = SharedBudget(3 * len(body), min_rate=1000.0)
    options = ServerOptions(budget_timeout=20.0, read_timeout=30.0)
    most = 0

    async def main() -> None:
        nonlocal most

        async def announce() -> None:
            client = Trickle(body, 1, 0.5, at_once=300)
            await receive_with(scope, client.receive, budget, options)

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(_forgiving, announce)
            await anyio.sleep(0.1)
            with anyio.fail_after(60):
                received = await receive_with(scope, Exchanged(deque([body])).receive, budget, options)
            most = budget.budget.reserved
            assert np.array_equal(received.inputs["x"], X)
            tasks.cancel_scope.cancel()

    run(main, backend=backend)
    assert most <= budget.budget.max_bytes
    gc.collect()
    assert budget.budget.reserved == 0


async def _forgiving(announce: Callable[[], Any]) -> None:
    try:
        await announce()
    except RemoteProtocolError as error:
        assert error.status_hint == 408  # noqa: PT017 - or it is cancelled


@on_both
def test_a_cancelled_request_gives_its_memory_back(backend: str) -> None:
    scope, body = infer(X)
    budget = SharedBudget(1 << 20)

    async def main() -> None:
        with anyio.move_on_after(0.05):
            await receive_with(scope, Trickle(body, 1000, 1.0, at_once=1000).receive, budget, ServerOptions())
        assert budget.budget.reserved == 0

    run(main, backend=backend)


def test_endpoints_share_a_budget_unless_they_have_their_own() -> None:
    scope, body = infer(X)
    before = SHARED_BUDGET.budget.reserved

    async def main() -> None:
        received = await receive_request(scope, Exchanged(deque([body])).receive)
        assert SHARED_BUDGET.budget.reserved == before + len(body)
        del received

    run(main)
    assert SHARED_BUDGET.budget.reserved == before


@pytest.mark.slow
def test_a_quick_client_keeps_its_memory_while_others_wait() -> None:
    scope, body = infer(np.zeros(1 << 20, np.float32))
    budget = SharedBudget(len(body) + 1000, min_rate=1000.0)
    options = ServerOptions(budget_timeout=20.0)

    async def main() -> None:
        quick = Trickle(body, len(body) // 150, 0.02)  # for 3 s, without a break that is worth a look
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive_with, scope, Exchanged(deque([body[:1000], body[1000:]])).receive, budget, options)
            received = await receive_with(scope, quick.receive, budget, options)
            assert budget.budget._given_up == 0, "it has never had to shrink"  # noqa: SLF001 - shows nowhere else
            assert received.header.tensors[0].nbytes == 4 << 20
            del received

    run(main)
