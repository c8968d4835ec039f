"""App: the service as a WSGI application, called as servers call it."""

from __future__ import annotations

import gc
import gzip
import io
import logging
import re
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from streamcodec import ErrorCode, LocalProtocolError, RemoteProtocolError, Rows, Tensor, Windows, encode_request
from streamcodec.server import ServerOptions
from streamcodec.service import ANY_SIZE, Ending, InferenceRequest, Model, Observer, TensorMetadata
from streamcodec.service.observing import RequestRecord
from streamcodec.wsgi import App
from tests.wsgi.requests import Array, Pieces, ask, begin, body_of, environ_of, message_of, service_of

SMALL = np.arange(16, dtype=np.float32)
LARGE = np.arange(1 << 19, dtype=np.float32)


def identity(request: InferenceRequest) -> Mapping[str, Any]:
    return request.inputs


async def asynchronous(request: InferenceRequest) -> Mapping[str, Any]:
    return request.inputs


def reserved(app: App) -> int:
    return app._shared.budget.reserved  # noqa: SLF001 - what is not given back shows nowhere else


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("x", [SMALL, LARGE, np.zeros((0, 3), np.int8)], ids=["small", "large", "empty"])
def test_a_request_is_answered_again_and_again(x: Array, is_inline: bool) -> None:
    app = App(service_of(identity, is_inline=is_inline))
    for _ in range(3):
        answer = ask(app, environ_of(message_of(x, parameters={"binary_data_output": True})))
        assert answer.status == 200
        assert int(answer.fields["Content-Length"]) == len(answer.body)
        assert np.array_equal(answer.outputs["x"], x)
    assert reserved(app) == 0


class Filled(io.BytesIO):
    """A stream that fills memory, and counts."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.targets: list[int] = []

    def read(self, _: Any = -1) -> bytes:  # noqa: ANN401 - any size
        raise AssertionError("memory is to be filled")

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any memory
        self.targets.append(len(buffer))
        return super().readinto(buffer)


def test_bytes_go_straight_into_the_tensor_where_the_stream_fills_memory() -> None:
    message = message_of(LARGE)
    stream = Filled(body_of(message))
    app = App(service_of(lambda request: {"n": request.inputs["x"][-1:]}))
    assert ask(app, environ_of(message, stream=stream)).document["outputs"][0]["data"] == [LARGE[-1]]
    assert stream.targets[-1] == LARGE.nbytes


def test_no_read_is_for_more_than_is_left_and_none_is_very_large() -> None:
    message = message_of(np.zeros(9 << 20, np.uint8))
    stream = Pieces(body_of(message) + b"the next request")
    assert ask(App(service_of(identity)), environ_of(message, stream=stream)).status == 200
    assert max(stream.reads) == 4 << 20
    assert sum(stream.reads) == message.body_length


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 50, 100])
def test_a_body_that_ends_early_is_refused(cut: int, is_inline: bool) -> None:
    app = App(service_of(identity, is_inline=is_inline))
    message = message_of(SMALL)
    body = body_of(message)[:cut]
    ask(app, environ_of(message))
    answer = ask(app, environ_of(message, stream=Pieces(body)))
    assert (answer.status, answer.error) == (
        400,
        f"the connection ended in the middle of the body (byte {cut})",
    )


@pytest.mark.parametrize("is_inline", [False, True])
def test_a_body_that_comes_in_pieces_is_whole(is_inline: bool) -> None:
    app = App(service_of(identity, is_inline=is_inline))
    for _ in range(2):
        message = message_of(SMALL, parameters={"binary_data_output": True})
        body = body_of(message)
        answer = ask(app, environ_of(message, stream=Pieces(body, most=7)))
        assert np.array_equal(answer.outputs["x"], SMALL)


def test_chunks_are_read_where_the_server_says_their_end() -> None:
    app = App(service_of(identity))
    chunked: Any = {"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked"}
    ended: Any = {"wsgi.input_terminated": True}
    assert ask(app, environ_of(message_of(SMALL), **chunked, **ended)).status == 200
    answer = ask(app, environ_of(message_of(SMALL), **chunked))
    assert (answer.status, answer.error) == (
        411,
        "a body without Content-Length cannot be read: the server does not say where it ends",
    )


def test_a_compressed_body_is_decompressed() -> None:
    message = message_of(LARGE, parameters={"binary_data_output": True})
    body = gzip.compress(body_of(message))
    environ = environ_of(message, stream=Pieces(body), CONTENT_LENGTH=str(len(body)), HTTP_CONTENT_ENCODING="gzip")
    assert np.array_equal(ask(App(service_of(identity)), environ).outputs["x"], LARGE)


def test_an_asynchronous_model_is_told_at_the_start() -> None:
    with pytest.raises(LocalProtocolError, match="model 'm' is an async def"):
        App(service_of(asynchronous))


def test_an_asynchronous_model_that_comes_later_is_refused_before_its_body_is_read() -> None:
    service = service_of(identity)
    app = App(service)
    service.models.add(Model(name="later", predict=asynchronous))
    stream = Pieces(b"")
    answer = ask(app, environ_of(message_of(SMALL), "/v2/models/later/infer", stream))
    assert (answer.status, stream.reads) == (501, [])
    assert "async def" in answer.error


def count_rows(request: InferenceRequest) -> Mapping[str, Any]:
    return {"n": np.array([sum(len(window) for window in request.rows["x"].windows)])}


def test_a_model_takes_windows_while_they_come() -> None:
    app = App(service_of(count_rows, windows=Windows(max_window_bytes=1 << 16)))
    assert ask(app, environ_of(message_of(LARGE.reshape(-1, 64)))).document["outputs"][0]["data"] == [len(LARGE) // 64]
    assert reserved(app) == 0


def test_windows_that_end_early_are_refused() -> None:
    app = App(service_of(count_rows, windows=Windows(max_window_bytes=1 << 16)))
    message = message_of(LARGE.reshape(-1, 64))
    body = body_of(message)[:100_000]
    assert ask(app, environ_of(message, stream=Pieces(body))).status == 400


@pytest.mark.parametrize("is_inline", [False, True])
def test_rows_are_made_while_they_are_sent(is_inline: bool) -> None:
    made = []

    def predict(_: InferenceRequest) -> Mapping[str, Any]:
        def windows() -> Iterator[Array]:
            for number in range(4):
                made.append(number)
                yield np.full((1, 1 << 18), number, np.uint8)

        return {"y": Rows("UINT8", (4, 1 << 18), windows())}

    app = App(service_of(predict, is_inline=is_inline))
    for _ in range(2):
        made.clear()
        begun = begin(app, environ_of(message_of(SMALL, parameters={"binary_data_output": True})))
        assert made == []
        next(begun.body)
        next(begun.body)
        assert made == [0]
        begun.close()
    assert reserved(app) == 0


@pytest.mark.parametrize("is_inline", [False, True])
def test_asynchronous_rows_are_a_failure_of_the_model(is_inline: bool) -> None:
    async def windows() -> AsyncIterator[Array]:
        yield SMALL

    app = App(service_of(lambda _: {"y": Rows("FP32", (16,), windows())}, is_inline=is_inline))
    for _ in range(2):
        answer = ask(app, environ_of(message_of(SMALL, parameters={"binary_data_output": True})))
        assert (answer.status, answer.error.partition(",")[0]) == (500, "a model has returned asynchronous rows")


def test_a_model_that_fails_amid_its_answer_breaks_it_off() -> None:
    def windows() -> Iterator[Array]:
        yield np.zeros((1, 8), np.uint8)
        raise ValueError("the password is swordfish")

    app = App(service_of(lambda _: {"y": Rows("UINT8", (2, 8), windows())}))
    with pytest.raises(RuntimeError, match="a model failed with ValueError in the middle of its answer"):
        ask(app, environ_of(message_of(SMALL, parameters={"binary_data_output": True})))
    assert reserved(app) == 0


def test_a_model_that_ends_its_thread_amid_its_answer_breaks_it_off() -> None:
    """A server that knows only of exceptions would keep the connection. In the main thread, a signal may mean it."""

    def windows() -> Iterator[Array]:
        yield np.zeros((1, 8), np.uint8)
        raise SystemExit

    app = App(service_of(lambda _: {"y": Rows("UINT8", (2, 8), windows())}))
    message = message_of(SMALL, parameters={"binary_data_output": True})
    with ThreadPoolExecutor(1) as thread, pytest.raises(RuntimeError, match="SystemExit in the middle of its answer"):
        thread.submit(ask, app, environ_of(message)).result()
    with pytest.raises(SystemExit):
        ask(app, environ_of(message))
    assert reserved(app) == 0


def test_a_client_that_leaves_amid_its_answer_leaves_nothing_behind() -> None:
    gc.disable()
    try:
        service = service_of(identity)
        app = App(service)
        assert service.pool is not None
        for ending in ("close", "forget"):
            begun = begin(app, environ_of(message_of(LARGE, parameters={"binary_data_output": True})))
            next(begun.body)
            assert reserved(app) > 0
            if ending == "close":
                begun.close()
            del begun
            assert reserved(app) == 0
            assert service.pool.idle_bytes == LARGE.nbytes
    finally:
        gc.enable()


def _fail_in_rows(seen: list[weakref.ref[Array]]) -> Callable[[InferenceRequest], Mapping[str, Any]]:
    def windows(x: Array) -> Iterator[Array]:
        yield x[:1]
        raise ValueError

    def predict(request: InferenceRequest) -> Mapping[str, Any]:
        x = request.inputs["x"]
        seen.append(weakref.ref(x))
        return {"y": Rows("FP32", (2,), windows(x))}

    return predict


def test_a_model_that_fails_in_the_middle_of_its_answer_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "streamcodec")
    seen: list[weakref.ref[Array]] = []
    gc.disable()
    try:
        with pytest.raises(RuntimeError) as kept:  # as werkzeug does
            ask(
                App(service_of(_fail_in_rows(seen))),
                environ_of(message_of(SMALL, parameters={"binary_data_output": True})),
            )
        assert str(kept.value) == "a model failed with ValueError in the middle of its answer"
        assert seen[0]() is None
    finally:
        gc.enable()


def test_the_log_says_where_a_model_has_failed_in_the_middle_of_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError):
        ask(App(service_of(_fail_in_rows([]))), environ_of(message_of(SMALL, parameters={"binary_data_output": True})))
    assert "an answer has failed" in caplog.text
    assert "in windows" in caplog.text


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("is_observed", [False, True])
def test_a_model_that_fails_leaves_nothing_behind(
    is_inline: bool, is_observed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "streamcodec")  # kept records of the log hold tracebacks, too
    seen: list[weakref.ref[Array]] = []

    def fail(request: InferenceRequest) -> Mapping[str, Any]:
        seen.append(weakref.ref(request.inputs["x"]))
        raise ValueError

    app = App(service_of(fail, is_inline=is_inline), observer=Observer() if is_observed else ())
    gc.disable()
    try:
        for _ in range(2):  # the second one has a known head
            assert ask(app, environ_of(message_of(SMALL))).status == 500
        assert [each() is None for each in seen] == [True, True]
    finally:
        gc.enable()


def test_a_head_has_an_answer_without_a_body() -> None:
    environ = environ_of(message_of(SMALL), "/v2/health/live", REQUEST_METHOD="HEAD", CONTENT_LENGTH="")
    answer = ask(App(service_of(identity)), environ)
    assert (answer.status, answer.fields["Content-Length"], answer.body) == (200, "13", b"")


def test_a_model_without_memory_is_answered_503() -> None:
    def predict(_: InferenceRequest) -> Mapping[str, Any]:
        raise MemoryError

    assert ask(App(service_of(predict)), environ_of(message_of(SMALL))).status == 503


def test_a_body_without_memory_is_answered_503() -> None:
    class Poor(Pieces):
        def read(self, _: int, /) -> bytes:
            raise MemoryError

    app = App(service_of(identity))
    assert ask(app, environ_of(message_of(SMALL), stream=Poor(b""))).status == 503
    assert reserved(app) == 0


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize(("error", "status"), [(TimeoutError, 408), (ConnectionResetError, 400), (OSError, 400)])
def test_a_stream_that_breaks_is_a_client_that_has_left(error: type[OSError], status: int, is_inline: bool) -> None:
    class Broken(Pieces):
        def read(self, _: int, /) -> bytes:
            raise error

    app = App(service_of(identity, is_inline=is_inline))
    ask(app, environ_of(message_of(SMALL)))
    assert ask(app, environ_of(message_of(SMALL), stream=Broken(b""))).status == status
    assert reserved(app) == 0


def test_more_than_there_ever_is_is_refused_before_it_is_read() -> None:
    app = App(service_of(identity), ServerOptions(max_memory_bytes=1 << 20))
    stream = Pieces(b"")
    assert ask(app, environ_of(message_of(LARGE), stream=stream)).status == 413
    assert stream.reads == []


class Held(Pieces):
    """A stream that stops before its last byte until it is told to go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, most=1 << 18)
        self._left = len(data)
        self.has_stopped = threading.Event()
        self.goes_on = threading.Event()

    def read(self, size: int, /) -> bytes:
        if self._left <= 1 << 18:
            self.has_stopped.set()
            assert self.goes_on.wait(60)
        piece = super().read(size)
        self._left -= len(piece)
        return piece


def held_by(app: App, message: Any) -> tuple[Held, threading.Thread]:  # noqa: ANN401 - an encoded one
    """Let a request have most of the memory, until its stream goes on."""
    stream = Held(body_of(message))
    thread = threading.Thread(target=ask, args=(app, environ_of(message, stream=stream)))
    thread.start()
    assert stream.has_stopped.wait(60)
    return stream, thread


def test_threads_share_the_memory() -> None:
    message = message_of(np.zeros(1 << 20, np.uint8))
    app = App(service_of(identity), ServerOptions(max_memory_bytes=3 << 19, min_rate=0.0))
    stream, thread = held_by(app, message)
    statuses: list[int] = []
    second = threading.Thread(target=lambda: statuses.append(ask(app, environ_of(message)).status))
    second.start()
    second.join(0.2)
    assert statuses == []
    stream.goes_on.set()
    thread.join(60)
    second.join(60)
    assert statuses == [200]
    assert reserved(app) == 0


def test_who_waits_for_memory_too_long_is_told_to_come_again() -> None:
    message = message_of(np.zeros(1 << 20, np.uint8))
    app = App(service_of(identity), ServerOptions(max_memory_bytes=3 << 19, budget_timeout=0.05, min_rate=0.0))
    stream, thread = held_by(app, message)
    answer = ask(app, environ_of(message))
    assert (answer.status, answer.fields["Retry-After"]) == (503, "1")
    stream.goes_on.set()
    thread.join(60)
    assert reserved(app) == 0


def test_many_threads_with_little_memory_all_get_their_answers() -> None:
    app = App(service_of(identity), ServerOptions(max_memory_bytes=1 << 20))
    found: list[bool] = []

    def ask_often() -> None:
        for number in range(20):
            x = np.full(1 << 17, number, np.float32)
            answer = ask(app, environ_of(message_of(x, parameters={"binary_data_output": True})))
            found.append(answer.status == 200 and np.array_equal(answer.outputs["x"], x))

    threads = [threading.Thread(target=ask_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 160
    assert reserved(app) == 0


class Records(Observer):
    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.calls = 0

    def call_begun(self, _: RequestRecord) -> None:
        self.calls += 1

    def request_ended(self, request: RequestRecord) -> None:
        self.records.append(request)


@pytest.mark.parametrize("is_inline", [False, True])
def test_observers_are_told_of_each_request(is_inline: bool) -> None:
    records = Records()
    app = App(service_of(identity, is_inline=is_inline), observer=records)
    message = message_of(SMALL, request_id="seven")
    for _ in range(2):
        answer = ask(app, environ_of(message, REMOTE_ADDR="::1", REMOTE_PORT="7"))
        record = records.records[-1]
        assert (record.client, record.model, record.request_id, record.status) == ("[::1]:7", "m", "seven", 200)
        assert (record.bytes_in, record.bytes_out) == (message.body_length, len(answer.body))
        assert record.ending is Ending.COMPLETE
    assert (len(records.records), records.calls) == (2, 2)


@pytest.mark.parametrize("is_inline", [False, True])
def test_observers_get_the_head_of_each_request(is_inline: bool) -> None:
    records, message = Records(), message_of(SMALL)
    app = App(service_of(identity, is_inline=is_inline), observer=records)
    for number in range(3):
        variables = {"HTTP_TRACEPARENT": f"00-{number}", "QUERY_STRING": f"a={number % 2}", "REMOTE_PORT": f"{number}"}
        ask(app, environ_of(message, REMOTE_ADDR="::1", **variables))
        record = records.records[-1]
        assert record.head is not None
        assert record.field(b"traceparent") == record.head.fields.values(b"traceparent") == [b"00-%d" % number]
        assert (record.client, record.target) == (f"[::1]:{number}", f"/v2/models/m/infer?a={number % 2}")


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({"HTTP_INFERENCE_HEADER_CONTENT_LENGTH": "None"}, 400),
        ({"HTTP_CONTENT_ENCODING": "None"}, 415),
        ({"HTTP_TRANSFER_ENCODING": "None"}, 501),
        ({"HTTP_EXPECT": "None"}, 417),
        ({"HTTP_X_Y": "a\x01b"}, 400),
        ({f"HTTP_X_{number}": "1" for number in range(2000)}, 431),
        ({"HTTP_HOST": "x\nNone"}, 400),
    ],
)
def test_a_head_is_refused_although_another_one_without_its_mistake_is_known(
    variables: dict[str, str], status: int
) -> None:
    """An absent variable is not the text `None`."""
    app = App(service_of(identity, is_inline=True))
    environ = environ_of(encode_request([Tensor(name="x", array=SMALL, is_binary=False)]))
    body = environ.pop("wsgi.input").read(1 << 16)
    answers = [
        ask(app, {**environ, **each, "wsgi.input": io.BytesIO(body)}) for each in (variables, {}, {}, {}, variables)
    ]
    assert [answer.status for answer in answers] == [status, 200, 200, 200, status]
    assert (answers[0].fields, answers[0].body) == (answers[-1].fields, answers[-1].body)


class Late(Pieces):
    """Gives a few bytes late, and then the rest."""

    def __init__(self, data: bytes, seconds: float) -> None:
        super().__init__(data)
        self._seconds = seconds

    def read(self, size: int, /) -> bytes:
        seconds, self._seconds = self._seconds, 0.0
        time.sleep(seconds)
        return super().read(7 if seconds else size)


def test_a_body_that_begins_late_has_no_more_time_because_its_head_is_known() -> None:
    app = App(service_of(identity, is_inline=True), ServerOptions(header_timeout=0.05))
    message = message_of(SMALL)
    streams = [Late(body_of(message), seconds) for seconds in (0.2, 0.0, 0.0, 0.2)]
    assert [ask(app, environ_of(message, stream=each)).status for each in streams] == [408, 200, 200, 408]


class LateInto(Pieces):
    """Gives all that is asked for, late; also into memory."""

    def read(self, size: int, /) -> bytes:
        time.sleep(0.2)
        return super().read(size)

    def readinto(self, target: memoryview, /) -> int:
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)


@pytest.mark.parametrize(("changed", "status"), [(b"", 200), (b"x", 400)], ids=["right", "wrong"])
def test_a_body_that_comes_whole_is_judged_by_its_content_however_late(changed: bytes, status: int) -> None:
    app = App(service_of(identity, is_inline=True), ServerOptions(header_timeout=0.05))
    message = message_of(SMALL)
    late = changed + body_of(message)[len(changed) :]
    streams = [LateInto(late), Pieces(body_of(message)), Pieces(body_of(message)), LateInto(late)]
    assert [ask(app, environ_of(message, stream=each)).status for each in streams] == [status, 200, 200, status]


def test_observers_are_told_of_refusals_and_of_clients_that_leave() -> None:
    records = Records()
    app = App(service_of(identity), observer=[records])
    ask(app, environ_of(message_of(SMALL), "/v2/models/none/infer"))
    ask(app, environ_of(message_of(SMALL), HTTP_HOST="a b"))
    begun = begin(app, environ_of(message_of(LARGE, parameters={"binary_data_output": True})))
    next(begun.body)
    begun.close()
    begun.close()
    assert [(record.status, record.ending) for record in records.records] == [
        (404, Ending.COMPLETE),
        (400, Ending.COMPLETE),
        (200, Ending.CUT),
    ]


def test_a_server_that_refuses_to_begin_leaves_nothing_behind() -> None:
    records = Records()
    app = App(service_of(identity), observer=records)

    def start_response(*_: Any) -> Any:  # noqa: ANN401 - as servers do
        raise AssertionError("headers have been sent")

    with pytest.raises(AssertionError):
        app(environ_of(message_of(LARGE)), start_response)
    assert reserved(app) == 0
    assert records.records[0].ending is Ending.CUT


def test_a_model_that_changes_is_seen_by_all_threads() -> None:
    service = service_of(identity, is_inline=True)
    app = App(service)
    ask(app, environ_of(message_of(SMALL)))
    service.models.replace(Model(name="m", predict=lambda _: {"y": SMALL[:1]}, is_inline=True))
    assert ask(app, environ_of(message_of(SMALL))).document["outputs"][0]["name"] == "y"


def test_a_model_with_metadata_refuses_before_the_tensors_come() -> None:
    declared = (TensorMetadata("x", "FP32", (ANY_SIZE, 4)),)
    stream = Pieces(body_of(message_of(LARGE)), most=1000)
    answer = ask(App(service_of(identity, inputs=declared)), environ_of(message_of(LARGE), stream=stream))
    assert answer.status == 400
    assert len(stream.reads) == 1


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("status", [99, 199, 204, 205, 299, 304, 499, 600])
def test_an_answer_has_the_body_that_its_status_allows(status: int, is_inline: bool) -> None:
    def refuse(_: InferenceRequest) -> Mapping[str, Any]:
        raise RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, status_hint=status)

    app = App(service_of(refuse, is_inline=is_inline))
    lines: list[str] = []

    def start_response(line: str, _: object) -> Callable[[bytes], object]:
        lines.append(line)
        return bytes

    for _ in range(3):
        app(environ_of(message_of(SMALL)), start_response)
        answer = ask(app, environ_of(message_of(SMALL)))
        assert answer.status == (status if 200 <= status < 600 else 500)
        assert bool(answer.body) is (status not in {204, 205, 304})
        assert answer.fields.get("Content-Length") == (None if status in {204, 304} else str(len(answer.body)))
        assert ("Content-Type" in answer.fields) is bool(answer.body)
    assert all(re.fullmatch("[2-5][0-9][0-9] [A-Z].*[a-z]", line) for line in lines)  # PEP 3333: with a reason
