"""Endpoint: requests and answers within WSGI applications of one's own."""

from __future__ import annotations

import gc
import io
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import flask
import numpy as np
import pytest

from streamcodec import (
    DEFAULT_LIMITS,
    ErrorCode,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    OutOfMemoryError,
    RemoteProtocolError,
    RequestHeader,
    encode_request,
)
from streamcodec.service import error_reply
from streamcodec.wsgi import SharedBudget, pieces, reading, receive_request, send_response
from tests.wsgi.requests import Pieces, body_of, environ_of, message_of

X = np.arange(1 << 18, dtype=np.float32)


@pytest.mark.parametrize("kind", [Pieces, io.BytesIO])
def test_a_request_is_received_and_answered(kind: Any) -> None:  # noqa: ANN401 - any stream
    message = message_of(X, request_id="seven", parameters={"binary_data_output": True})
    request = receive_request(environ_of(message, "/predict", kind(body_of(message))))
    assert request.header.id == "seven"
    assert np.array_equal(request.inputs["x"], X)
    started: list[tuple[str, list[tuple[str, str]]]] = []
    reply = request.reply({"y": 2 * np.asarray(request.inputs["x"])}, model_name="m")

    def start_response(status: str, headers: list[tuple[str, str]]) -> Callable[[bytes], object]:
        started.append((status, headers))
        return bytes

    pieces = list(send_response(start_response, reply))
    ((status, headers),) = started
    assert status == "200 OK"
    assert dict(headers)["Content-Length"] == str(sum(map(len, pieces)))
    assert max(map(len, pieces)) == 256 << 10


def test_a_compressed_request_is_worked_on_piece_by_piece() -> None:
    import gzip  # noqa: PLC0415

    message = message_of(X)
    body = gzip.compress(body_of(message))
    environ = environ_of(message, stream=Pieces(body), CONTENT_LENGTH=str(len(body)), HTTP_CONTENT_ENCODING="gzip")
    assert np.array_equal(receive_request(environ).inputs["x"], X)


def test_a_check_refuses_before_memory_is_taken() -> None:
    def check(header: RequestHeader) -> None:
        assert header.tensors[0].nbytes == X.nbytes
        raise LimitExceededError("too much", limit="mine")

    message = message_of(X)
    stream = Pieces(body_of(message), most=1000)
    with pytest.raises(LimitExceededError):
        receive_request(environ_of(message, stream=stream), check=check)
    assert len(stream.reads) == 1


def test_limits_and_ends_are_kept() -> None:
    with pytest.raises(LimitExceededError):
        receive_request(environ_of(message_of(X)), limits=Limits(max_message_bytes=1000))
    message = message_of(X)
    with pytest.raises(RemoteProtocolError, match="ended in the middle"):
        receive_request(environ_of(message, stream=Pieces(body_of(message)[:-1])))


def test_memory_is_used_again() -> None:
    message = message_of(np.zeros(1 << 20, np.float32))
    body, environ = body_of(message), environ_of(message, stream="is set later")
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(8):
            environ["wsgi.input"] = io.BytesIO(body)
            receive_request(environ)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert peak < 6 << 20


def test_a_view_of_flask() -> None:
    app = flask.Flask(__name__)

    @app.post("/double")
    def double() -> flask.Response:
        try:
            received = receive_request(flask.request.environ, limits=DEFAULT_LIMITS)
            reply = received.reply({"y": 2 * np.asarray(received.inputs["x"])}, model_name="double")
        except RemoteProtocolError as error:
            reply = error_reply(error)
        return flask.Response(pieces(reply), reply.status, [*reply.headers])

    message = message_of(X)
    fields = dict(message.headers)
    answer = app.test_client().post("/double", data=body_of(message), headers=fields)
    assert answer.status_code == 200
    assert answer.json is not None
    assert answer.json["outputs"][0]["data"][:3] == [0, 2, 4]
    assert app.test_client().post("/double", data=b"{", headers={}).status_code == 400


@pytest.mark.parametrize(
    "read",
    [
        lambda request: request.get_data(),
        lambda request: request.get_data(cache=False),
        lambda request: request.stream.read(10),
        lambda request: receive_request(request.environ),
    ],
)
def test_who_has_read_a_body_before_is_told(read: Callable[[flask.Request], object]) -> None:
    app = flask.Flask(__name__)

    @app.post("/")
    def view() -> str:
        read(flask.request)
        with pytest.raises(LocalProtocolError, match="has been read before"):
            receive_request(flask.request.environ)
        return "told"

    message = message_of(X)
    answer = app.test_client().post("/", data=body_of(message), headers=dict(message.headers))
    assert answer.text == "told"


@pytest.mark.parametrize("stream", [io.BufferedReader(io.BytesIO()), object()])
def test_a_stream_that_was_only_looked_at_has_not_been_read(stream: object) -> None:
    class Request:
        def __init__(self) -> None:
            self.stream = stream

    environ = environ_of(message_of(X)) | {"werkzeug.request": Request()}
    request = receive_request(environ)
    assert np.array_equal(request.inputs["x"], X)


class Slow(Pieces):
    """A stream whose reads take time."""

    def read(self, size: int, /) -> bytes:
        time.sleep(0.03)
        return super().read(size)


def test_a_client_that_is_slow_for_long_is_refused() -> None:
    message = message_of(X)
    budget = SharedBudget(4 << 20)
    with pytest.raises(RemoteProtocolError, match="too slowly") as caught:
        receive_request(
            environ_of(message, stream=Slow(body_of(message), most=100)), timeout=0.1, min_rate=1e6, budget=budget
        )
    assert caught.value.status_hint == 408
    assert budget.budget.reserved == 0


def test_memory_is_shared_and_given_back_with_the_request() -> None:
    message = message_of(X)
    budget = SharedBudget(2 << 20)

    def receive() -> Any:  # noqa: ANN401 - a request
        return receive_request(environ_of(message, stream=Pieces(body_of(message))), budget=budget)

    first = receive()
    assert budget.budget.reserved == message.body_length
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(receive()))
    thread.start()
    thread.join(0.2)
    assert not found, "it waits"
    del first
    thread.join(60)
    assert np.array_equal(found.pop().inputs["x"], X)
    assert budget.budget.reserved == 0
    with pytest.raises(LimitExceededError):
        receive_request(environ_of(message), budget=SharedBudget(1000))


def test_who_waits_too_long_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "block_for_memory", lambda _, __: False)
    message = message_of(X)
    budget = SharedBudget(2 << 20)
    first = receive_request(environ_of(message), budget=budget)
    with pytest.raises(OutOfMemoryError):
        receive_request(environ_of(message), budget=budget)
    del first
    assert budget.budget.reserved == 0


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_wrong_request_is_refused_before_more_than_its_header_is_read(is_compressed: bool) -> None:
    """Most servers return from a read only when all of it has come."""
    import gzip  # noqa: PLC0415

    def check(_: RequestHeader) -> None:
        raise LimitExceededError("too much", limit="mine")

    message = message_of(np.random.default_rng(0).random(1 << 20))
    environ = environ_of(message)
    body = body_of(message)
    if is_compressed:
        body = gzip.compress(body, 1)
        environ |= {"CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": "gzip"}
    stream = Pieces(body)
    with pytest.raises(LimitExceededError):
        receive_request(environ | {"wsgi.input": stream}, check=check)
    assert stream.reads == ([64 << 10] if is_compressed else [message.header_length])


def test_reads_become_large_after_the_header() -> None:
    message = message_of(np.zeros(4 << 20, np.float32))
    stream = Pieces(body_of(message))
    receive_request(environ_of(message, stream=stream))
    assert stream.reads == [message.header_length, *[4 << 20] * 4]


def test_a_short_request_is_read_at_once() -> None:
    message = message_of(X[:1000])
    stream = Pieces(body_of(message))
    receive_request(environ_of(message, stream=stream))
    assert stream.reads == [message.body_length]


def test_reads_of_many_small_tensors_become_large() -> None:
    message = encode_request({str(number): X[:1000] for number in range(400)})
    stream = Pieces(body_of(message))
    receive_request(environ_of(message, stream=stream))
    assert len(stream.reads) < 12


SMALL = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize("most", [None, 50, 1])
def test_a_short_body_is_received_however_it_comes(most: int | None) -> None:
    budget = SharedBudget(1 << 20)
    message = message_of(SMALL)
    stream = Pieces(body_of(message), most)
    request = receive_request(environ_of(message, stream=stream), budget=budget)
    assert np.array_equal(request.inputs["x"], SMALL)
    assert stream.reads[0] == message.body_length
    assert (len(stream.reads) == 1) is (most is None)
    assert budget.budget.reserved == message.body_length
    del request
    assert budget.budget.reserved == 0


@pytest.mark.parametrize("wrong", ["FP64", "FP99"])
def test_a_short_body_that_is_wrong_is_refused_as_one_in_pieces(wrong: str) -> None:
    message = message_of(SMALL)
    body = body_of(message).replace(b"FP32", wrong.encode())

    def refused(most: int | None) -> list[object]:
        with pytest.raises(RemoteProtocolError) as caught:
            receive_request(environ_of(message, stream=Pieces(body, most)))
        error = caught.value
        return [error.code, str(error), error.offset, error.status_hint]

    assert refused(None) == refused(50)


def test_a_short_body_that_cannot_be_read_is_refused() -> None:
    class Broken(Pieces):
        def read(self, _: int, /) -> bytes:
            raise ConnectionResetError

    message = message_of(SMALL)
    with pytest.raises(RemoteProtocolError, match="cannot be read to its end"):
        receive_request(environ_of(message, stream=Broken(b"")))
    with pytest.raises(RemoteProtocolError, match="in the middle of the body"):
        receive_request(environ_of(message, stream=Pieces(body_of(message)[:-1])))


def test_a_body_that_does_not_come_in_the_time_of_the_server_is_too_slow() -> None:
    """As by `SocketIO`: a read that has timed out cannot be repeated, and the next one raises something else."""

    class Silent:
        def __init__(self) -> None:
            self.errors: list[OSError] = [TimeoutError("timed out"), OSError("cannot read from timed out object")]

        def read(self, _: int, /) -> bytes:
            raise self.errors.pop(0)

    with pytest.raises(RemoteProtocolError) as caught:
        receive_request(environ_of(message_of(np.ones(3)), stream=Silent()))
    assert (caught.value.code, caught.value.status_hint) == (ErrorCode.TOO_SLOW, 408)
