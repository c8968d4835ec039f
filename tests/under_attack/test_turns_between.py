"""Whoever keeps a server or a guard from waiting leaves others their turns: each kind of answer, without a clock.

Another task of the same loop notes how much of the processor's time the loop's thread has used between two of its own
turns. Other processes do not matter to that. The bound is ten times what a turn may take, and a third of what one
connection took that was never waited for.
"""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint

from streamcodec.guard import Guard
from streamcodec.server import Server, open_listener
from streamcodec.service import Service
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import TIMEOUT
from tests.under_attack.acts import Address
from tests.under_attack.matrix import KINDS, TINY, in_tiny_chunks
from tests.under_attack.messages import get

MOST_SECONDS = 0.1
_BYTES = 1 << 20
_MOST_REQUESTS = 3000
_CHUNKS = 100_000


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def _watched(make: Any, backend: str) -> Iterator[tuple[Address, list[float]]]:  # noqa: ANN401 - a server or a guard
    """Serve, and note the CPU time between the turns of another task of the loop."""
    seconds: list[float] = []
    has_ended = threading.Event()
    listener = open_listener("127.0.0.1", 0)
    address = listener.getsockname()

    async def tick() -> None:
        while not has_ended.is_set():
            began = time.thread_time()
            await checkpoint()
            seconds.append(time.thread_time() - began)

    settings = {"use_uvloop": True} if backend == "uvloop" else None
    with start_blocking_portal("asyncio" if settings else backend, settings) as portal:
        served = portal.call(make)
        serving = portal.start_task_soon(served.serve, listener)
        ticking = portal.start_task_soon(tick)
        gc.collect()
        gc.disable()  # of all that the tests have made
        try:
            yield address, seconds
        finally:
            gc.enable()
            has_ended.set()
            ticking.result(TIMEOUT)
            portal.call(served.stop)
            serving.result(TIMEOUT)


def _pump(address: Address, data: bytes, count: int, end: bytes = b"HTTP/1.1 ") -> None:
    """Send all at once, and read until so many answers have begun, or ended."""
    with socket.create_connection(address, TIMEOUT) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        found, kept = 0, b""
        while found < count:
            chunk = sock.recv(1 << 20)
            assert chunk, f"{found} of {count} answers"
            kept += chunk
            found += kept.count(end)
            kept = kept[-len(end) + 1 :]
        sender.join()


def _server() -> Server:
    return Server(Service(models()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_need_not_wait(backend: str, kind: str) -> None:
    one = KINDS[kind]
    count = min(_MOST_REQUESTS, max(2, _BYTES // len(one)))
    with _watched(_server, backend) as (address, seconds):
        _pump(address, one * count, count)
    assert max(seconds) < MOST_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_guard_that_need_not_wait(backend: str, kind: str) -> None:
    one = KINDS[kind]
    count = max(2, min(_MOST_REQUESTS, _BYTES // len(one)) // 4)
    with server_here(models()) as (_, (host, port)):
        guard = partial(Guard, f"http://{host}:{port}")
        with _watched(guard, backend) as (address, seconds):
            _pump(address, one * count, count)
    assert max(seconds) < MOST_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("front", ["server", "guard"])
def test_an_upload_in_tiny_chunks(backend: str, front: str) -> None:
    with server_here(models()) as (_, (host, port)):
        guard = partial(Guard, f"http://{host}:{port}")
        with _watched(guard if front == "guard" else _server, backend) as (address, seconds):
            _pump(address, in_tiny_chunks(_CHUNKS, "identity"), 1)
    assert max(seconds) < MOST_SECONDS


@pytest.mark.slow
def test_an_answer_in_tiny_chunks(backend: str) -> None:
    with _behind() as url, _watched(partial(Guard, url), backend) as (address, seconds):
        _pump(address, get(TINY), 1, b"\r\n0\r\n\r\n")
    assert max(seconds) < MOST_SECONDS


@contextmanager
def _behind() -> Iterator[str]:
    """Run a server that answers once, in chunks of one byte."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as sock:
                sock.recv(1 << 16)
                chunks = b"1\r\nx\r\n" * _CHUNKS
                sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
                sock.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
