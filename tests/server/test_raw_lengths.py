"""Raw requests whose length the head does not tell, on raw sockets: the model's input says it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import numpy as np
import pytest

from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, TensorMetadata
from streamcodec.service.models import Outputs
from tests.server.programs import server_here
from tests.server.wire import Wire, chunked, floats, head

RAW = "Inference-Header-Content-Length: 0"
VALUES = np.arange(6, dtype="<f4")


def _inputs(request: InferenceRequest) -> Outputs:
    return request.inputs


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    models = ModelRegistry.of(
        [
            Model(name="small", predict=_inputs, inputs=(TensorMetadata("x", "FP32", (2, 3)),)),
            Model(name="large", predict=_inputs, inputs=(TensorMetadata("x", "FP32", (1 << 20,)),)),
        ]
    )
    with server_here(models, ServerOptions(max_memory_bytes=1 << 20), backend=request.param) as (_, address):
        yield address


@pytest.mark.parametrize("sizes", [[24], [1] * 24, [5, 19], []])
def test_in_chunks(address: tuple[str, int], sizes: list[int]) -> None:
    request = head("/v2/models/small/infer", RAW, "Transfer-Encoding: chunked") + chunked(VALUES.tobytes(), sizes)
    with Wire(address) as wire:
        for _ in range(2):
            assert floats(wire.send(request).response()) == VALUES.tolist()


def test_in_chunks_after_continue(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.send(head("/v2/models/small/infer", RAW, "Transfer-Encoding: chunked", "Expect: 100-continue"))
        assert wire.response().status == 100
        wire.send(chunked(VALUES.tobytes(), [7, 7]))
        assert floats(wire.response()) == VALUES.tolist()


@pytest.mark.parametrize("is_chunked", [True, False])
def test_compressed(address: tuple[str, int], is_chunked: bool) -> None:
    body = gzip.compress(VALUES.tobytes())
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
    start = head("/v2/models/small/infer", RAW, framing, "Content-Encoding: gzip")
    with Wire(address) as wire:
        assert floats(wire.send(start, chunked(body, [3]) if is_chunked else body).response()) == VALUES.tolist()


@pytest.mark.parametrize("nbytes", [0, 23, 25, 10_000])
def test_what_comes_is_held_against_the_input(address: tuple[str, int], nbytes: int) -> None:
    request = head("/v2/models/small/infer", RAW, "Transfer-Encoding: chunked") + chunked(bytes(nbytes), [10])
    with Wire(address) as wire:
        assert wire.send(request).response().status == 400


def test_memory_is_asked_for_before_the_body(address: tuple[str, int]) -> None:
    """4 MiB are more than the server has, and the client has sent nothing of them yet."""
    with Wire(address) as wire:
        answer = wire.send(head("/v2/models/large/infer", RAW, "Transfer-Encoding: chunked")).response()
        assert (answer.status, answer.is_last) == (413, True)
