"""Compression by both clients: what goes over the wire, what comes back, and that no event loop waits for zlib."""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import (
    EncodedMessage,
    LocalProtocolError,
    RequestedOutput,
    Tensor,
    compress_message,
    encode_request,
    encode_response,
)
from streamcodec.client import AsyncClient, Client, ServerError, exchange
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.service import Service
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import response, scripted
from tests.server.models import models
from tests.server.programs import server_here

DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
ENCODINGS = pytest.mark.parametrize("encoding", DECOMPRESS)
X = np.arange(100_000)

MESSAGE = encode_response([Tensor(name="x", array=X)], model_name="m")
IHCL = f"Inference-Header-Content-Length: {MESSAGE.header_length}"
PLAIN = response(b"".join(MESSAGE.buffers), IHCL)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    service = Service(models(), compresses=True)
    with server_here(service) as (_, (host, port)):
        yield f"http://{host}:{port}"


def _taken_apart(request: bytes) -> tuple[dict[str, str], bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    pairs = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    return {name.lower(): value for name, value in pairs}, body


@pytest.mark.slow
@KINDS
@ENCODINGS
@pytest.mark.parametrize("is_binary", [True, False])
def test_there_and_back(kind: Kind, url: str, encoding: str, is_binary: bool) -> None:
    inputs: dict[str, Any] = {"x": X, "words": ["größe", ""] * 500, "none": np.zeros((0, 3)), "scalar": 1.5}
    with kind.client(url, request_compression=encoding, response_compression=encoding) as client:
        for _ in range(2):
            outputs = client.infer("identity", inputs, is_binary=is_binary).outputs
            assert np.array_equal(outputs["x"], X)
            assert outputs["words"].tolist() == ["größe".encode(), b""] * 500
            assert outputs["none"].shape == (0, 3)
            assert outputs["scalar"] == 1.5


@KINDS
@ENCODINGS
def test_request_on_the_wire(kind: Kind, encoding: str) -> None:
    plain = encode_request([Tensor(name="x", array=X)], request_id="7", parameters={"binary_data_output": True})
    with scripted([PLAIN]) as server, kind.client(server.url, request_compression=encoding) as client:
        client.infer("m", {"x": X}, request_id="7")
    fields, body = _taken_apart(server.requests[0])
    assert fields["content-encoding"] == encoding
    assert int(fields["content-length"]) == len(body) < plain.body_length
    assert int(fields["inference-header-content-length"]) == plain.header_length
    assert DECOMPRESS[encoding](body) == b"".join(plain.buffers)
    assert "accept-encoding" not in fields


@KINDS
@ENCODINGS
def test_compressed_answer_is_asked_for_and_understood(kind: Kind, encoding: str) -> None:
    message = compress_message(MESSAGE, encoding)
    answer = response(b"".join(message.buffers), IHCL, f"Content-Encoding: {encoding}")
    with (
        scripted([answer, PLAIN]) as server,
        kind.client(server.url, response_compression=encoding) as client,
    ):
        for _ in range(2):
            assert np.array_equal(client.infer("m", {"x": X})["x"], X)
    for request in server.requests:
        fields, body = _taken_apart(request)
        assert fields["accept-encoding"] == encoding
        assert "content-encoding" not in fields
        assert body.endswith(X.tobytes())


@KINDS
def test_by_default_nothing_is_compressed_or_asked_for(kind: Kind, url: str) -> None:
    with scripted([PLAIN]) as server, kind.client(server.url) as client:
        client.infer("m", {"x": X})
    fields, _ = _taken_apart(server.requests[0])
    assert not fields.keys() & {"content-encoding", "accept-encoding"}
    with kind.client(url) as client:
        client.infer("identity", {"x": np.zeros(1 << 24, np.uint8)})
        assert client.client.received_copied <= SCRATCH_BYTES  # in place, which no compressed answer is


@KINDS
def test_what_does_not_become_smaller_is_sent_as_it_is(kind: Kind) -> None:
    noise = np.frombuffer(np.random.default_rng(0).bytes(1 << 20), np.uint8)
    with scripted([PLAIN]) as server, kind.client(server.url, request_compression="gzip") as client:
        client.infer("m", {"x": noise})
    fields, body = _taken_apart(server.requests[0])
    assert "content-encoding" not in fields
    assert body.endswith(noise.tobytes())


@KINDS
def test_documents_and_errors_with_compression_switched_on(kind: Kind, url: str) -> None:
    with kind.client(url, request_compression="deflate", response_compression="gzip") as client:
        assert client.call("server_metadata")["name"] == "streamcodec"
        assert client.call("is_model_ready", "identity")
        with pytest.raises(ServerError, match="no model 'nobody'"):
            client.infer("nobody", {"x": X})
        with pytest.raises(ServerError, match="takes FP32"):
            client.infer("declared", {"x": X})
        assert np.array_equal(client.infer("identity", {"x": X})["x"], X)


@KINDS
def test_server_that_does_not_understand_compression(kind: Kind) -> None:
    refusal = response(b'{"error":"no gzip here"}', "Accept-Encoding: identity", status="415 Unsupported Media Type")
    with (
        scripted([refusal]) as server,
        kind.client(server.url, request_compression="gzip") as client,
        pytest.raises(ServerError, match="415: no gzip here"),
    ):
        client.infer("m", {"x": X})


@pytest.mark.parametrize("encoding", ["br", "GZIP", "", "gzip, deflate"])
@pytest.mark.parametrize("option", ["request_compression", "response_compression"])
def test_unknown_compression_is_refused_at_once(option: str, encoding: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(LocalProtocolError, match="gzip or deflate"):
            kind("http://127.0.0.1", **{option: encoding})  # type: ignore[arg-type] # one option or the other


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_event_loop_goes_on_while_a_thread_compresses(url: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has_gone_on = threading.Event()

    def compress(message: EncodedMessage, encoding: str) -> EncodedMessage:
        """Wait for the event loop, which would be in vain if this ran on it."""
        assert has_gone_on.wait(60)
        return compress_message(message, encoding)

    async def main() -> None:
        async with AsyncClient(url, request_compression="gzip") as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.infer, "identity", {"x": X})
            await anyio.sleep(0.05)
            assert await client.is_server_live()  # its turn, too: the connection is free meanwhile
            has_gone_on.set()

    monkeypatch.setattr(exchange, "compress_message", compress)
    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_call_that_is_cancelled_does_not_wait_for_zlib(url: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def compress(message: EncodedMessage, _: str) -> EncodedMessage:
        assert may_end.wait(60)
        return message

    async def main() -> None:
        async with AsyncClient(url, request_compression="gzip") as client:
            with anyio.move_on_after(0.05) as scope:
                await client.infer("identity", {"x": X})
            assert scope.cancelled_caught
            may_end.set()
            assert np.array_equal((await client.infer("identity", {"x": X}))["x"], X)

    monkeypatch.setattr(exchange, "compress_message", compress)
    anyio.run(main, backend=backend)


@KINDS
def test_classes_can_be_asked_for(kind: Kind) -> None:
    wanted = RequestedOutput(name="x", binary_data=True, parameters={"classification": 2})
    with (
        server_here(Service(models(), classifies=True)) as (_, (host, port)),
        kind.client(f"http://{host}:{port}") as client,
    ):
        result = client.infer("identity", {"x": np.array([1, 5, 10, 4])}, outputs=[wanted])
    assert result["x"].tolist() == [b"10:2", b"5:1"]
