"""The total limit of a call: it ends what moves now and then, wherever it is, and leaves the caller's own time."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import Tensor, TensorReceived, encode_response
from streamcodec.client import AsyncClient, Timeout
from streamcodec.client.connections.connecting import connect
from streamcodec.transports.timelimit import TimeLimit
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import Step, hung_up, response, scripted

VALUES = np.arange(3, dtype="<f4")
MESSAGE = encode_response([Tensor(name="y", array=VALUES), Tensor(name="z", array=VALUES)], model_name="m")
BODY = b"".join(MESSAGE.buffers)
GOOD = response(BODY, f"Inference-Header-Content-Length: {MESSAGE.header_length}")
LARGE = response(
    b'{"outputs":[{"name":"y","datatype":"INT8","shape":[1000],"parameters":{"binary_data_size":1000}}]}'.ljust(200)
    + bytes(1000),
    "Inference-Header-Content-Length: 200",
)
INPUTS = {"x": [1.0]}
SECONDS = 0.3
BEATS = 200


def _trickle(data: bytes) -> Callable[[socket.socket], None]:
    """Send it again and again, every so often, until the client has gone."""

    def follow(sock: socket.socket) -> None:
        for _ in range(BEATS):
            sock.sendall(data)
            time.sleep(SECONDS / 10)

    return follow


def _sip(sock: socket.socket) -> None:
    """Read a little every so often, until the client has gone."""
    for _ in range(BEATS):
        if not sock.recv(1 << 16):
            return
        time.sleep(SECONDS / 10)


@contextmanager
def _ends_in_time(text: str = r"has not ended within its total_timeout of 0\.3 seconds") -> Iterator[None]:
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=text):
        yield
    assert time.monotonic() - start > SECONDS * 0.9


TRICKLES: dict[str, list[Step]] = {
    "interim responses": [b"", _trickle(b"HTTP/1.1 100 Continue\r\n\r\n")],
    "early hints": [b"", _trickle(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")],
    "a head": [b"HTTP/1.1 200 OK\r\nX: ", _trickle(b"y")],
    "a header": [response(b"", "Content-Length: 100000", is_counted=False), _trickle(b" ")],
    "a tensor": [LARGE[:-BEATS], _trickle(b"\0")],
    "chunks": [response(b"", "Transfer-Encoding: chunked", is_counted=False), _trickle(b"1\r\n \r\n")],
    "an error": [response(b"", "Content-Length: 100000", status="500 No", is_counted=False), _trickle(b" ")],
}


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("case", TRICKLES)
def test_what_comes_now_and_then_ends_with_the_total_limit(kind: Kind, case: str) -> None:
    with scripted(TRICKLES[case]) as server, kind.client(server.url, total_timeout=SECONDS) as client, _ends_in_time():
        client.infer("m", INPUTS)


@pytest.mark.slow
@KINDS
def test_documents_and_health_checks_have_the_total_limit_too(kind: Kind) -> None:
    script = TRICKLES["interim responses"]
    for method in ("server_metadata", "is_server_live"):
        with scripted(script) as server, kind.client(server.url, total_timeout=SECONDS) as client, _ends_in_time():
            client.call(method)


@pytest.mark.slow
@KINDS
def test_what_is_taken_now_and_then_ends_with_the_total_limit(kind: Kind) -> None:
    large = np.zeros(64 << 20, np.uint8)
    with scripted([_sip]) as server, kind.client(server.url, total_timeout=SECONDS) as client, _ends_in_time():
        client.infer("m", {"x": large})


@pytest.mark.slow
@KINDS
def test_a_call_can_have_a_limit_of_its_own(kind: Kind) -> None:
    with scripted(TRICKLES["a head"]) as server, kind.client(server.url) as client, _ends_in_time():
        client.infer("m", INPUTS, total_timeout=SECONDS)
    with scripted(TRICKLES["a head"]) as server, kind.client(server.url) as client, _ends_in_time():
        client.call("infer_raw", "m", [1.0], total_timeout=SECONDS)
    with (
        scripted(TRICKLES["a head"]) as server,
        kind.client(server.url) as client,
        _ends_in_time(),
        client.stream("m", INPUTS, total_timeout=SECONDS) as events,
    ):
        list(events)


@KINDS
@pytest.mark.parametrize("total_timeout", [None, math.inf])
def test_there_need_be_no_limit(kind: Kind, total_timeout: float | None) -> None:
    with scripted([GOOD]) as server, kind.client(server.url, timeout=None, total_timeout=total_timeout) as client:
        assert client.infer("m", INPUTS, total_timeout=math.inf)["y"].tolist() == VALUES.tolist()


@pytest.mark.slow
@KINDS
def test_the_time_that_the_caller_takes_between_two_events_does_not_count(kind: Kind) -> None:
    found = []
    with (
        scripted([GOOD]) as server,
        kind.client(server.url, total_timeout=5 * SECONDS) as client,
        client.stream("m", INPUTS) as events,
    ):
        for event in events:
            time.sleep(2 * SECONDS)
            found += [event.spec.name] if isinstance(event, TensorReceived) else []
    assert found == ["y", "z"]


@pytest.mark.slow
@KINDS
def test_without_progress_the_other_limit_ends_a_call_first(kind: Kind) -> None:
    with (
        scripted([b"", hung_up]) as server,
        kind.client(server.url, timeout=0.1, total_timeout=60) as client,
        pytest.raises(TimeoutError) as caught,
    ):
        client.infer("m", INPUTS)
    assert "total_timeout" not in str(caught.value)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"total_timeout": SECONDS}, r"has not ended within its total_timeout of 0\.3 seconds"),
        ({"timeout": Timeout(connect=SECONDS)}, r"no connection to nobody\.invalid:80 within 0\.3 seconds"),
    ],
    ids=["in all", "of connecting"],
)
def test_looking_up_a_name_ends_with_both_limits(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, times: dict[str, Any], text: str
) -> None:
    actual, is_over = socket.getaddrinfo, threading.Event()

    def slow(*arguments: object, **options: object) -> object:
        if options.get("flags") == socket.AI_NUMERICHOST:
            return actual(*arguments, **options)  # type: ignore[arg-type] # as they come
        is_over.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with kind.client("http://nobody.invalid", **times) as client:
        with _ends_in_time(text):
            client.infer("m", INPUTS)
        is_over.set()  # an event loop waits for its threads before it ends


@pytest.mark.slow
@KINDS
def test_connecting_ends_with_the_total_limit(kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:  # until the system takes no more
            sock.setblocking(False)
            sock.connect_ex(address)
        time.sleep(0.05)
        with kind.client(f"http://127.0.0.1:{address[1]}", total_timeout=SECONDS) as client, _ends_in_time():
            client.infer("m", INPUTS)
        for sock in waiting:
            sock.close()


def test_a_name_that_is_found_by_a_thread_is_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect("localhost", port, timeout=None, limit=TimeLimit(None)).close()
        connect("localhost", port, timeout=5, limit=TimeLimit(5)).close()
    with pytest.raises(ConnectionRefusedError):
        connect("127.0.0.1", port, timeout=5, limit=TimeLimit(5))
    with pytest.raises(socket.gaierror):
        connect("nobody.invalid", port, timeout=5, limit=TimeLimit(5))


def test_a_connection_attempt_that_is_interrupted_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    class Interrupted(socket.socket):
        def connect(self, _: object) -> None:
            made.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(socket, "socket", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        connect("127.0.0.1", 1, timeout=None, limit=TimeLimit(None))
    assert made[0].fileno() == -1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_waiting_for_the_calls_of_other_tasks_counts(backend: str) -> None:
    async def main(url: str) -> None:
        async with AsyncClient(url, max_connections=1) as client, client.stream("m", INPUTS) as events:
            await anext(events)

            async def other() -> None:
                with _ends_in_time():
                    await client.infer("m", INPUTS, total_timeout=SECONDS)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)

    with scripted([GOOD]) as server:
        anyio.run(main, server.url, backend=backend)


@pytest.mark.parametrize("seconds", [None, math.inf])
def test_no_limit_is_for_ever(seconds: float | None) -> None:
    limit = TimeLimit(seconds)
    assert limit.left == math.inf
    assert limit.at_most(None) is None
    assert limit.at_most(2) == 2
    with limit.paused():
        pass
    assert limit.left == math.inf
    assert "nothing has moved for 2 seconds" in str(limit.too_long(2))


def test_a_limit_is_over_at_its_end_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("streamcodec.transports.timelimit.time.monotonic", lambda: now)
    limit = TimeLimit(0.05)
    assert limit.left == pytest.approx(0.05)
    assert limit.at_most(1) == pytest.approx(0.05)
    with limit.paused():
        now += 0.1
    assert limit.left == pytest.approx(0.05)
    now += 0.04
    assert "nothing has moved" in str(limit.too_long(2))
    now += 0.0095  # uvloop's timers count milliseconds
    assert "total_timeout" in str(limit.too_long(2))
    now += 0.01
    with pytest.raises(TimeoutError, match=r"total_timeout of 0\.05"):
        limit.at_most(None)
    assert "total_timeout" in str(limit.too_long(2))
