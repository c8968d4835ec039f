"""Limits of the server: every field of `Limits` and `ServerOptions` has a reason, and a test at N and N + 1."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import socket
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import Limits, LocalProtocolError
from streamcodec.engine.compression.inflate import FREE_BYTES
from streamcodec.engine.record import field_names
from streamcodec.server import ServerOptions, open_listener
from streamcodec.server.connection.channels import Outbox
from streamcodec.service import InferenceRequest, Model, Service
from streamcodec.service.models.model import Outputs
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request, post

OPTION_FIELDS = [field.name for field in fields(ServerOptions)]

SHOWN_BY = {
    "max_header_bytes": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_json_depth": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_json_values": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_json_text_bytes": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_tensors": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_rank": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_elements": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_tensor_bytes": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_json_tensor_bytes": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_message_bytes": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_bytes_elements": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_element_bytes": "server.memory.test_limits::test_limits_of_a_message_over_a_socket",
    "max_compression_ratio": "server.memory.test_limits::test_compression_ratio",
    "max_head_bytes": "server.memory.test_limits::test_head_bytes",
    "max_head_fields": "server.memory.test_limits::test_head_fields",
    "max_field_bytes": "server.memory.test_limits::test_field_bytes",
    "max_document_bytes": "client.test_documents::test_how_long_a_document_may_be_is_a_limit",
    "max_drain_bytes": "server.memory.test_limits::test_drained_bytes",
    "max_connections": "server.connection.test_patience::test_connections_beyond_the_cap_are_told_when_to_come_back",
    "max_requests_per_connection": "server.memory.test_limits::test_the_last_request_of_a_connection_closes_it",
    "max_pipelined_bytes": "server.memory.test_limits::test_answers_to_a_client_that_does_not_listen",
    "max_workers": "server.memory.test_limits::test_as_many_models_run_at_once_as_there_are_workers",
    "max_windowed_requests": "server.processes.test_workers::test_so_many_requests_may_send_windows_and_no_more",
    "max_memory_bytes": "server.memory.test_budget::test_a_request_as_large_as_the_budget_is_served_a_larger_one_not",
    "max_lane_bytes": "server.memory.test_memory_lane::test_room_for_lanes_is_bounded",
    "budget_timeout": "server.memory.test_budget::test_who_has_waited_in_vain_is_told_to_come_back",
    "idle_timeout": "server.connection.test_patience::test_an_idle_connection_is_closed_without_a_word",
    "handshake_timeout": "server.sockets.test_tls::test_a_handshake_that_does_not_go_on",
    "head_timeout": "server.connection.test_times::test_a_byte_every_so_often_ends_in_408",
    "header_timeout": "server.connection.test_times::test_a_byte_every_so_often_ends_in_408",
    "read_timeout": "server.connection.test_patience::test_a_request_that_stops_is_answered_408",
    "min_rate": "server.connection.test_times::test_a_byte_every_so_often_ends_in_408",
    "request_timeout": "server.connection.test_times::test_a_byte_every_so_often_ends_in_408",
    "model_timeout": "server.connection.test_times::test_a_model_that_does_not_return_is_answered_504_and_counted",
    "write_timeout": "server.connection.test_patience::test_a_client_that_does_not_read_is_given_up",
    "linger_timeout": "server.memory.test_limits::test_a_refused_client_that_never_stops_sending_is_cut_off",
    "shutdown_timeout": "server.connection.test_patience::test_a_request_that_takes_too_long_to_end_is_given_up",
    "drain_delay": "server.processes.test_draining::test_readiness_turns_first_and_everything_is_served",
    "worker_timeout": "server.processes.test_stuck_workers::test_a_stopped_worker_is_replaced",
    "resumable_uploads": "server.memory.test_uploads::test_ten_thousand_begun_uploads_are_bounded",
    "upload_timeout": "server.memory.test_uploads::test_an_upload_that_nobody_resumes_is_dropped_by_itself",
    "upload_dir": "server.memory.test_stored_uploads::test_an_upload_goes_on_after_a_restart",
    "max_upload_dir_bytes": "server.memory.test_stored_uploads::test_uploads_make_room_for_others",
}
"""Where each limit is shown to hold: a module of the tests, and a function in it."""

OFF = {"max_lane_bytes", "resumable_uploads", "upload_dir", "max_upload_dir_bytes"}
"""What is 0 or None by default, and then not offered."""


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_limit_is_shown_by_a_test() -> None:
    assert [*SHOWN_BY] == [*field_names(Limits), *OPTION_FIELDS]
    for place in SHOWN_BY.values():
        module, _, function = place.partition("::")
        assert callable(getattr(importlib.import_module(f"tests.{module}"), function))


@pytest.mark.parametrize("kind", [Limits, ServerOptions])
def test_every_limit_has_its_reason_beside_it(kind: type) -> None:
    source = Path(str(inspect.getsourcefile(importlib.import_module(kind.__module__)))).read_text()
    body = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)).body
    reasons = {
        field.target.id: following.value.value
        for field, following in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }
    assert set(reasons) == set(field_names(kind))
    assert all(len(str(reason)) > 40 for reason in reasons.values())


def test_every_option_is_finite_by_default() -> None:
    for name in OPTION_FIELDS:
        if name not in {"drain_delay", *OFF}:  # a part of another, and 0 by default
            assert 0 < getattr(ServerOptions(), name) < math.inf, name


# What an operator may say


def _options(name: str, value: Any) -> ServerOptions:  # noqa: ANN401 - anything
    return ServerOptions(**{name: value})


COUNTS = [name for name in OPTION_FIELDS if name.startswith("max_") and name not in OFF]
TIMES = [name for name in OPTION_FIELDS if name.endswith(("_timeout", "_rate", "_delay"))]
FROM_ZERO = {
    "min_rate",
    "budget_timeout",
    "linger_timeout",
    "shutdown_timeout",
    "drain_delay",
    "worker_timeout",
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True])
def test_counts_are_integers_above_0(name: str, value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(LocalProtocolError, match=f"{name} must be an integer above 0, not {value!r}"):
        _options(name, value)
    assert getattr(_options(name, 1), name) == 1


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("value", [-0.1, math.nan, "1", None, True])
def test_times_are_numbers(name: str, value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(LocalProtocolError, match=f"{name} must be a number"):
        _options(name, value)
    assert getattr(_options(name, 0.1), name) == 0.1
    assert getattr(_options(name, 2), name) == 2


def test_some_times_may_be_0() -> None:
    assert set(OPTION_FIELDS) == {*COUNTS, *TIMES, *OFF}
    for name in TIMES:
        if name in FROM_ZERO:
            assert getattr(_options(name, 0), name) == 0
        else:
            with pytest.raises(LocalProtocolError, match=f"{name} must be a number above 0, not 0"):
                _options(name, 0)


def test_to_stay_awake_is_no_option_any_more() -> None:
    with pytest.warns(DeprecationWarning, match=r"busy_poll has no effect, and goes in 0\.4\.0"):
        assert ServerOptions(busy_poll=0.1) == ServerOptions()


# `Limits` over sockets: on the short cut and on the ordinary way


def _json(tensor: str) -> bytes:
    return b'{"inputs":[%b]}' % tensor.encode()


def _binary(tensor: str, payload: bytes) -> bytes:
    text = _json(tensor)
    lines = [f"Content-Length: {len(text) + len(payload)}", f"Inference-Header-Content-Length: {len(text)}"]
    return head("/v2/models/identity/infer", *lines) + text + payload


JSON = _json('{"name":"x","datatype":"INT8","shape":[2],"data":[1,2]}')
BINARY = _binary('{"name":"x","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}}', bytes(8))
TEXTS = _json('{"name":"x","datatype":"BYTES","shape":[2],"data":["a","four"]}')
ELEMENTS = _binary(
    '{"name":"x","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":13}}', b"\1\0\0\0a\4\0\0\0four"
)
MANY_VALUES = _json('{"name":"x","datatype":"INT8","shape":[1],"data":[1],"parameters":{"a":[' + "1," * 20_000 + "1]}}")
LONG_NAME = _json('{"name":"%s","datatype":"INT8","shape":[1],"data":[1]}' % ("x" * 40_000))
TWO = _json(
    '{"name":"x","datatype":"INT8","shape":[1],"data":[1]},{"name":"y","datatype":"INT8","shape":[1],"data":[1]}'
)

MESSAGES = [
    ("max_header_bytes", post(JSON), len(JSON), 413),
    ("max_json_depth", post(JSON), 4, 400),
    ("max_json_values", post(MANY_VALUES), 20_009, 413),
    ("max_json_text_bytes", post(LONG_NAME), 40_051, 413),
    ("max_tensors", post(TWO), 2, 413),
    ("max_rank", BINARY, 1, 413),
    ("max_elements", BINARY, 2, 413),
    ("max_tensor_bytes", BINARY, 8, 413),
    ("max_json_tensor_bytes", post(JSON), 2, 413),
    ("max_message_bytes", BINARY, len(BINARY.partition(b"\r\n\r\n")[2]), 413),
    ("max_bytes_elements", ELEMENTS, 2, 413),
    ("max_bytes_elements", post(TEXTS), 2, 413),
    ("max_element_bytes", ELEMENTS, 4, 413),
    ("max_element_bytes", post(TEXTS), 4, 413),
]


def _statuses(limits: Limits, *requests: bytes) -> list[int]:
    """Return the statuses of requests, each over a connection of its own."""
    statuses = []
    with server_here(Service(models(), limits=limits)) as (_, address):
        for request in requests:
            with Wire(address) as wire:
                statuses.append(wire.send(request).response().status)
    return statuses


@pytest.mark.parametrize(("limit", "request_", "at", "status"), MESSAGES, ids=[case[0] for case in MESSAGES])
def test_limits_of_a_message_over_a_socket(limit: str, request_: bytes, at: int, status: int) -> None:
    # The second request finds the head known, and may find the header known.
    assert _statuses(Limits(**{limit: at}), request_, request_) == [200, 200]
    assert _statuses(Limits(**{limit: at - 1}), request_, request_) == [status, status]


def test_compression_ratio() -> None:
    text = JSON + b" " * (8 << 20)
    body = zlib.compress(text)
    ratio = -((FREE_BYTES - len(text)) // len(body))  # the least that is enough
    request = post(body, "Content-Encoding: deflate")
    assert _statuses(Limits(max_compression_ratio=ratio), request) == [200]
    assert _statuses(Limits(max_compression_ratio=ratio - 1), request) == [413]


def test_head_bytes() -> None:
    assert _statuses(Limits(max_head_bytes=len(GET_LIVE)), GET_LIVE, GET_LIVE) == [200, 200]
    assert _statuses(Limits(max_head_bytes=len(GET_LIVE) - 1), GET_LIVE, GET_LIVE) == [431, 431]
    line = b"GET /v2?" + b"x" * 100
    assert _statuses(Limits(max_head_bytes=100), line) == [414]


def test_head_fields() -> None:
    three = head("/v2", "X-One: 1", "X-Two: 2", method="GET")
    assert _statuses(Limits(max_head_fields=3), three, three) == [200, 200]
    # A head that is known by what is left of it without fields that mean nothing.
    short = head("/v2", "X-One: 1", method="GET")
    assert _statuses(Limits(max_head_fields=2), short, three, short, three) == [200, 431, 200, 431]


@pytest.mark.parametrize("name", ["Accept-Encoding", "Content-Type", "Connection", "CONTENT-TYPE"])
def test_field_bytes(name: str) -> None:
    requests = [head("/v2", f"{name}: {'x' * count}", method="GET") for count in (9, 10)]
    parts = [f"{name}: xxxxx", f"X-Long: {'x' * 99}", f"{name.lower()}: xxxxx"]
    requests.append(head("/v2", *parts, method="GET"))
    limits = Limits(max_field_bytes=9)
    assert _statuses(limits, *requests, *requests) == [200, 431, 431, 200, 431, 431]


def test_drained_bytes(backend: str) -> None:
    def is_kept(limit: int) -> bool:
        service = Service(models(), limits=Limits(max_drain_bytes=limit))
        with server_here(service, backend=backend) as (_, address), Wire(address) as wire:
            answer = wire.send(head("/v2/models/nobody/infer", "Content-Length: 1000")).response()
            assert answer.status == 404
            if not answer.is_last:
                assert wire.send(bytes(1000), GET_LIVE).response().status == 200
            return not answer.is_last

    assert is_kept(1000)
    assert not is_kept(999)


# `ServerOptions` over sockets


@pytest.mark.parametrize("model", ["identity", "declared"])
def test_the_last_request_of_a_connection_closes_it(backend: str, model: str) -> None:
    options = ServerOptions(max_requests_per_connection=3)
    request = infer_request(model)
    with server_here(models(), options, backend=backend) as (_, address), Wire(address) as wire:
        assert [wire.send(request).response().is_last for _ in range(3)] == [False, False, True]
        assert wire.is_closed()
        with Wire(address) as pipelining:
            pipelining.send(request * 4)
            assert [pipelining.response().is_last for _ in range(3)] == [False, False, True]
            assert pipelining.is_closed()


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that were joined for one client, each time that small answers were sent."""
    sizes: list[int] = []
    flush: Callable[[Outbox], None] = Outbox.flush

    def record(outbox: Outbox) -> None:
        sizes.extend(sum(map(len, parts)) for parts in outbox._waiting.values())  # noqa: SLF001 - nothing else tells
        flush(outbox)

    monkeypatch.setattr(Outbox, "flush", record)
    return sizes


def answer_size(wire: Wire, flushed: list[int]) -> int:
    """Return the bytes of an answer. From then on, the server answers this client without waking a task.

    A server that is busy when a client comes has the task of the connection answer what has come, each answer alone.
    """
    for _ in range(100):
        flushed.clear()
        wire.send(GET_LIVE).response()
        if flushed:
            break
    return flushed.pop()


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_answers_to_a_client_that_does_not_listen(flushed: list[int], loop: str, more: int) -> None:
    with server_here(models(), backend=loop) as (_, address), Wire(address) as wire:
        size = answer_size(wire, flushed)
    options = ServerOptions(max_pipelined_bytes=3 * size + more)
    with server_here(models(), options, backend=loop) as (_, address), Wire(address) as wire:
        assert answer_size(wire, flushed) == size
        wire.send(GET_LIVE * 20)
        assert [wire.response().status for _ in range(20)] == [200] * 20
    assert max(flushed) == (3 + more) * size


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_answers_to_many_reads_of_one_turn_are_counted_together(flushed: list[int], loop: str) -> None:
    may_go = threading.Event()

    def hold_up(request: InferenceRequest) -> Outputs:
        assert may_go.wait(60)
        return dict(request.inputs)

    registry = models()
    registry.add(Model(name="held up", predict=hold_up, is_inline=True))
    most = 150_000
    options = ServerOptions(max_pipelined_bytes=most)
    listener = open_listener("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # so that the system takes all while it is busy
    with server_here(registry, options, backend=loop, listener=listener) as (_, address), Wire(address) as wire:
        answer_size(wire, flushed)
        wire.send(infer_request("held%20up"), GET_LIVE * 4000)  # three reads of 64 KiB, each not enough
        may_go.set()
        assert [wire.response().status for _ in range(4001)] == [200] * 4001
    assert max(flushed) < most + 1000, "an answer more"


def test_as_many_models_run_at_once_as_there_are_workers(backend: str) -> None:
    lock, may_go = threading.Lock(), threading.Event()
    running: list[int] = [0]
    most: list[int] = [0]

    def predict(request: InferenceRequest) -> Outputs:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 2:
                may_go.set()
        assert may_go.wait(60)
        with lock:
            running[0] -= 1
        return dict(request.inputs)

    registry = models()
    registry.add(Model(name="counts", predict=predict))
    with server_here(registry, ServerOptions(max_workers=2), backend=backend) as (_, address):
        wires = [Wire(address).send(infer_request("counts")) for _ in range(3)]
        for wire in wires:
            assert wire.response().status == 200
            wire.sock.close()
    assert most == [2]


def test_a_refused_client_that_never_stops_sending_is_cut_off(backend: str) -> None:
    options = ServerOptions(linger_timeout=0.2)
    with server_here(models(), options, backend=backend) as (_, address), Wire(address) as wire:
        answer = wire.send(head("/v2/models/nobody/infer", "Content-Length: 1000000000000")).response()
        assert (answer.status, answer.is_last) == (404, True)
        block = np.zeros(1 << 16, np.uint8).tobytes()
        with pytest.raises(ConnectionError):  # noqa: PT012 - until then it may send
            for _ in range(1 << 20):
                wire.send(block)


def test_of_a_refused_client_so_many_bytes_are_dropped_and_no_more(backend: str) -> None:
    options = ServerOptions(linger_timeout=60)
    with server_here(models(), options, backend=backend) as (_, address), Wire(address) as wire:
        answer = wire.send(head("/v2/models/nobody/infer", "Transfer-Encoding: chunked")).response()
        assert (answer.status, answer.is_last) == (404, True)
        sent = 0
        with suppress(ConnectionError):
            while sent < 400 << 20:
                sent += wire.sock.send(bytes(1 << 16))
    assert 256 << 20 <= sent < 300 << 20


def test_a_refused_client_that_is_still_sending_can_read_why(backend: str) -> None:
    block = bytes(1 << 16)
    with server_here(models(), backend=backend) as (_, address), Wire(address) as wire:
        wire.send(head("/v2/models/nobody/infer", "Content-Length: 1000000000000"))
        for _ in range(20):
            wire.send(block)
            time.sleep(0.01)
        wire.sock.shutdown(socket.SHUT_WR)
        answer = wire.response()
        assert (answer.status, answer.is_last) == (404, True)
        assert wire.is_closed()
