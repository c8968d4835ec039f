"""App: the service in aiohttp's own server, and requests and answers in handlers of one's own."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import logging
import re
import socket
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import numpy as np
import pytest
from aiohttp import ClientError, ClientSession, web

from streamcodec import (
    EncodedMessage,
    ErrorCode,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    Rows,
    Tensor,
    encode_request,
)
from streamcodec.aiohttp import App, receive_request, send_response
from streamcodec.aiohttp.peer import leave_expectation
from streamcodec.service import Ending, InferenceRequest, Model, ModelRegistry, Observer, Predict, Service, error_reply
from streamcodec.service.observing import RequestRecord
from tests.service.requests import Answer

SMALL = np.arange(16, dtype=np.float32)
LARGE = np.arange(1 << 19, dtype=np.float32)
BINARY = {"binary_data_output": True}


def identity(request: InferenceRequest) -> Mapping[str, Any]:
    return request.inputs


def service_of(predict: Predict, limits: Limits | None = None, **options: Any) -> Service:  # noqa: ANN401 - of Model
    models = ModelRegistry.of([Model(name="m", predict=predict, **options)])
    return Service(models, limits=limits or Limits())


def message_of(x: np.ndarray[Any, Any], **options: Any) -> EncodedMessage:  # noqa: ANN401 - of encode_request
    return encode_request([Tensor(name="x", array=x)], **options)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on asyncio, the only event loop that aiohttp knows."""
    anyio.run(main)


@asynccontextmanager
async def serving(app: web.Application, **options: Any) -> AsyncIterator[int]:  # noqa: ANN401 - those of AppRunner
    runner = web.AppRunner(app, shutdown_timeout=1, **options)
    await runner.setup()
    sock = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, sock).start()
    try:
        yield sock.getsockname()[1]
    finally:
        await runner.cleanup()


def app_of(handler: App, prefix: str = "") -> web.Application:
    app = web.Application(client_max_size=100)
    handler.add_routes(app, prefix)
    return app


async def ask(port: int, message: EncodedMessage, path: str = "/v2/models/m/infer", **fields: str) -> Answer:
    body = b"".join(message.buffers)
    if fields.get("Content-Encoding") == "gzip":
        body = gzip.compress(body)
    headers = {name: value for name, value in message.headers if name != "Content-Length"}
    async with (
        ClientSession(auto_decompress=False) as session,
        session.post(f"http://127.0.0.1:{port}{path}", data=io.BytesIO(body), headers=headers | fields) as response,
    ):
        return Answer(status=response.status, fields=dict(response.headers), body=await response.read(), cause=None)


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
def test_a_request_is_answered_again_and_again(x: np.ndarray[Any, Any], is_inline: bool) -> None:
    async def main() -> None:
        async with serving(app_of(App(service_of(identity, is_inline=is_inline)))) as port:
            for _ in range(3):
                answer = await ask(port, message_of(x, parameters=BINARY))
                assert answer.status == 200
                assert np.array_equal(answer.outputs["x"], x)

    run(main)


def test_it_is_mounted_below_a_path_and_in_another_application() -> None:
    async def main() -> None:
        outer = web.Application()
        outer.add_subapp("/outer", app_of(App(service_of(identity, is_inline=True)), "/in/ner"))
        async with serving(outer) as port:
            for _ in range(2):
                answer = await ask(port, message_of(SMALL), "/outer/in/ner/v2/models/m/infer?query")
                assert answer.status == 200, answer.body
            assert (await ask(port, message_of(SMALL), "/outer/in/ner/v2/models/n/infer")).status == 404

    run(main)


@pytest.mark.parametrize("prefix", ["", "/in/ner"])
def test_a_target_in_absolute_form_is_one_below_a_path_too(prefix: str) -> None:
    """RFC 9112, 3.2.2: a server accepts this form."""

    async def main() -> None:
        async with (
            serving(app_of(App(service_of(identity)), prefix)) as port,
            await anyio.connect_tcp("127.0.0.1", port) as wire,
        ):
            await wire.send(b"GET http://x%b/v2/health/live?a HTTP/1.1\r\nHost: x\r\n\r\n" % prefix.encode())
            assert (await wire.receive()).startswith(b"HTTP/1.1 200 ")

    run(main)


@pytest.mark.parametrize("auto_decompress", [False, True])
def test_compressed_bodies_are_decompressed_once(auto_decompress: bool) -> None:
    async def main() -> None:
        handler = App(service_of(identity), auto_decompress=auto_decompress)
        async with serving(app_of(handler), auto_decompress=auto_decompress) as port:
            fields = {"Content-Encoding": "gzip"}
            answer = await ask(port, message_of(LARGE, parameters=BINARY), **fields)
            assert np.array_equal(answer.outputs["x"], LARGE)

    run(main)


@pytest.mark.parametrize("auto_decompress", [False, True])
def test_a_body_that_decompresses_to_too_much_is_refused(auto_decompress: bool) -> None:
    async def main() -> None:
        service = service_of(identity, Limits(max_compression_ratio=10))
        handler = App(service, auto_decompress=auto_decompress)
        async with serving(app_of(handler), auto_decompress=auto_decompress) as port:
            fields = {"Content-Encoding": "gzip"}
            answer = await ask(port, message_of(np.zeros(1 << 20, np.float32)), **fields)
            assert (answer.status, answer.error) == (413, "the body decompresses to more than 10 times its size")

    run(main)


def test_a_damaged_body_is_refused() -> None:
    async def main() -> None:
        async with serving(app_of(App(service_of(identity)))) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            fields = b"Content-Encoding: gzip\r\nContent-Length: 100\r\n"
            writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n" + bytes(100))
            assert b" 400 " in await reader.readline()
            writer.close()

    run(main)


HEAD = b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"


def test_a_refusal_comes_before_the_client_is_told_to_go_on() -> None:
    async def main() -> None:
        message = message_of(SMALL)
        async with serving(app_of(App(service_of(identity)))) as port:
            for name, start in ((b"none", b"HTTP/1.1 404 "), (b"m", b"HTTP/1.1 100 Continue\r\n\r\n")):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(HEAD % (name, message.body_length))
                assert (await reader.readexactly(len(start))) == start
                if name == b"m":
                    writer.write(b"".join(message.buffers))
                    assert b" 400 " in await reader.readline()  # without the length of its header
                writer.close()

    run(main)


class Records(Observer):
    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def request_ended(self, request: RequestRecord) -> None:
        self.records.append(request)


@pytest.mark.parametrize("is_inline", [False, True])
def test_observers_get_the_head_of_each_request(is_inline: bool) -> None:
    records = Records()

    async def main() -> None:
        handler = App(service_of(identity, is_inline=is_inline), observer=records)
        async with serving(app_of(handler)) as port:
            for number in range(3):
                path = f"/v2/models/m/infer?a={number % 2}"
                answer = await ask(port, message_of(SMALL, parameters=BINARY), path, traceparent=f"00-{number}")
                assert answer.status == 200

    run(main)
    assert len(records.records) == 3
    for number, record in enumerate(records.records):
        assert record.head is not None
        assert record.field(b"traceparent") == record.head.fields.values(b"traceparent") == [b"00-%d" % number]
        assert record.target == f"/v2/models/m/infer?a={number % 2}"


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - of whatever kind it is
            await anyio.sleep(0.02)


def test_a_model_is_cancelled_when_its_client_leaves() -> None:
    seen: list[str] = []

    async def wait(_: InferenceRequest) -> Mapping[str, Any]:
        seen.append("called")
        try:
            await anyio.sleep(60)
        finally:
            seen.append("cancelled")
        return {}

    async def main() -> None:
        records = Records()
        async with serving(app_of(App(service_of(wait), observer=records))) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            message = message_of(SMALL)
            fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
            writer.write(f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
            writer.write(b"".join(message.buffers))
            await until(lambda: seen)
            writer.close()
            await until(lambda: records.records)
        assert seen == ["called", "cancelled"]
        assert records.records[0].ending is Ending.CLIENT_LEFT
        assert records.records[0].client.startswith("127.0.0.1:")

    run(main)


def _answer_late(_: InferenceRequest) -> Mapping[str, Any]:
    time.sleep(0.1)
    return {"y": SMALL}


def _rows(_: InferenceRequest) -> Mapping[str, Any]:
    def windows() -> Iterator[np.ndarray[Any, Any]]:
        for _ in range(64):
            time.sleep(0.01)
            yield np.zeros((1, 1 << 20), np.uint8)

    return {"y": Rows("UINT8", (64, 1 << 20), windows())}


@pytest.mark.parametrize("predict", [_answer_late, _rows])
def test_a_client_that_leaves_is_no_error_of_the_server(predict: Predict, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        records = Records()
        async with serving(app_of(App(service_of(predict), observer=records))) as port:
            for number in range(3):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                message = message_of(SMALL)
                fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
                writer.write(f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
                writer.write(b"".join(message.buffers))
                await asyncio.sleep(0.03)
                writer.close()
                await until(lambda: len(records.records) > number)  # noqa: B023 - awaited here

    with caplog.at_level(logging.DEBUG):
        run(main)
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_client_that_leaves_amid_its_body_leaves_nothing_behind() -> None:
    async def main() -> None:
        handler = App(service_of(identity), observer=Records())
        budget = handler._frontend.budget  # noqa: SLF001 - it is told to nobody
        async with serving(app_of(handler)) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            message = message_of(LARGE)
            fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
            writer.write(f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
            writer.write(b"".join(message.buffers)[:1_000_000])
            await until(lambda: budget.reserved)
            writer.close()
            await until(lambda: not budget.reserved)

    run(main)


@pytest.mark.slow
def test_rows_share_their_memory_and_wait_for_the_client() -> None:
    made: list[int] = []

    def predict(_: InferenceRequest) -> Mapping[str, Any]:
        window = np.empty((1, 1 << 20), np.uint8)

        def windows() -> Any:  # noqa: ANN401 - a generator
            for number in range(64):
                made.append(number)
                window[:] = number
                yield window

        return {"y": Rows("UINT8", (64, 1 << 20), windows())}

    async def main() -> None:
        async with serving(app_of(App(service_of(predict)))) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            message = message_of(SMALL, parameters=BINARY)
            fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
            writer.write(f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
            writer.write(b"".join(message.buffers))
            await anyio.sleep(1)
            assert 0 < len(made) < 32
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)inference-header-content-length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            for number in range(64):
                data = await reader.readexactly(1 << 20)
                assert data == bytes([number]) * (1 << 20)
            writer.close()

    run(main)


def test_a_model_that_fails_amid_its_answer_closes_the_connection() -> None:
    def predict(_: InferenceRequest) -> Mapping[str, Any]:
        def windows() -> Any:  # noqa: ANN401 - a generator
            yield np.zeros((1, 8), np.uint8)
            raise ValueError("the password is swordfish")

        return {"y": Rows("UINT8", (2, 8), windows())}

    async def main() -> None:
        async with serving(app_of(App(service_of(predict)))) as port:
            with pytest.raises(Exception, match=r"(?i)payload|disconnected|closed"):
                await ask(port, message_of(SMALL, parameters=BINARY))

    run(main)


def test_readiness_ends_with_the_application() -> None:
    async def main() -> None:
        service = service_of(identity)
        async with serving(app_of(App(service))):
            assert service.is_ready
        assert not service.is_ready

    run(main)


def endpoint(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    app = web.Application(client_max_size=100)
    app.router.add_route("POST", "/double", handle, expect_handler=leave_expectation)
    return app


async def double(request: web.Request) -> web.StreamResponse:
    try:
        received = await receive_request(request, limits=Limits(max_message_bytes=1 << 22), timeout=3.0)
        reply = received.reply({"y": 2 * np.asarray(received.inputs["x"])}, model_name="double")
    except RemoteProtocolError as error:
        reply = error_reply(error)
    return await send_response(request, reply)


def test_a_handler_of_ones_own_receives_and_answers() -> None:
    async def main() -> None:
        async with serving(endpoint(double)) as port:
            answer = await ask(port, message_of(LARGE, parameters=BINARY), "/double")
            assert np.array_equal(answer.outputs["y"], 2 * LARGE)
            assert (await ask(port, message_of(np.zeros(1 << 21, np.float32)), "/double")).status == 413

    run(main)


@pytest.mark.slow
def test_a_handler_of_ones_own_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with serving(endpoint(double)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /double HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            assert b" 408 " in await reader.readline()
            writer.close()

    run(main)


def test_a_handler_of_ones_own_is_told_of_a_client_that_leaves() -> None:
    seen: list[str] = []
    done = threading.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            await receive_request(request)
        except RemoteProtocolError as error:
            seen.append(error.code)
            done.set()
        return web.Response()

    async def main() -> None:
        async with serving(endpoint(handle)) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /double HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            await anyio.sleep(0.1)
            writer.close()
            await until(done.is_set)
        assert seen == ["connection-closed"]

    run(main)


async def _read(request: web.Request) -> None:
    await request.read()


async def _read_a_part(request: web.Request) -> None:
    await request.content.read(10)


async def _receive(request: web.Request) -> None:
    await receive_request(request)


@pytest.mark.parametrize("read", [_read, _read_a_part, _receive])
@pytest.mark.parametrize("is_service", [False, True])
def test_who_has_read_a_body_before_is_told(
    read: Callable[[web.Request], Awaitable[None]], is_service: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    seen: list[str] = []
    handler = App(service_of(identity))

    async def handle(request: web.Request) -> web.StreamResponse:
        await read(request)
        try:
            await (handler.handle(request) if is_service else receive_request(request))
        except LocalProtocolError as error:
            seen.append(str(error))
            raise
        return web.Response()

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/double", handle)
        async with serving(app) as port:
            for x in (SMALL, LARGE[:5000]):
                assert (await ask(port, message_of(x), "/double")).status == 500

    run(main)
    assert len(seen) == 2
    assert all("has been read before" in text for text in seen)


def test_nothing_of_a_request_waits_for_the_garbage_collector_if_its_answer_breaks_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """aiohttp refers to what a handler has raised."""
    caplog.set_level(logging.CRITICAL)
    seen: list[weakref.ref[object]] = []

    def windows(x: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
        yield x[:1]
        raise ValueError

    def predict(request: InferenceRequest) -> Mapping[str, Any]:
        x = request.inputs["x"]
        seen.append(weakref.ref(x))
        return {"y": Rows("FP32", (2,), windows(x))}

    async def main() -> None:
        async with serving(app_of(App(service_of(predict)))) as port:
            with suppress(ClientError):
                await ask(port, message_of(SMALL, parameters=BINARY))
        assert seen[0]() is None

    gc.collect()
    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("status", [99, 199, 204, 205, 304, 499, 600])
def test_an_answer_has_the_body_that_its_status_allows(status: int, is_inline: bool) -> None:
    def refuse(_: InferenceRequest) -> Mapping[str, Any]:
        raise RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, status_hint=status)

    async def main() -> None:
        app = app_of(App(service_of(refuse, is_inline=is_inline)))
        async with serving(app) as port, ClientSession() as session:
            message = message_of(SMALL, parameters=BINARY)
            for _ in range(3):  # over one connection
                data = b"".join(message.buffers)
                url = f"http://127.0.0.1:{port}/v2/models/m/infer"
                async with session.post(url, data=data, headers=dict(message.headers)) as response:
                    body = await response.read()
                    assert response.status == (status if 200 <= status < 600 else 500)
                    assert bool(body) is (status not in {204, 205, 304})
                    assert ("Content-Type" in response.headers) is bool(body)

    run(main)
