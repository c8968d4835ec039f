"""Raw requests whose length the head does not tell, on raw sockets: the model's input says it, or the end does."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from streamcodec.server import ServerOptions
from streamcodec.service import ANY_SIZE, InferenceRequest, Model, ModelRegistry, TensorMetadata
from streamcodec.service.models.model import Outputs
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
            Model(name="rows", predict=_inputs, inputs=(TensorMetadata("x", "FP32", (ANY_SIZE, 2)),)),
            Model(name="large", predict=_inputs, inputs=(TensorMetadata("x", "FP32", (1 << 20,)),)),
        ]
    )
    with server_here(models, ServerOptions(max_memory_bytes=1 << 20), backend=request.param) as (_, address):
        yield address


@pytest.mark.parametrize("model", ["small", "rows"])
@pytest.mark.parametrize("sizes", [[24], [1] * 24, [5, 19], []])
def test_in_chunks(address: tuple[str, int], sizes: list[int], model: str) -> None:
    request = head(f"/v2/models/{model}/infer", RAW, "Transfer-Encoding: chunked") + chunked(VALUES.tobytes(), sizes)
    with Wire(address) as wire:
        for _ in range(2):
            assert floats(wire.send(request).response()) == VALUES.tolist()


def test_in_chunks_after_continue(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.send(head("/v2/models/small/infer", RAW, "Transfer-Encoding: chunked", "Expect: 100-continue"))
        assert wire.response().status == 100
        wire.send(chunked(VALUES.tobytes(), [7, 7]))
        assert floats(wire.response()) == VALUES.tolist()


@pytest.mark.parametrize("model", ["small", "rows"])
@pytest.mark.parametrize("is_chunked", [True, False])
def test_compressed(address: tuple[str, int], is_chunked: bool, model: str) -> None:
    body = gzip.compress(VALUES.tobytes())
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
    start = head(f"/v2/models/{model}/infer", RAW, framing, "Content-Encoding: gzip")
    with Wire(address) as wire:
        assert floats(wire.send(start, chunked(body, [3]) if is_chunked else body).response()) == VALUES.tolist()


@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_body_of_unknown_length_takes_twice_its_memory_and_gives_it_back(
    address: tuple[str, int], is_compressed: bool
) -> None:
    """The server has 1 MiB. 480 KiB are kept, and copied into an array; 560 KiB are not."""

    def request(kibibytes: int) -> bytes:
        values = np.arange(kibibytes << 8, dtype="<f4").tobytes()
        body = chunked(gzip.compress(values, 1) if is_compressed else values, [100_000] * 5)
        encoding = ("Content-Encoding: gzip",) * is_compressed
        return head("/v2/models/rows/infer", RAW, "Transfer-Encoding: chunked", *encoding) + body

    for kibibytes, status in ((480, 200), (560, 413), (3000, 413), (480, 200), (480, 200)):
        with Wire(address) as wire:
            with suppress(OSError):  # the server may have answered and closed
                wire.send(request(kibibytes))
            assert wire.response().status == status


def test_heads_of_unknown_length_take_no_memory(address: tuple[str, int]) -> None:
    start = head("/v2/models/rows/infer", RAW, "Transfer-Encoding: chunked")
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(Wire(address)).send(start)
        with Wire(address) as wire:
            assert floats(wire.send(start, chunked(VALUES.tobytes(), [])).response()) == VALUES.tolist()


def test_half_a_row(address: tuple[str, int]) -> None:
    request = head("/v2/models/rows/infer", RAW, "Transfer-Encoding: chunked") + chunked(bytes(12), [5])
    with Wire(address) as wire:
        assert wire.send(request).response().status == 400


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
