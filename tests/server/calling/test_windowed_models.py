"""Models that take their inputs window by window, and that answer row by row, on each event loop."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import anyio
import numpy as np
import pytest

from streamcodec import Rows, Tensor, Windows, encode_request
from streamcodec.engine.message import Values
from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.service import ANY_SIZE, InferenceRequest, Model, ModelRegistry, Service, TensorMetadata
from streamcodec.service.models.model import Predict
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, chunked, floats, head, post

Address = tuple[str, int]
Outputs = Mapping[str, Values]

WINDOWS = Windows(max_window_bytes=4096)
ROW = 64
LARGE = 100_000
"""Rows of 256 bytes: more than all buffers on the way hold."""

STARTED = threading.Event()
GO_ON = threading.Event()


def _sum(request: InferenceRequest) -> Outputs:
    total = sum(float(window.sum(dtype=np.float64)) for rows in request.rows.values() for window in _sync(rows))
    return {"SUM": np.array([total])}


async def _sum_async(request: InferenceRequest) -> Outputs:
    total = 0.0
    for rows in request.rows.values():
        async for window in _async(rows):
            total += float(window.sum(dtype=np.float64))
    return {"SUM": np.array([total])}


def _double(request: InferenceRequest) -> Outputs:
    x = request.rows["x"]
    return {"y": Rows(x.datatype, x.shape, (2 * window for window in _sync(x)))}


async def _double_async(request: InferenceRequest) -> Outputs:
    x = request.rows["x"]
    return {"y": Rows(x.datatype, x.shape, (2 * window async for window in _async(x)))}


def _first(request: InferenceRequest) -> Outputs:
    return {"y": next(iter(_sync(request.rows["x"]))).copy()}


async def _first_async(request: InferenceRequest) -> Outputs:
    return {"y": (await anext(aiter(_async(request.rows["x"])))).copy()}


def _break(request: InferenceRequest) -> Outputs:
    for _ in _sync(request.rows["x"]):
        msg = "the password is swordfish"
        raise ValueError(msg)
    return {}


def _too_little(request: InferenceRequest) -> Outputs:
    x = request.rows["x"]
    return {"y": Rows(x.datatype, (x.shape[0] + 1, *x.shape[1:]), _sync(x))}


def _breaks_late(request: InferenceRequest) -> Outputs:
    x = request.rows["x"]

    def windows() -> Iterator[np.ndarray[Any, Any]]:
        yield from _sync(x)
        msg = "the password is swordfish"
        raise ValueError(msg)

    return {"y": Rows(x.datatype, x.shape, windows())}


def _backwards(request: InferenceRequest) -> Outputs:
    for rows in reversed(request.rows.values()):  # type: ignore[call-overload] # of a dict
        for _ in _sync(rows):
            pass
    return {}


def _waits(request: InferenceRequest) -> Outputs:
    windows = iter(_sync(request.rows["x"]))
    next(windows)
    STARTED.set()
    GO_ON.wait(60)
    return {"ROWS": np.array([sum(len(window) for window in windows)])}


async def _quick(request: InferenceRequest) -> Outputs:
    return request.inputs


def _ramp(request: InferenceRequest) -> Outputs:
    """Answer rows that nobody has asked for in windows."""
    count = int(request.inputs["n"][0])
    return {"y": Rows("FP32", (count, ROW), (np.full((1, ROW), i, np.float32) for i in range(count)))}


def _sync(rows: Rows) -> Iterator[np.ndarray[Any, Any]]:
    return cast("Iterator[np.ndarray[Any, Any]]", rows.windows)


def _async(rows: Rows) -> AsyncIterator[np.ndarray[Any, Any]]:
    return cast("AsyncIterator[np.ndarray[Any, Any]]", rows.windows)


def _models() -> ModelRegistry:
    declared = (TensorMetadata("x", "FP32", (ANY_SIZE, ROW)),)
    windowed: dict[str, Predict] = {
        "sum": _sum,
        "sum_async": _sum_async,
        "double": _double,
        "double_async": _double_async,
        "first": _first,
        "first_async": _first_async,
        "break": _break,
        "too_little": _too_little,
        "breaks_late": _breaks_late,
        "backwards": _backwards,
        "waits": _waits,
    }
    models = [Model(name=name, predict=predict, windows=WINDOWS) for name, predict in windowed.items()]
    models.append(Model(name="pairs", predict=_sum, windows=Windows(max_window_bytes=4096, buffer_count=2)))
    models.append(Model(name="large", predict=_double, windows=Windows()))
    models.append(Model(name="declared", predict=_double, windows=WINDOWS, inputs=declared))
    models.append(Model(name="quick", predict=_quick))
    models.append(Model(name="ramp", predict=_ramp))
    return ModelRegistry.of(models)


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    options = ServerOptions(read_timeout=60, idle_timeout=60, write_timeout=60)
    with server_here(_models(), options, backend=request.param) as (_, address):
        yield address
        with Wire(address) as good:
            assert good.send(GET_LIVE).response().status == 200


def _request(model: str, *arrays: np.ndarray[Any, Any], is_binary: bool = True) -> bytes:
    tensors = [Tensor(name="xyz"[i], array=array, is_binary=is_binary) for i, array in enumerate(arrays)]
    message = encode_request(tensors, parameters={"binary_data_output": True})
    fields = [f"{name}: {value}" for name, value in message.headers]
    return head(f"/v2/models/{model}/infer", *fields) + b"".join(message.buffers)


def _rows(count: int) -> np.ndarray[Any, Any]:
    return np.arange(count * ROW, dtype=np.float32).reshape(count, ROW) % 1000


@pytest.mark.parametrize("model", ["sum", "sum_async", "pairs"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_a_model_sees_all_rows_of_all_inputs(address: Address, model: str, is_binary: bool) -> None:
    arrays = [_rows(100), np.ones(3, np.float32), np.zeros((0, 7), np.float32)]
    with Wire(address) as wire:
        for _ in range(2):  # the connection goes on
            answer = wire.send(_request(model, *arrays, is_binary=is_binary)).response()
            assert answer.status == 200
            assert np.frombuffer(answer.body[-8:])[0] == sum(float(array.sum(dtype=float)) for array in arrays)


def test_a_chunked_body_comes_in_windows_too(address: Address) -> None:
    array = _rows(100)
    first, _, body = _request("sum", array).partition(b"\r\n\r\n")
    lines = [line for line in first.split(b"\r\n") if not line.startswith(b"Content-Length")]
    with Wire(address) as wire:
        for size in (50, 1000, 20_000):
            wire.send(b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""]), chunked(body, [size] * 600))
            answer = wire.response()
            assert np.frombuffer(answer.body[-8:])[0] == array.sum(dtype=float)


@pytest.mark.parametrize("model", ["double", "double_async", "declared"])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
def test_rows_are_answered_as_they_come(address: Address, model: str, count: int) -> None:
    array = _rows(count)
    with Wire(address) as wire:
        answer = wire.send(_request(model, array)).response()
        assert floats(answer) == (2 * array).reshape(-1).tolist()
        assert wire.sock.fileno() >= 0


@pytest.mark.parametrize("model", ["double", "double_async"])
def test_rows_that_are_wanted_as_json_are_collected(address: Address, model: str) -> None:
    array = _rows(40)
    request = _request(model, array).replace(b'"binary_data_output":true', b'"binary_data_output":null')
    with Wire(address) as wire:
        document = wire.send(request).response().document
    assert document["outputs"][0]["data"] == (2 * array).reshape(-1).tolist()


def test_rows_that_a_model_makes_are_answered_row_by_row(address: Address) -> None:
    with Wire(address) as wire:
        for count in (3, 1000):
            answer = wire.send(_request("ramp", np.zeros(0)).replace(b'"x"', b'"n"')).response()
            assert answer.status == 500  # no number was given
            message = encode_request(
                [Tensor(name="n", array=np.array([count]))], parameters={"binary_data_output": True}
            )
            fields = [f"{name}: {value}" for name, value in message.headers]
            answer = wire.send(head("/v2/models/ramp/infer", *fields), *map(bytes, message.buffers)).response()
            assert floats(answer)[::ROW] == list(range(count))


def test_a_large_tensor_goes_through_while_the_client_reads(address: Address) -> None:
    array = _rows(LARGE)
    with Wire(address) as wire:
        sender = threading.Thread(target=wire.send, args=(_request("large", array),))
        sender.start()
        received = bytearray()
        while chunk := wire.sock.recv(1 << 20):  # to the end: who answers before it has read all closes
            received += chunk
        sender.join()
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert np.array_equal(np.frombuffer(received[-array.nbytes :], np.float32), 2 * array.reshape(-1))


@pytest.mark.parametrize("model", ["first", "first_async"])
def test_who_leaves_early_is_answered_and_the_rest_is_not_waited_for(address: Address, model: str) -> None:
    with Wire(address) as wire:
        wire.send(_request(model, _rows(1000))[:100_000])
        answer = wire.response()
        assert answer.status == 200
        assert answer.is_last
    with Wire(address) as wire:
        assert wire.send(_request(model, _rows(20))).response().status == 200
        assert wire.send(GET_LIVE).response().status == 200


@pytest.mark.parametrize("model", ["break", "backwards"])
def test_a_model_that_breaks_in_a_window_is_500(address: Address, model: str) -> None:
    with Wire(address) as wire:
        answer = wire.send(_request(model, _rows(100), _rows(100))).response()
        assert answer.status == 500
        assert "swordfish" not in answer.error


@pytest.mark.parametrize("model", ["too_little", "breaks_late"])
def test_what_cannot_be_answered_to_its_end_never_looks_whole(address: Address, model: str) -> None:
    with Wire(address) as wire:
        wire.send(_request(model, _rows(100)))
        with pytest.raises(ConnectionError, match="ended in the middle"):
            wire.response()


@pytest.mark.parametrize("model", ["sum", "sum_async"])
def test_a_client_that_leaves_within_a_window_is_not_waited_for(address: Address, model: str) -> None:
    with Wire(address) as wire:
        wire.send(_request(model, _rows(100))[:-5])
        wire.sock.shutdown(1)
        answer = wire.response()
        assert answer.status == 400
        assert "ended in the middle" in answer.error


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_a_model_whose_connection_has_to_end_is_told_so_while_it_waits_for_a_window(backend: str) -> None:
    is_told = threading.Event()

    def wait(request: InferenceRequest) -> Outputs:
        try:
            return _waits(request)
        finally:
            is_told.set()

    STARTED.clear()
    GO_ON.set()
    service = Service(ModelRegistry.of([Model(name="waits", predict=wait, windows=WINDOWS)]))

    async def main() -> None:
        server, listener = Server(service, ServerOptions(shutdown_timeout=0.1)), open_listener("127.0.0.1", 0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, listener)
            with Wire(listener.getsockname()) as wire:
                wire.send(_request("waits", _rows(100))[:-4])
                assert await anyio.to_thread.run_sync(STARTED.wait, 5)
                server.stop()
                assert await anyio.to_thread.run_sync(is_told.wait, 5)  # before the event loop ends

    options = {"use_uvloop": True} if backend == "uvloop" else {}
    anyio.run(main, backend="trio" if backend == "trio" else "asyncio", backend_options=options)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_model_can_be_answered_compressed_and_rows_are_sent_plain(backend: str) -> None:
    array = np.zeros((100, ROW), np.float32)
    with server_here(Service(_models(), compresses=True), backend=backend) as (_, there), Wire(there) as wire:
        for model, encoding in (("quick", "gzip"), ("double", None)):
            request = _request(model, array).replace(b"Host: x", b"Host: x\r\nAccept-Encoding: gzip")
            answer = wire.send(request).response()
            assert (answer.status, answer.fields.get("content-encoding")) == (200, encoding)


def test_bytes_do_not_come_in_windows(address: Address) -> None:
    with Wire(address) as wire:
        body = b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["a"]}]}'
        answer = wire.send(post(body, model="sum")).response()
        assert answer.status == 400
        assert "$.inputs[0].datatype" in answer.error


@pytest.mark.parametrize("model", ["sum", "double", "double_async"])
def test_a_row_larger_than_a_window_is_413(model: str, address: Address) -> None:
    with Wire(address) as wire:
        answer = wire.send(_request(model, np.zeros((1, 1025), np.float32))).response()
        assert answer.status == 413
        assert "4096" in answer.error


@pytest.mark.slow
def test_a_slow_model_makes_its_client_wait(address: Address) -> None:
    STARTED.clear()
    GO_ON.clear()
    array = np.zeros((LARGE, ROW), np.float32)
    with Wire(address) as wire:
        request = memoryview(_request("waits", array))
        wire.sock.settimeout(1)
        sent = _send_until_full(wire.sock, request)
        assert STARTED.is_set()
        assert sent < array.nbytes / 2, "the bytes went somewhere, and the model has not taken them"
        GO_ON.set()
        wire.sock.settimeout(60)
        wire.sock.sendall(request[sent:])
        answer = wire.response()
    assert np.frombuffer(answer.body[-8:], np.int64)[0] + 16 == LARGE


def _send_until_full(sock: socket.socket, data: memoryview) -> int:
    sent = 0
    with suppress(TimeoutError):
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65536])
    return sent


def test_an_async_model_runs_on_the_event_loop(address: Address) -> None:
    array = _rows(3)
    with Wire(address) as wire:
        for _ in range(2):
            assert floats(wire.send(_request("quick", array)).response()) == array.reshape(-1).tolist()
