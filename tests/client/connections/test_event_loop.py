"""Whatever a server answers, the program of an AsyncClient goes on: no stretch of work on its event loop is long.

Judged by the processor time that the loop's own thread takes between two beats of a task that does nothing else.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

from streamcodec import EncodedMessage, ProtocolError, Tensor, encode_response
from streamcodec.client import AsyncClient
from streamcodec.client.documents import read_document
from tests.client.scripted import response, scripted

pytestmark = pytest.mark.quiet

MAX_SECONDS = 0.01
COUNT = 4_000
GZIP = "Content-Encoding: gzip"


def _message(**tensors: object) -> EncodedMessage:
    return encode_response(
        [Tensor(name=name, array=np.asarray(array)) for name, array in tensors.items()], model_name="m"
    )


def _small() -> EncodedMessage:
    return _message(**{f"t{index}": np.ones(1, np.int32) for index in range(COUNT)})


def _plain(message: EncodedMessage) -> bytes:
    return response(b"".join(message.buffers), f"Inference-Header-Content-Length: {message.header_length}")


def _zipped(message: EncodedMessage) -> bytes:
    field = f"Inference-Header-Content-Length: {message.header_length}"
    return response(gzip.compress(b"".join(message.buffers)), field, GZIP)


def _chunked(message: EncodedMessage, size: int) -> bytes:
    body = b"".join(message.buffers)
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    field = f"Inference-Header-Content-Length: {message.header_length}"
    return response(framed, field, "Transfer-Encoding: chunked", is_counted=False)


def _json(values: str, count: int) -> bytes:
    return f'{{"outputs":[{{"name":"y","datatype":"FP32","shape":[{count}],"data":[{values}]}}]}}'.encode()


def _wrong() -> bytes:
    return _json("1," * 299_999 + "1e39", 300_000)


ANSWERS: dict[str, Callable[[], bytes]] = {
    "tensors, compressed": lambda: _zipped(_small()),
    "elements": lambda: _plain(_message(words=np.array([b""] * 300_000, object))),
    "elements, compressed": lambda: _zipped(_message(words=np.array([b""] * 300_000, object))),
    "chunks of a byte": lambda: _chunked(_message(x=np.zeros(50_000, np.int8)), 1),
    "zeros": lambda: response(gzip.compress(bytes(16 << 20)), GZIP),
    "a wrong value, compressed": lambda: response(gzip.compress(_wrong()), GZIP),
    "interim responses": lambda: b"HTTP/1.1 100 C\r\n\r\n" * 1700 + response(b"{}"),
    "an error": lambda: response(b'{"error":[' + b"[]," * 300_000 + b"0]}", status="500 No"),
    "an error, compressed": lambda: response(gzip.compress(b"[" * 4_000_000), GZIP, status="500 No"),
    "many tensors": lambda: _plain(_small()),
    "empty tensors": lambda: _plain(_message(**{f"t{index}": np.ones(0, np.int32) for index in range(COUNT)})),
    "a wrong value": lambda: response(_wrong()),
    "values": lambda: response(_json("1," * 299_999 + "1", 300_000)),
    "objects": lambda: response(_json("{}," * 299_999 + "1", 300_000)),
    "parameters": lambda: response(b'{"outputs":[],"parameters":{"a":[' + b"[]," * 300_000 + b"0]}}"),
}

DOCUMENTS: dict[str, bytes] = {
    "empty arrays": b'{"a":[' + b"[]," * 80_000 + b"0]}",
    "nested arrays": b'{"a":[' + (b"[" * 200 + b"]" * 200 + b",") * 600 + b"0]}",
    "one long text": b'{"a":"' + b"\\u0041" * 40_000 + b'"}',
    "nothing": b"[" * 250_000,
}


async def _longest(ask: Callable[[], Awaitable[object]]) -> tuple[float, int]:
    """Return the longest stretch of work while something is asked for, and how many there were."""
    longest, beats, is_over = 0.0, 0, False

    async def beat() -> None:
        nonlocal longest, beats
        last = time.thread_time()
        while not is_over:
            await checkpoint()
            now = time.thread_time()
            longest, beats, last = max(longest, now - last), beats + 1, now

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        await checkpoint()
        with suppress(ProtocolError):
            await ask()
        is_over = True
    return longest, beats


def _stretch(answer: bytes, method: str, *arguments: object, backend: str = "asyncio") -> float:
    async def main(url: str) -> tuple[float, int]:
        async with AsyncClient(url, timeout=30) as client:
            return await _longest(lambda: getattr(client, method)(*arguments))

    stretches = []
    for _ in range(2):  # once, anything may come in between, such as a collection of garbage
        with scripted([answer]) as server:
            longest, beats = anyio.run(main, server.url, backend=backend)
        assert beats > 5
        stretches.append(longest)
        if longest < MAX_SECONDS:
            break
    return min(stretches)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("case", ANSWERS)
def test_no_answer_stops_the_event_loop(case: str, backend: str) -> None:
    assert _stretch(ANSWERS[case](), "infer", "m", {"x": [1.0]}, backend=backend) < MAX_SECONDS


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("case", DOCUMENTS)
def test_no_document_stops_the_event_loop(case: str, backend: str) -> None:
    assert _stretch(response(DOCUMENTS[case]), "server_metadata", backend=backend) < MAX_SECONDS


@pytest.mark.parametrize("in_thread", [False, True])
def test_documents_are_read_alike_in_a_thread(in_thread: bool) -> None:
    text = '{"a": [1, 2.5e3, -0, null, true, {"b": "\\u00e4\\n"}], "a": {}, "c": NaN}'
    found = read_document(text, dict, in_thread=in_thread)
    assert str(found) == "{'a': {}, 'c': nan}"
    for bad in ("[]", "{", '{"a":}', "1", "", "[" * 100_000, "{} {}"):
        assert read_document(bad, dict, in_thread=in_thread) is None


def test_a_long_document_is_read_whole() -> None:
    async def main(url: str) -> dict[str, object]:
        async with AsyncClient(url) as client:
            return await client.server_metadata()

    with scripted([response(b'{"name": "' + b"n" * 100_000 + b'"}')]) as server:
        assert anyio.run(main, server.url) == {"name": "n" * 100_000}
