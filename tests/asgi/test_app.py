"""The service as an ASGI application: its life, where it is mounted, clients that leave, time, memory and observers."""

from __future__ import annotations

import gc
import json
import logging
import threading
import tracemalloc
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from streamcodec import EncodedMessage, Rows, Windows, encode_request, response_decoder
from streamcodec.asgi import App
from streamcodec.asgi.app import Message, Scope
from streamcodec.server import ServerOptions
from streamcodec.service import (
    InferenceRequest,
    Model,
    ModelRegistry,
    Observer,
    RequestRecord,
    Service,
)
from tests.asgi.client import Exchanged, ask, scope_of
from tests.server.lanes import eventually

X = np.arange(6, dtype=np.float32)

on_both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def _double(request: InferenceRequest) -> dict[str, Any]:
    return {"y": request.inputs["x"] * 2}


def app_of(
    predict: Callable[[InferenceRequest], Any] = _double,
    *,
    options: ServerOptions | None = None,
    observer: Any = (),  # noqa: ANN401 - one or several
    **model: Any,  # noqa: ANN401 - those of Model
) -> App:
    service = Service(ModelRegistry.of([Model(name="m", predict=predict, **model)]))
    return App(service, options, observer=observer)


def infer(array: np.ndarray[Any, Any] = X, **options: Any) -> tuple[Scope, bytes]:  # noqa: ANN401 - those of encode_request
    """Return scope and body of a request to the model."""
    message = encode_request({"x": array}, parameters={"binary_data_output": True}, **options)
    return scope_for(message), b"".join(message.buffers)


def scope_for(message: EncodedMessage, target: str = "/v2/models/m/infer", **options: Any) -> Scope:  # noqa: ANN401 - those of scope_of
    fields = [(name.encode(), value.encode()) for name, value in message.headers]
    return scope_of("POST", target, fields, **options)


def output(exchanged: Exchanged) -> np.ndarray[Any, Any]:
    """Return the only output of an answer."""
    length = exchanged.fields.get("inference-header-content-length")
    decoder = response_decoder(header_length=length and int(length), body_length=len(exchanged.body))  # type: ignore[arg-type] # None stays None
    decoder.feed(exchanged.body)
    decoder.next_event()
    event: Any = decoder.next_event()
    array: np.ndarray[Any, Any] = event.array
    return array


def run(main: Callable[..., Awaitable[Any]], *arguments: Any, backend: str = "asyncio") -> Any:  # noqa: ANN401 - those of main
    return anyio.run(partial(main, *arguments), backend=backend)


# Small and large, quick and slow


@on_both
@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("count", [6, 1 << 18])
def test_a_model_is_asked(backend: str, is_inline: bool, count: int) -> None:
    app = app_of(is_inline=is_inline)
    array = np.arange(count, dtype=np.float32)
    scope, body = infer(array)

    async def main() -> None:
        for _ in range(3):  # the later ones know the head
            exchanged = await ask(app, scope, [body[:100], body[100:]])
            assert exchanged.status == 200
            assert np.array_equal(output(exchanged), array * 2)
            assert exchanged.is_whole

    run(main, backend=backend)


def test_known_heads_are_forgotten_with_their_models() -> None:
    registry = ModelRegistry.of([Model(name="m", predict=_double, is_inline=True)])
    app = App(Service(registry))
    scope, body = infer()

    async def main() -> list[int]:
        before = (await ask(app, scope, [body])).status
        registry.remove("m")
        return [before, (await ask(app, scope, [body])).status]

    assert run(main) == [200, 404]


@pytest.mark.parametrize("is_inline", [False, True])
def test_fields_that_mean_nothing_are_no_part_of_what_is_known(is_inline: bool) -> None:
    app = app_of(is_inline=is_inline)
    scope, body = infer()

    async def main() -> list[int]:
        statuses = []
        for number in range(3):
            other = {**scope, "headers": [*scope["headers"], (b"traceparent", b"%d" % number)]}
            statuses.append((await ask(app, other, [body])).status)
        others = [field for field in scope["headers"] if field[0] != b"inference-header-content-length"]
        wrong = {**scope, "headers": [(b"inference-header-content-length", b"7"), *others]}
        return [*statuses, (await ask(app, wrong, [body])).status]

    assert run(main) == [200, 200, 200, 400]


def test_a_compressed_request_is_not_taken_for_a_plain_one() -> None:
    app = app_of(is_inline=True)
    scope, body = infer()
    compressed = {**scope, "headers": [*scope["headers"], (b"content-encoding", b"gzip")]}
    unknown = {**scope, "headers": [*scope["headers"], (b"content-encoding", b"zip")]}

    async def main() -> list[int]:
        return [(await ask(app, each, [body])).status for each in (scope, compressed, compressed, unknown, unknown)]

    assert run(main) == [200, 400, 400, 415, 415]


@on_both
def test_an_async_model_is_awaited(backend: str) -> None:
    async def predict(request: InferenceRequest) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return _double(request)

    scope, body = infer()
    assert np.array_equal(output(run(ask, app_of(predict), scope, [body], backend=backend)), X * 2)


@on_both
@pytest.mark.parametrize("is_async", [False, True])
def test_windows_come_in_and_rows_go_out_while_the_other_side_goes_on(backend: str, is_async: bool) -> None:
    array = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)

    def sync_rows(request: InferenceRequest) -> dict[str, Any]:
        rows = request.rows["x"]
        return {"y": Rows("FP32", rows.shape, (window * 2 for window in rows.windows))}

    async def async_rows(request: InferenceRequest) -> dict[str, Any]:
        rows = request.rows["x"]

        async def windows() -> AsyncIterator[np.ndarray[Any, Any]]:
            async for window in rows.windows:
                yield window * 2

        return {"y": Rows("FP32", rows.shape, windows())}

    app = app_of(async_rows if is_async else sync_rows, windows=Windows(max_window_bytes=16 << 10))
    scope, body = infer(array)
    pieces = [body[start : start + 5000] for start in range(0, len(body), 5000)]
    exchanged = run(ask, app, scope, pieces, backend=backend)
    assert np.array_equal(output(exchanged), array * 2)
    assert len(exchanged.sent) > 4


@pytest.mark.parametrize("is_json", [False, True])
def test_a_quick_model_is_called_once_whatever_it_answers(is_json: bool) -> None:
    calls: list[int] = []

    def predict(_: InferenceRequest) -> dict[str, Any]:
        calls.append(1)
        shape = (4, 1 << 18) if is_json else (2, 4)
        return {"y": np.zeros(shape, np.uint8) if is_json else Rows("UINT8", shape, iter([np.ones(shape, np.uint8)]))}

    notes = _Notes()
    app = app_of(predict, is_inline=True, observer=notes)
    message = encode_request({"x": X}, parameters={"binary_data_output": not is_json})
    scope, body = scope_for(message), b"".join(message.buffers)

    async def main() -> None:
        for _ in range(3):
            exchanged = await ask(app, scope, [body])
            assert exchanged.status == 200
            assert exchanged.is_whole
            assert int(exchanged.fields["content-length"]) == len(exchanged.body)
            assert "connection" not in exchanged.fields

    run(main)
    assert len(calls) == 3
    assert [note[1:] for note in notes.ended] == [(200, "m", "complete", len(body))] * 3


def test_a_head_is_answered_without_a_body() -> None:
    exchanged = run(ask, app_of(), scope_of("HEAD", "/v2/models/m/infer"))
    assert exchanged.status == 405
    assert exchanged.body == b""


# Its life


def test_it_lives_with_its_server() -> None:
    app = app_of()
    told: list[str] = []

    async def main() -> list[int]:
        started, stop = anyio.Event(), anyio.Event()
        first = True

        async def receive() -> Message:
            nonlocal first
            if first:
                first = False
                return {"type": "lifespan.startup"}
            await stop.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Message) -> None:
            told.append(message["type"])
            started.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app, {"type": "lifespan"}, receive, send)
            await started.wait()
            ready = [(await ask(app, scope_of("GET", "/v2/health/ready"))).status]
            stop.set()
        return [*ready, (await ask(app, scope_of("GET", "/v2/health/ready"))).status]

    assert run(main) == [200, 503]
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_websocket_is_refused() -> None:
    sent: list[Message] = []

    async def main() -> None:
        async def send(message: Message) -> None:
            sent.append(message)

        await app_of()({"type": "websocket"}, anyio.sleep_forever, send)  # type: ignore[arg-type] # is not asked

    run(main)
    assert sent == [{"type": "websocket.close"}]


# Where it is mounted


@pytest.mark.parametrize(
    ("target", "root", "status"),
    [
        ("/v2/models/m", "", 200),
        ("/api/v2/models/m", "/api", 200),
        ("/api/v2/models/m", "/api/", 200),
        ("/a/b/v2/models/m?x=1", "/a/b", 200),
        ("/%61pi/v2/models/m", "/api", 200),
        ("/v2/models/m", "/api", 200),  # a server that leaves the root out of the path
        ("/apiv2/models/m", "/api", 404),
        ("/api", "/api", 404),
        ("/v2/models/no%2Fm", "", 404),
    ],
)
def test_it_answers_wherever_it_is_mounted(target: str, root: str, status: int) -> None:
    assert run(ask, app_of(), scope_of("GET", target, root_path=root)).status == status


def test_without_a_raw_path_the_path_is_encoded_again() -> None:
    scope = scope_of("GET", "/v2/models/a%20b")
    del scope["raw_path"]
    app = App(Service(ModelRegistry.of([Model(name="a b", predict=_double)])))
    assert run(ask, app, scope).status == 200


def test_the_same_path_means_another_model_where_it_is_mounted_elsewhere() -> None:
    app = app_of(is_inline=True)
    message = encode_request({"x": X})
    body = b"".join(message.buffers)

    async def main() -> list[int]:
        return [
            (await ask(app, scope_for(message, target, root_path=root), [body])).status
            for target, root in [("/v2/models/m/infer", ""), ("/v2/models/m/infer", "/v2"), ("/v2/models/m/infer", "")]
        ]

    assert run(main) == [200, 404, 200]


# Clients


@on_both
@pytest.mark.parametrize("has_length", [False, True])
def test_a_client_that_leaves_amid_its_request_is_told_so_if_it_listens(backend: str, has_length: bool) -> None:
    app, (scope, body) = app_of(), infer()
    if not has_length:
        fields = [field for field in scope["headers"] if field[0] != b"content-length"]
        scope = {**scope, "headers": [*fields, (b"transfer-encoding", b"chunked")]}

    async def main() -> list[Exchanged]:
        answers = [Exchanged(deque([piece] if piece else []), is_cut=True) for piece in (b"", body[:50], body)]
        for exchanged in answers:
            await app(scope, exchanged.receive, exchanged.send)
        return answers

    for exchanged in run(main, backend=backend)[: 2 if has_length else 3]:
        assert exchanged.status == 400
        assert b"the connection ended in the middle of the body" in exchanged.body


@on_both
def test_a_client_that_leaves_ends_its_async_model(backend: str) -> None:
    ended: list[str] = []

    async def predict(_: InferenceRequest) -> dict[str, Any]:
        exchanged.left.set()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        return {}

    app, (scope, body) = app_of(predict), infer()
    exchanged: Exchanged

    async def main() -> None:
        nonlocal exchanged
        exchanged = Exchanged(deque([body]))
        with anyio.fail_after(60):
            await app(scope, exchanged.receive, exchanged.send)

    run(main, backend=backend)
    assert exchanged.sent == []
    assert len(ended) == 1


@on_both
def test_a_client_that_stops_is_refused_in_time(backend: str) -> None:
    app, (scope, body) = app_of(options=ServerOptions(read_timeout=0.05)), infer()

    async def main() -> Exchanged:
        exchanged = Exchanged(deque([body[:50]]))
        first = True

        async def receive() -> Message:
            nonlocal first
            if not first:
                await anyio.sleep_forever()
            first = False
            return {"type": "http.request", "body": body[:50], "more_body": True}

        await app(scope, receive, exchanged.send)
        return exchanged

    assert run(main, backend=backend).status == 408


@on_both
def test_a_client_that_takes_nothing_is_given_up(backend: str) -> None:
    app, (scope, body) = app_of(options=ServerOptions(write_timeout=0.05)), infer()

    ended: list[Message] = []

    async def main() -> None:
        exchanged = Exchanged(deque([body]))

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                await anyio.sleep_forever()
            ended.extend([] if message["type"] == "http.response.start" else [message])

        await app(scope, exchanged.receive, send)
        assert not ended

    run(main, backend=backend)


def test_nothing_more_is_made_than_the_client_takes() -> None:
    made: list[int] = []

    def predict(_: InferenceRequest) -> dict[str, Any]:
        def windows() -> Iterator[np.ndarray[Any, Any]]:
            for number in range(100):
                made.append(number)
                yield np.zeros((1, 1 << 16), np.uint8)

        return {"y": Rows("UINT8", (100, 1 << 16), windows())}

    app, (scope, body) = app_of(predict), infer()
    counts: list[int] = []

    async def main() -> None:
        exchanged = Exchanged(deque([body]))

        async def send(_: Message) -> None:
            await anyio.sleep(0.001)
            counts.append(len(made) - len(counts))

        await app(scope, exchanged.receive, send)

    run(main)
    assert max(counts) <= 2


def test_a_model_that_fails_amid_its_answer_breaks_it_off() -> None:
    def predict(_: InferenceRequest) -> dict[str, Any]:
        def windows() -> Iterator[np.ndarray[Any, Any]]:
            yield np.zeros((1, 4), np.uint8)
            raise ValueError

        return {"y": Rows("UINT8", (2, 4), windows())}

    scope, body = infer()
    with pytest.raises(RuntimeError, match="ValueError"):
        run(ask, app_of(predict), scope, [body])


@pytest.mark.parametrize(("version", "has_field"), [("1.1", True), ("2", False)])
def test_a_long_body_that_is_not_read_closes_the_connection_where_it_can_be_closed(
    version: str, has_field: bool
) -> None:
    fields = [(b"content-length", b"%d" % (1 << 30))]
    exchanged = run(ask, app_of(), scope_of("POST", "/v2/models/no/infer", fields, http_version=version), [b"x"])
    assert exchanged.status == 404
    assert ("connection" in exchanged.fields) is has_field
    assert exchanged.received == 0, "refused by its head"


def test_a_wrong_head_is_refused() -> None:
    exchanged = run(ask, app_of(), scope_of("POST", "/v2", [(b"content-length", b"x")]), [b"x"])
    assert exchanged.status == 400
    assert "Content-Length" in json.loads(exchanged.body)["error"]
    assert exchanged.fields["connection"] == "close"


# Memory and threads


@on_both
def test_requests_wait_for_memory_or_are_told_to_come_back(backend: str) -> None:
    going_on = threading.Event()

    def predict(request: InferenceRequest) -> dict[str, Any]:
        going_on.wait(60)
        return _double(request)

    options = ServerOptions(max_memory_bytes=300 << 10, budget_timeout=0.3)
    app, (scope, body) = app_of(predict, options=options), infer(np.ones(50_000, np.float32))

    async def main() -> list[int]:
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await ask(app, scope, [body])).status)
            going_on.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(one)
        return [*statuses, (await ask(app, scope, [body])).status]

    assert run(main, backend=backend) == [503, 200, 200]


@pytest.mark.parametrize(
    ("place", "pieces"),
    [("streamcodec.http.bodies.fed.FedBody.feed", 2), ("streamcodec.service.request.planned.copied_arrays", 1)],
)
def test_without_memory_a_request_is_told_so(place: str, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app, (scope, body) = app_of(is_inline=False), infer()

    def receive(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(place, receive)
    assert run(ask, app, scope, [body[:9], body[9:]] if pieces > 1 else [body]).status == 503


@on_both
def test_a_thread_that_was_given_up_gives_its_place_back_where_nobody_lives_with_the_server(backend: str) -> None:
    going_on = threading.Event()

    def predict(request: InferenceRequest) -> dict[str, Any]:
        going_on.wait(60)
        return _double(request)

    options = ServerOptions(max_workers=1, model_timeout=0.5)
    app, (scope, body) = app_of(predict, options=options), infer()

    async def main() -> list[int]:
        first = (await ask(app, scope, [body])).status
        second = (await ask(app, scope, [body])).status
        going_on.set()
        return [first, second, (await ask(app, scope, [body])).status]

    assert run(main, backend=backend) == [504, 503, 200]


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_of_a_request_waits_for_the_garbage_collector(is_async: bool) -> None:
    async def async_predict(request: InferenceRequest) -> dict[str, Any]:
        return _double(request)

    app = app_of(async_predict if is_async else _double)
    scope, body = infer(np.ones(1 << 18, np.float32))
    refused = {**scope, "headers": [*scope["headers"], (b"content-encoding", b"gzip")]}

    async def main() -> list[int]:
        traced = []
        for _ in range(6):
            for each in (scope, refused):
                # What the server has sent is its own, and anyio keeps a cancelled task's frames until it is collected.
                (await ask(app, each, [body])).sent.clear()
            exchanged = Exchanged(deque([body[: 1 << 19]]), is_cut=True)
            await app(scope, exchanged.receive, exchanged.send)
            del exchanged
            traced.append(tracemalloc.get_traced_memory()[0])
        return traced

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        traced = run(main)
    finally:
        tracemalloc.stop()
        gc.enable()
    assert traced[-1] - traced[1] < len(body) // 4


@on_both
@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("kind", ["inline", "in a thread", "async"])
def test_nothing_of_a_request_waits_for_it_if_the_model_fails(
    backend: str, kind: str, is_observed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "streamcodec")  # kept records of the log hold tracebacks, too
    seen: list[weakref.ref[np.ndarray[Any, Any]]] = []

    def predict(request: InferenceRequest) -> dict[str, Any]:
        seen.append(weakref.ref(request.inputs["x"]))
        raise ValueError

    async def async_predict(request: InferenceRequest) -> dict[str, Any]:
        return predict(request)

    observer = Observer() if is_observed else ()
    app = app_of(async_predict if kind == "async" else predict, is_inline=kind == "inline", observer=observer)
    scope, body = infer()

    async def main() -> None:
        for _ in range(2):  # the second one has a known head
            assert (await ask(app, scope, [body])).status == 500

    gc.collect()
    gc.disable()
    try:
        run(main, backend=backend)
        assert len(seen) == 2
        assert eventually(lambda: all(each() is None for each in seen)), "soon after the thread has reported"
    finally:
        gc.enable()


@on_both
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_observed", [False, True])
def test_nothing_of_a_request_is_kept_with_the_exception_if_its_answer_breaks_off(
    backend: str, is_observed: bool, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "streamcodec")
    seen: list[weakref.ref[np.ndarray[Any, Any]]] = []
    kept: list[Exception] = []

    def windows(x: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
        yield x[:1]
        raise ValueError

    async def async_windows(x: np.ndarray[Any, Any]) -> AsyncIterator[np.ndarray[Any, Any]]:
        for window in windows(x):
            yield window

    def predict(request: InferenceRequest) -> dict[str, Any]:
        x = request.inputs["x"]
        seen.append(weakref.ref(x))
        return {"y": Rows("FP32", (2,), async_windows(x) if is_async else windows(x))}

    app, (scope, body) = app_of(predict, observer=Observer() if is_observed else ()), infer()

    async def main() -> None:
        try:
            await ask(app, scope, [body])
        except RuntimeError as error:
            kept.append(error)  # as a framework may do

    gc.collect()
    gc.disable()
    try:
        run(main, backend=backend)
        assert (len(seen), len(kept)) == (1, 1)
        assert eventually(lambda: seen[0]() is None), "soon after the thread has reported"
    finally:
        gc.enable()


# Observers


class _Notes(Observer):
    def __init__(self) -> None:
        self.begun: list[str | None] = []
        self.ended: list[tuple[Any, ...]] = []

    def request_begun(self, request: RequestRecord) -> None:
        self.begun.append(request.method)

    def request_ended(self, request: RequestRecord) -> None:
        self.ended.append((request.client, request.status, request.model, request.ending.value, request.bytes_in))
        assert request.seconds > 0


@pytest.mark.parametrize("is_inline", [False, True])
def test_observers_are_told_once_of_each_request(is_inline: bool) -> None:
    notes = _Notes()
    app, (scope, body) = app_of(is_inline=is_inline, observer=notes), infer()

    async def main() -> None:
        for _ in range(2):
            await ask(app, scope, [body])
        await ask(app, scope, [body[:-1]])
        await ask(app, scope_of("POST", "/v2", [(b"content-length", b"x")]))
        exchanged = Exchanged(deque([body[:50]]), is_cut=True)
        await app(scope, exchanged.receive, exchanged.send)

    run(main)
    client = "127.0.0.1:50000"
    assert notes.ended == [
        (client, 200, "m", "complete", len(body)),
        (client, 200, "m", "complete", len(body)),
        (client, 400, "m", "complete", len(body) - 1),
        (client, 400, None, "complete", 0),
        (client, 400, "m", "complete", 50),
    ]
    assert notes.begun == ["POST", "POST", "POST", None, "POST"]


@pytest.mark.parametrize(
    ("client", "named"),
    [(None, ""), (("::1", 7), "[::1]:7"), (("x.sock", None), "x.sock"), (("1.2.3.4", 5), "1.2.3.4:5")],
)
def test_a_client_is_named_as_far_as_it_is_known(client: Any, named: str) -> None:  # noqa: ANN401 - any
    notes = _Notes()
    run(ask, app_of(observer=[notes]), {**scope_of("GET", "/v2"), "client": client})
    assert notes.ended[0][0] == named


def test_what_a_model_has_raised_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def predict(_: InferenceRequest) -> dict[str, Any]:
        msg = "oh"
        raise ValueError(msg)

    for is_inline in (False, True):
        scope, body = infer()
        app = app_of(predict, is_inline=is_inline)

        async def main(app: App = app, scope: Scope = scope, body: bytes = body) -> None:
            for _ in range(2):
                assert (await ask(app, scope, [body])).status == 500

        run(main)
    assert [record.getMessage() for record in caplog.records] == ["model 'm' version '1' failed"] * 4
