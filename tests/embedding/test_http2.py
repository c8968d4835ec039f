"""HTTP/2: the service as an ASGI application under hypercorn, asked over HTTP/2 by httpx and by h2."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from streamcodec import EncodedMessage, encode_request
from tests.embedding.faults import State, settled, state_of
from tests.embedding.http2 import Http2Client, Stream
from tests.embedding.servers import ASGI, Embedding, embedded

pytestmark = pytest.mark.slow

X: Final = np.arange(1 << 18, dtype=np.float32)
SMALL: Final = np.arange(16, dtype=np.float32)
_SECONDS: Final = 20.0


@pytest.fixture(params=["hypercorn", "hypercorn trio"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedding]:
    with embedded(ASGI[request.param], "tests.embedding.apps:watched_asgi", tmp_path / "log") as embedding:
        yield embedding


def message_of(x: np.ndarray[Any, Any]) -> EncodedMessage:
    return encode_request({"x": x}, parameters={"binary_data_output": True})


def ask(client: Http2Client, model: str, x: np.ndarray[Any, Any]) -> Stream:
    """Send a whole request."""
    message = message_of(x)
    stream = client.begin("POST", f"/v2/models/{model}/infer", message.headers)
    client.send(stream, b"".join(message.buffers), ends=True)
    return stream


def array_of(fields: dict[str, str], body: bytes | bytearray) -> np.ndarray[Any, Any]:
    length = int(fields["inference-header-content-length"])
    return np.frombuffer(body[length:], np.float32)


def wait_for(embedding: Embedding, tasks: int) -> State:
    """Wait until the server has no more tasks than that."""
    end = time.monotonic() + _SECONDS
    while (state := state_of(embedding))["tasks"] > tasks and time.monotonic() < end:
        time.sleep(0.05)
    return state


def test_httpx_has_its_tensor_back(server: Embedding) -> None:
    message = message_of(X)
    with httpx.Client(http1=False, http2=True, timeout=_SECONDS) as client:
        for x in (X, SMALL, SMALL, SMALL):  # the last ones take the short cut
            message = message_of(x)
            answer = client.post(
                "http://{}:{}/v2/models/identity/infer".format(*server.address),
                content=b"".join(message.buffers),
                headers=dict(message.headers),
            )
            assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
            assert np.array_equal(array_of(dict(answer.headers), answer.content), x)
            assert "connection" not in answer.headers


def test_streams_of_one_connection_are_answered_beside_each_other(server: Embedding) -> None:
    with Http2Client(server.address) as client:
        waiting = ask(client, "waiting", SMALL)
        streams = [ask(client, "identity", X) for _ in range(3)]
        for stream in streams:
            assert np.array_equal(array_of(client.finish(stream).fields, stream.body), X)
        assert not waiting.fields


def test_a_refusal_comes_before_the_body_and_leaves_the_connection(server: Embedding) -> None:
    with Http2Client(server.address) as client:
        stream = client.begin("POST", "/v2/models/unknown/infer", [("content-length", str(256 << 20))])
        client.finish(stream)  # no byte of the body has been sent
        assert stream.status == 404
        assert b"unknown" in stream.body
        assert "connection" not in stream.fields
        assert np.array_equal(array_of(client.finish(again := ask(client, "identity", X)).fields, again.body), X)
    assert settled(server)["reserved"] == 0


def test_an_answer_of_windows_begins_before_its_request_has_ended(server: Embedding) -> None:
    message = message_of(X)
    body = b"".join(message.buffers)
    with Http2Client(server.address) as client:
        stream = client.begin("POST", "/v2/models/echo/infer", message.headers)
        client.send(stream, body[: len(body) // 2])
        while len(stream.body) < len(body) // 4:
            client.receive()
        assert stream.status == 200
        client.send(stream, body[len(body) // 2 :], ends=True)
        assert np.array_equal(array_of(client.finish(stream).fields, stream.body), X)


def test_a_reset_ends_an_asynchronous_model_and_nothing_else(server: Embedding) -> None:
    with Http2Client(server.address) as client:
        client.finish(ask(client, "identity", SMALL))
        before = state_of(server)["tasks"]
        streams = [ask(client, "waiting", SMALL) for _ in range(5)]
        assert client.finish(ask(client, "identity", SMALL)).status == 200
        assert state_of(server)["tasks"] >= before + len(streams)
        for stream in streams:
            client.reset(stream)
        assert wait_for(server, before)["tasks"] <= before
        assert client.finish(ask(client, "identity", SMALL)).status == 200
    assert settled(server)["reserved"] == 0


def test_a_reset_in_mid_body_gives_the_memory_back(server: Embedding) -> None:
    message = message_of(X)
    body = b"".join(message.buffers)
    with Http2Client(server.address) as client:
        for model in ("sink", "echo", "windowed"):
            stream = client.begin("POST", f"/v2/models/{model}/infer", message.headers)
            client.send(stream, body[: len(body) // 2])
            client.reset(stream)
        state = settled(server)
        assert (state["reserved"], state["blocks"]) == (0, 0)
        assert client.finish(ask(client, "identity", SMALL)).status == 200
