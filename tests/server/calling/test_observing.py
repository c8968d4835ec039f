"""Observing: one record for each request, whichever way it goes and however it ends."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import NEED_TURN, ErrorCode, LocalProtocolError, Rows, Windows
from streamcodec.embedding.frontend import Frontend
from streamcodec.runtime.observation import Observers, client_of
from streamcodec.server import ServerOptions, open_unix_listener
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import (
    Ending,
    InferenceRequest,
    Model,
    ModelRegistry,
    Observer,
    RequestRecord,
    ServerLoad,
    Service,
)
from tests.server.connection.test_express import OrdinaryWay, sent_by
from tests.server.lanes import eventually
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request, post
from tests.waiting import until

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
SECONDS = 60


class Recording(Observer):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, RequestRecord, str]] = []
        self.records: list[RequestRecord] = []
        self.load: Callable[[], ServerLoad] | None = None
        self._has_ended = threading.Semaphore(0)

    def server_begun(self, load: Callable[[], ServerLoad]) -> None:
        self.load = load

    def request_begun(self, request: RequestRecord) -> None:
        self._keep("begun", request)

    def call_begun(self, request: RequestRecord) -> None:
        self._keep("call begun", request)

    def call_ended(self, request: RequestRecord) -> None:
        self._keep("call ended", request)

    def request_ended(self, request: RequestRecord) -> None:
        self._keep("ended", request)
        self.records.append(request)
        self._has_ended.release()

    def next(self) -> RequestRecord:
        """Wait for the next end."""
        assert self._has_ended.acquire(timeout=SECONDS)
        return self.records.pop(0)

    def of(self, request: RequestRecord) -> list[str]:
        return [name for name, record, _ in self.told if record is request]

    def _keep(self, name: str, request: RequestRecord) -> None:
        self.told.append((name, request, threading.current_thread().name))


def _fail(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    msg = "as it is meant to"
    raise ValueError(msg)


async def _later(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    await anyio.lowlevel.checkpoint()
    return request.inputs


def _rows(request: InferenceRequest) -> Mapping[str, Any]:
    def windows() -> Iterator[np.ndarray[Any, Any]]:
        yield np.zeros((1, 1 << 20), np.uint8)
        if request.inputs["x"].size > 1:
            yield np.zeros((1, 1 << 20), np.uint8)
        msg = "amid its answer"
        raise ValueError(msg)

    return {"y": Rows("UINT8", (3, 1 << 20), windows())}


def _wait(gate: threading.Event, request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    assert gate.wait(SECONDS)
    return request.inputs


def _models() -> ModelRegistry:
    return ModelRegistry.of(
        [
            Model(name="quick", predict=lambda request: request.inputs, is_inline=True),
            Model(name="threaded", predict=lambda request: request.inputs, versions=("3",)),
            Model(name="later", predict=_later),
            Model(name="fails", predict=_fail),
            Model(name="fails-quickly", predict=_fail, is_inline=True),
            Model(name="rows", predict=_rows),
        ]
    )


def _with_id(model: str) -> bytes:
    return post(b'{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}', model=model)


CALL = ["begun", "call begun", "call ended", "ended"]
WAYS: dict[str, tuple[bytes, tuple[Any, ...], list[str]]] = {
    "quick": (_with_id("quick"), ("quick", "1", "7", 200, None), CALL),
    "quick binary": (infer_request("quick"), ("quick", "1", None, 200, None), CALL),
    "threaded": (_with_id("threaded"), ("threaded", "3", "7", 200, None), CALL),
    "failing": (_with_id("fails"), ("fails", "1", "7", 500, None), CALL),
    "failing quickly": (infer_request("fails-quickly"), ("fails-quickly", "1", None, 500, None), CALL),
    "health": (GET_LIVE, (None, None, None, 200, None), ["begun", "ended"]),
    "about": (head("/v2/models/quick", method="GET"), ("quick", None, None, 200, None), ["begun", "ended"]),
    "about a version": (
        head("/v2/models/threaded/versions/3/ready", method="GET"),
        ("threaded", "3", None, 200, None),
        ["begun", "ended"],
    ),
    "no route": (head("/v3", method="GET"), (None, None, None, 404, "not-found"), ["begun", "ended"]),
    "unknown": (head("/v2/models/no", method="GET"), (None, None, None, 404, "not-found"), ["begun", "ended"]),
    "index": (
        head("/v2/repository/index", "Content-Length: 2", "Expect: 100-continue") + b"{}",
        (None, None, None, 200, None),
        ["begun", "ended"],
    ),
    "bad header": (post(b"x", model="quick"), ("quick", "1", None, 400, "invalid-header"), ["begun", "ended"]),
    "late refusal": (
        post(b'{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1,2]}]}', model="quick"),
        ("quick", "1", None, 400, "invalid-data"),
        ["begun", "ended"],
    ),
    "refused by the model": (
        post(
            b'{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],'
            b'"outputs":[{"name":"y","parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}]}',
            model="quick",
        ),
        ("quick", "1", "7", 400, "not-offered"),
        ["begun", "ended"],
    ),
    "no head": (b"\x16", (None, None, None, 400, "invalid-http"), ["begun", "ended"]),
    "CONNECT": (
        b"CONNECT x HTTP/1.1\r\nHost: x\r\n\r\n",
        (None, None, None, 501, "method-not-allowed"),
        ["begun", "ended"],
    ),
    "half a head": (b"GET / HT", (None, None, None, 400, "connection-closed"), ["begun", "ended"]),
    "half a body": (
        post(b"{}", model="quick")[:-1],
        ("quick", "1", None, 400, "truncated"),
        ["begun", "ended"],
    ),
}


def _serve(service: Service, express: RequestCache, message: bytes, size: int) -> tuple[Recording, bytes]:
    """Bring a message in pieces to a session whose clock goes on by a second whenever it is read."""
    recording = Recording()
    observers = Observers([recording], partial(next, itertools.count()))
    session = Session(service, express, Admission(ServerOptions()), None, observers.of("client"))
    sent, taken = b"", 0
    while (step := session.next_event()) is not Step.CLOSE:
        if step is Step.CALL:
            assert session.inference is not None
            session.answer(session.inference.run())
            step = Step.SEND
        if step is Step.SEND:
            sent += sent_by(session)
            session.outgoing = []
            session.has_sent()
        elif step is NEED_TURN:
            session.work()
        elif taken < len(message):
            taken += session.connection.feed(message[taken : taken + size])
        else:
            session.receive_eof()
    session.observed(is_whole=False)
    return recording, sent


@pytest.mark.parametrize("size", [1 << 20, 1, 7])
@pytest.mark.parametrize("express", [RequestCache, OrdinaryWay])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_has_its_record(
    way: str, express: type[RequestCache], size: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    message, expected, told = WAYS[way]
    service = Service(_models())
    recording, sent = _serve(service, express(service), message, size)
    (record,) = recording.records
    found = (record.model, record.version, record.request_id, record.status, record.code)
    assert found == expected
    assert recording.of(record) == told
    assert record.bytes_in == len(message)
    assert record.ending is Ending.COMPLETE
    assert record.client == "client"
    assert isinstance(record.cause, ValueError) is way.startswith("failing")
    has_head = record.code not in {ErrorCode.INVALID_HTTP, ErrorCode.METHOD_NOT_ALLOWED} and way != "half a head"
    assert record.method == (message.split()[0].decode() if has_head else None)
    assert record.target == (message.split()[1].decode() if has_head else None)
    answer = sent.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % record.status if record.status else b"?")
    parts = (record.body_seconds, record.waiting_seconds, record.model_seconds, record.send_seconds)
    assert record.seconds == sum(parts) > 0
    assert (record.model_seconds > 0) is (told is CALL)


@pytest.mark.parametrize("express", [RequestCache, OrdinaryWay])
@pytest.mark.parametrize("size", [1 << 20, 1])
def test_requests_of_one_connection_have_a_record_each(express: type[RequestCache], size: int) -> None:
    service = Service(_models())
    refused = post(b"x" * 100, model="no")
    messages = [infer_request("quick"), GET_LIVE, refused, _with_id("threaded"), infer_request("quick")]
    recording, _ = _serve(service, express(service), b"".join(messages), size)
    assert [record.status for record in recording.records] == [200, 200, 404, 200, 200]
    # Of what is refused by its head, the body comes later, and is nobody's.
    wanted = [len(message) for message in messages]
    wanted[2] -= 0 if size > 1 else 100
    found = [record.bytes_in for record in recording.records]
    assert found[:2] + found[3:] == wanted[:2] + wanted[3:]
    assert wanted[2] - 100 <= found[2] <= wanted[2]


def test_the_record_of_a_known_head_has_its_own_fields() -> None:
    service = Service(_models())
    requests = [infer_request("quick", f"traceparent: 00-{number}") for number in range(3)]
    recording, _ = _serve(service, RequestCache(service), b"".join(requests), 1 << 20)
    assert [record.field(b"traceparent") for record in recording.records] == [[b"00-0"], [b"00-1"], [b"00-2"]]


@pytest.mark.parametrize("message", [b"", b"\r\n", GET_LIVE])
def test_an_end_without_a_request_has_no_record(message: bytes) -> None:
    service = Service(_models())
    recording, _ = _serve(service, RequestCache(service), message, 1 << 20)
    assert len(recording.records) == (message == GET_LIVE)


@pytest.mark.parametrize("error", [ValueError, SystemExit, MemoryError])
def test_an_observer_that_raises_is_logged_once(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    class Raising(Recording):
        def _keep(self, *_: object) -> None:
            raise error

    good = Recording()
    with server_here(_models(), observer=[Raising(), good]) as (_, address), Wire(address) as wire:
        for model in ("quick", "threaded", "later"):
            assert wire.send(infer_request(model)).response().status == 200
            assert good.of(good.next()) == CALL
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


@BACKENDS
def test_calls_are_told_where_they_are_made(backend: str) -> None:
    recording = Recording()
    with server_here(_models(), backend=backend, observer=recording) as (_, address), Wire(address) as wire:
        client = "{}:{}".format(*wire.sock.getsockname())
        for model, is_loop in (("quick", True), ("later", True), ("threaded", False)):
            answer = wire.send(infer_request(model)).response()
            record = recording.next()
            threads = {name: thread for name, told, thread in recording.told if told is record}
            assert threads["call begun"] == threads["call ended"]
            assert (threads["begun"] == threads["call begun"]) is is_loop
            assert (record.client, record.status, record.model) == (client, 200, model)
            assert record.bytes_out > len(answer.body) + 100
            assert 0 < record.model_seconds <= record.seconds < SECONDS


@BACKENDS
@pytest.mark.parametrize("count", [1, 2])
def test_an_answer_that_is_cut(backend: str, count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    recording = Recording()
    with server_here(_models(), backend=backend, observer=recording) as (_, address), Wire(address) as wire:
        wire.send(infer_request("rows", count=count))
        with pytest.raises(ConnectionError):
            wire.response()
        record = recording.next()
    assert (record.status, record.ending, type(record.cause)) == (200, Ending.CUT, ValueError)
    assert count << 20 <= record.bytes_out < (count + 1) << 20


@BACKENDS
@pytest.mark.parametrize("is_inline", [False, True])
def test_an_answer_is_cut_because_of_the_model_if_its_rows_are_too_few(
    backend: str, is_inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    short = Model(name="m", predict=lambda _: {"y": Rows("FP32", (2,), [np.ones(1, "<f4")])}, is_inline=is_inline)
    recording = Recording()
    with (
        server_here(ModelRegistry.of([short]), backend=backend, observer=recording) as (_, address),
        Wire(address) as wire,
    ):
        wire.send(infer_request("m"))
        with pytest.raises(ConnectionError):
            wire.response()
        record = recording.next()
    assert (record.status, record.ending, type(record.cause)) == (200, Ending.CUT, LocalProtocolError)


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize(
    "sent", [b"GET /v2", infer_request("threaded")[:-1], infer_request("threaded", count=1 << 20)[:-9]]
)
def test_a_client_that_leaves_amid_its_request(backend: str, sent: bytes) -> None:
    recording = Recording()
    with server_here(_models(), backend=backend, observer=recording) as (_, address):
        with Wire(address) as wire:
            wire.send(GET_LIVE).response()
            recording.next()
            wire.send(sent)
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            threading.Event().wait(0.3)
        record = recording.next()
    assert (record.status, record.ending, record.bytes_in) == (None, Ending.CLIENT_LEFT, len(sent))


def test_requests_that_the_server_gives_up() -> None:
    gate, recording = threading.Event(), Recording()
    registry = ModelRegistry.of([Model(name="m", predict=partial(_wait, gate))])
    options = ServerOptions(model_timeout=0.2, shutdown_timeout=0.1, head_timeout=0.2)
    with server_here(registry, options, observer=recording) as (_, address):
        with Wire(address) as wire:
            assert wire.send(infer_request("m")).response().status == 504
        record = recording.next()
        assert (record.status, record.ending, recording.of(record)[-1]) == (504, Ending.COMPLETE, "ended")
        assert record.model_seconds >= 0.1
        with Wire(address) as wire:
            assert wire.send(b"GET ").response().status == 408
        assert (recording.next().code, record.method) == (ErrorCode.TOO_SLOW, "POST")
        gate.set()
        assert eventually(lambda: len(recording.of(record)) == 4)
    assert recording.of(record) == ["begun", "call begun", "ended", "call ended"]


def test_a_connection_without_a_place() -> None:
    recording = Recording()
    with server_here(_models(), observer=recording) as (server, address):
        server._admission.enter = lambda *_: False  # type: ignore[method-assign]  # noqa: SLF001 - as if all were taken
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 503
        record = recording.next()
    assert (record.status, record.method, record.ending, record.bytes_in) == (503, None, Ending.COMPLETE, 0)
    assert record.bytes_out > 100


def test_waiting_for_memory_is_waiting() -> None:
    recording, gate = Recording(), threading.Event()
    registry = ModelRegistry.of([Model(name="m", predict=partial(_wait, gate))])
    options = ServerOptions(max_memory_bytes=10_000, budget_timeout=0.2)
    with server_here(registry, options, observer=recording) as (server, address), Wire(address) as first:
        first.send(infer_request("m", count=2000))
        until(lambda: server.load().busy_threads == 1)
        with Wire(address) as second:
            assert second.send(infer_request("m", count=2000)).response().status == 503
        record = recording.next()
        gate.set()
        assert first.response().status == 200
    assert 0.15 < record.waiting_seconds <= record.seconds


def test_an_observation_begins_as_a_record_does() -> None:
    """It is made by hand."""
    observation = Observers([], lambda: 1.5).of("client")(7)
    record = RequestRecord("client", observation.started)
    names = [name for name in RequestRecord.__slots__ if name != "__weakref__"]
    assert [getattr(observation, name) for name in names] == [getattr(record, name) for name in names]
    assert (observation.offset, observation.has_begun) == (7, False)


def test_the_time_of_day_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    times, days = iter([10.0, 10.0, 10.5, 11.5, 11.5]), iter([1000.0, 5000.0])
    monkeypatch.setattr("streamcodec.runtime.observation.time.time", partial(next, days))
    observe = Observers([], partial(next, times)).of("client")
    assert [observe(0).started for _ in range(3)] == [1000.0, 1000.5, 5000.0]


def test_clients_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = socket.socketpair()
    with left, right:
        if hasattr(socket, "SO_PEERCRED"):
            assert client_of(left) == f"unix:uid={os.getuid()},pid={os.getpid()}"
        monkeypatch.setattr("streamcodec.runtime.observation._PEER_CREDENTIALS", None)
        assert client_of(left) == "unix"
    assert client_of(left) == ""


@pytest.mark.parametrize("name", ["s", "ab", "a name"])
def test_the_name_that_a_client_gives_its_unix_socket_is_not_shown(name: str, tmp_path: Path) -> None:
    """It may be any text, and look like an address; a name of two letters used to."""
    with open_unix_listener(tmp_path / "server") as listener, socket.socket(socket.AF_UNIX) as client:
        with contextlib.chdir(tmp_path):
            client.bind(name)
        client.connect(listener.path)
        served, _ = listener.accept()
        with served:
            assert client_of(served) in {"unix", f"unix:uid={os.getuid()},pid={os.getpid()}"}


def test_a_client_of_ipv6() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("there is no IPv6 here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        served, _ = listener.accept()
        with served:
            assert client_of(served) == f"[::1]:{client.getsockname()[1]}"


@BACKENDS
def test_a_model_does_not_pay_for_the_windows_that_it_waits_for(backend: str) -> None:
    def predict(request: InferenceRequest) -> Mapping[str, Any]:
        windows = cast("Iterable[np.ndarray[Any, Any]]", request.rows["x"].windows)
        return {"y": np.float32(sum(window.sum() for window in windows))}

    recording = Recording()
    registry = ModelRegistry.of([Model(name="m", predict=predict, windows=Windows(max_window_bytes=1 << 16))])
    message = infer_request("m", count=1 << 16)
    with server_here(registry, backend=backend, observer=recording) as (_, address), Wire(address) as wire:
        wire.send(message[:-8])
        threading.Event().wait(1.0)
        assert wire.send(message[-8:]).response().status == 200
        record = recording.next()
    assert recording.of(record) == CALL
    assert record.body_seconds > 0.9
    assert 0 < record.model_seconds < record.seconds - 0.9


def _load_when(is_right: Callable[[ServerLoad], bool], load: Callable[[], ServerLoad]) -> ServerLoad:
    """Return the load as soon as it is right."""
    end = time.monotonic() + SECONDS
    while not is_right(found := load()):
        assert time.monotonic() < end, found
        time.sleep(0.005)
    return found


@BACKENDS
def test_the_load_of_a_server(backend: str) -> None:
    """One request is in its model, one waits for the only thread, and one for memory."""
    gate, recording = threading.Event(), Recording()
    registry = ModelRegistry.of([Model(name="m", predict=partial(_wait, gate))])
    options = ServerOptions(max_memory_bytes=20_000, max_workers=1)
    with (
        server_here(registry, options, backend=backend, observer=recording) as (server, address),
        Wire(address) as first,
        Wire(address) as second,
        Wire(address) as third,
        Wire(address) as idle,
    ):
        assert recording.load is not None
        idle.send(GET_LIVE).response()
        first.send(infer_request("m", count=2000))
        _load_when(lambda load: load.busy_threads == 1, recording.load)
        second.send(infer_request("m", count=2000))
        _load_when(lambda load: load.waiting_for_thread == 1, recording.load)
        third.send(infer_request("m", count=2000))
        load = _load_when(lambda load: load.waiting_for_memory == 1, recording.load)
        assert (load.connections, load.requests_in_progress, load.busy_threads) == (4, 3, 1)
        assert 16_000 <= load.reserved_bytes <= load.max_memory_bytes == 20_000
        assert (load.abandoned_calls, load.unfinished_calls) == (0, 0)
        gate.set()
        assert [wire.response().status for wire in (first, second, third)] == [200] * 3
        load = _load_when(lambda load: not load.requests_in_progress, server.load)
        assert (load.reserved_bytes, load.waiting_for_memory, load.busy_threads) == (0, 0, 0)
    assert server.load().connections == 0


def test_the_load_of_calls_that_were_given_up_and_of_the_pool() -> None:
    gate = threading.Event()
    registry = ModelRegistry.of(
        [Model(name="m", predict=partial(_wait, gate)), Model(name="sink", predict=lambda _: {"y": np.ones(1)})]
    )
    with server_here(registry, ServerOptions(model_timeout=0.05)) as (server, address), Wire(address) as wire:
        assert wire.send(infer_request("sink", count=1 << 18)).response().status == 200
        assert _load_when(lambda load: load.idle_pool_bytes >= 1 << 20, server.load).reused_pool_bytes == 0
        assert wire.send(infer_request("m")).response().status == 504
        load = server.load()
        assert (load.abandoned_calls, load.unfinished_calls, load.busy_threads) == (1, 1, 1)
        gate.set()
        _load_when(lambda load: not load.unfinished_calls, server.load)


def test_the_load_of_a_framework_has_no_connections() -> None:
    recording = Recording()
    frontend = Frontend(Service(_models()), ServerOptions(max_memory_bytes=100), observer=recording)
    assert recording.load is not None
    assert recording.load() == frontend.load()
    load = frontend.load()
    assert (load.connections, load.requests_in_progress, load.max_memory_bytes, load.busy_threads) == (
        None,
        None,
        100,
        0,
    )
    assert frontend.workers.busy == 0
    assert frontend.load() == load
