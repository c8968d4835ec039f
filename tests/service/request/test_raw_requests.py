"""Raw binary requests (`Inference-Header-Content-Length: 0`): what is deduced, and every reason to refuse."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import NEED_DATA, NEED_TURN, EndOfMessage, HeaderReceived, Limits, RemoteProtocolError
from streamcodec.service import (
    ANY_SIZE,
    Inference,
    InferenceRequest,
    Listing,
    Model,
    ModelRegistry,
    Reply,
    Service,
    TensorMetadata,
)
from tests.service.requests import Array, answer, head, post, raw, run

VALUES = np.arange(6, dtype="<f4")
TARGET = "/v2/models/m/infer"


def _service(*inputs: TensorMetadata, is_batching: bool = False, limits: Limits | None = None) -> Service:
    model = Model(name="m", predict=_identity, inputs=inputs or None, is_batching=is_batching)
    return Service(ModelRegistry.of([model]), limits=limits or Limits())


def _identity(request: InferenceRequest) -> dict[str, Array]:
    assert request.header.parameters["binary_data_output"] is True
    return dict(request.inputs)


@pytest.mark.parametrize(
    ("declared", "is_batching", "deduced"),
    [
        ((6,), False, (6,)),
        ((2, 3), False, (2, 3)),
        ((ANY_SIZE,), False, (6,)),
        ((ANY_SIZE, 3), False, (2, 3)),
        ((2, ANY_SIZE, 1), False, (2, 3, 1)),
        ((ANY_SIZE, 6), True, (1, 6)),
        ((ANY_SIZE, ANY_SIZE, 2), True, (1, 3, 2)),
        ((1, 6), True, (1, 6)),
    ],
)
def test_the_shape_follows_from_the_size(
    declared: tuple[int, ...], is_batching: bool, deduced: tuple[int, ...]
) -> None:
    service = _service(TensorMetadata("x", "FP32", declared), is_batching=is_batching)
    result = raw(service, TARGET, VALUES.tobytes())
    assert result.status == 200
    assert result.binary == {"x"}
    assert np.array_equal(result.outputs["x"], VALUES.reshape(deduced))


@pytest.mark.parametrize("body", [b"\x05\0\0\0hello", b"\xff\0", b""])
def test_bytes_are_one_element_without_prefix(body: bytes) -> None:
    result = raw(_service(TensorMetadata("x", "BYTES", (1,))), TARGET, body)
    assert result.outputs["x"].tolist() == [body]


def test_bytes_of_a_batching_model_get_a_batch_of_one() -> None:
    service = _service(TensorMetadata("x", "BYTES", (ANY_SIZE, 1)), is_batching=True)
    assert raw(service, TARGET, b"word").outputs["x"].shape == (1, 1)


@pytest.mark.parametrize(
    ("inputs", "is_batching", "reason"),
    [
        ((), False, "takes any inputs"),
        ((TensorMetadata("x", "FP32", (6,)), TensorMetadata("y", "FP32", (6,))), False, "takes 2 inputs"),
        ((TensorMetadata("x", "FP32", (ANY_SIZE, ANY_SIZE)),), False, "several variable"),
        ((TensorMetadata("x", "FP32", (7,)),), False, "do not fill"),
        ((TensorMetadata("x", "FP32", (ANY_SIZE, 4)),), False, "do not fill"),
        ((TensorMetadata("x", "FP32", (ANY_SIZE, 0)),), False, "do not fill"),
        ((TensorMetadata("x", "FP32", ()),), False, "do not fill"),
        ((TensorMetadata("x", "BYTES", ()),), False, "shape [1]"),
        ((TensorMetadata("x", "BYTES", (2,)),), False, "shape [1]"),
        ((TensorMetadata("x", "BYTES", (ANY_SIZE,)),), False, "needs an input of shape [1], not [-1]"),
        ((TensorMetadata("x", "BYTES", (ANY_SIZE, ANY_SIZE)),), True, "needs an input of shape [1], not [-1]"),
        ((TensorMetadata("x", "BYTES", (1, 1)),), False, "shape [1]"),
        ((TensorMetadata("x", "FP32", (8, 6)),), True, "takes [8, 6]"),
        ((TensorMetadata("x", "FP32", ()),), True, "do not fill"),
    ],
)
def test_what_cannot_be_deduced_is_refused_with_the_reason(
    inputs: tuple[TensorMetadata, ...], is_batching: bool, reason: str
) -> None:
    result = raw(_service(*inputs, is_batching=is_batching), TARGET, VALUES.tobytes())
    assert result.status == 400
    assert reason in result.error


def test_zero_rows_and_zero_columns() -> None:
    assert raw(_service(TensorMetadata("x", "FP32", (ANY_SIZE, 3))), TARGET, b"").outputs["x"].shape == (0, 3)
    assert raw(_service(TensorMetadata("x", "FP32", (ANY_SIZE, 0))), TARGET, b"").outputs["x"].shape == (0, 0)


CHUNKED = [("Transfer-Encoding", "chunked")]
COMPRESSED = [("Content-Length", "24"), ("Content-Encoding", "gzip")]
HIDDEN = [pytest.param(CHUNKED, None, id="chunked"), pytest.param(COMPRESSED, 24, id="compressed")]


def _begin(metadata: TensorMetadata, fields: list[tuple[str, str]], length: int | None) -> Reply | Inference | Listing:
    service = _service(metadata)
    return service.begin(head(TARGET, "POST", [("Inference-Header-Content-Length", "0"), *fields], length))


@pytest.mark.parametrize(("fields", "length"), HIDDEN)
@pytest.mark.parametrize(
    ("metadata", "is_batching", "body"),
    [
        (TensorMetadata("x", "FP32", (ANY_SIZE, 2)), False, VALUES.tobytes()),
        (TensorMetadata("x", "FP32", (ANY_SIZE, 2)), False, b""),
        (TensorMetadata("x", "FP32", (ANY_SIZE, ANY_SIZE)), True, VALUES.tobytes()),
        (TensorMetadata("x", "BYTES", (1,)), False, b"word"),
        (TensorMetadata("x", "BYTES", (1,)), False, b""),
    ],
)
def test_what_follows_from_a_hidden_length_is_what_follows_from_a_declared_one(
    metadata: TensorMetadata, is_batching: bool, body: bytes, fields: list[tuple[str, str]], length: int | None
) -> None:
    service = _service(metadata, is_batching=is_batching)
    inference = service.begin(head(TARGET, "POST", [("Inference-Header-Content-Length", "0"), *fields], length))
    assert isinstance(inference, Inference)
    assert (inference.resolved.is_whole, inference.least_bytes, inference.header_bytes) == (False, 0, None)
    found, wanted = answer(run(inference, body)), raw(service, TARGET, body)
    assert (found.status, found.body) == (200, wanted.body)


@pytest.mark.parametrize(("fields", "length"), HIDDEN)
def test_a_hidden_length_from_which_nothing_follows(fields: list[tuple[str, str]], length: int | None) -> None:
    inference = _begin(TensorMetadata("x", "FP32", (ANY_SIZE, 4)), fields, length)
    assert isinstance(inference, Inference)
    with pytest.raises(RemoteProtocolError, match="24 bytes do not fill") as caught:
        run(inference, VALUES.tobytes())
    assert caught.value.status_hint == 400
    reply = _begin(TensorMetadata("x", "FP32", (ANY_SIZE, ANY_SIZE)), fields, length)
    assert isinstance(reply, Reply)
    assert "several variable" in answer(reply).error


@pytest.mark.parametrize(("fields", "length"), HIDDEN)
def test_where_no_dimension_is_variable_the_length_may_be_hidden(
    fields: list[tuple[str, str]], length: int | None
) -> None:
    inference = _begin(TensorMetadata("x", "FP32", (2, 3)), fields, length)
    assert isinstance(inference, Inference)
    assert (inference.resolved.is_whole, inference.memory_bytes, inference.least_bytes) == (True, 24, 24)
    assert np.array_equal(answer(run(inference, VALUES.tobytes())).outputs["x"], VALUES.reshape(2, 3))


@pytest.mark.parametrize(("fields", "length"), HIDDEN)
def test_a_hidden_length_is_held_against_the_input(fields: list[tuple[str, str]], length: int | None) -> None:
    inference = _begin(TensorMetadata("x", "FP32", (2, 3)), fields, length)
    assert isinstance(inference, Inference)
    assert inference.decoder.feed(bytes(25)) == 24
    inference = _begin(TensorMetadata("x", "FP32", (2, 3)), fields, length)
    assert isinstance(inference, Inference)
    inference.decoder.feed(bytes(23))
    inference.decoder.receive_eof()
    assert isinstance(inference.decoder.next_event(), HeaderReceived)
    with pytest.raises(RemoteProtocolError, match="ends 1 byte too early"):
        inference.decoder.next_event()


@pytest.mark.parametrize("shape", [(ANY_SIZE,), (0,), (6,)])
def test_without_a_body_there_is_no_tensor(shape: tuple[int, ...]) -> None:
    reply = _begin(TensorMetadata("x", "FP32", shape), [], 0)
    assert isinstance(reply, Reply)
    assert answer(reply).status == 411
    assert "neither Content-Length nor chunks" in answer(reply).error


def test_a_body_of_http_2_needs_no_field() -> None:
    inference = _begin(TensorMetadata("x", "FP32", (ANY_SIZE,)), [], None)
    assert isinstance(inference, Inference)
    assert np.array_equal(answer(run(inference, VALUES.tobytes())).outputs["x"], VALUES)
    inference = _begin(TensorMetadata("x", "FP32", (ANY_SIZE,)), [], None)
    assert isinstance(inference, Inference)
    with pytest.raises(RemoteProtocolError, match="neither Content-Length nor chunks") as caught:
        run(inference, b"")
    assert caught.value.status_hint == 411


@pytest.mark.parametrize("is_paced", [False, True])
def test_a_paced_request_of_hidden_length_lets_others_have_their_turn(*, is_paced: bool) -> None:
    """Its tensor is known when all of it has come, and is copied then."""
    body = memoryview(bytes(2 << 20))
    fields = [("Inference-Header-Content-Length", "0"), *CHUNKED]
    service = _service(TensorMetadata("x", "FP32", (ANY_SIZE,)))
    inference = service.begin(head(TARGET, "POST", fields, None), paced=is_paced)
    assert isinstance(inference, Inference)
    decoder, turns = inference.decoder, 0
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if event is NEED_TURN:
            turns += 1
            decoder.work()
        elif event is NEED_DATA and body:
            body = body[decoder.feed(body) :]
        elif event is NEED_DATA:
            decoder.receive_eof()
    assert (turns > 0) is is_paced


def test_the_limits_apply() -> None:
    service = _service(TensorMetadata("x", "FP32", (ANY_SIZE,)), limits=Limits(max_tensor_bytes=23))
    assert raw(service, TARGET, VALUES.tobytes()).status == 413


@pytest.mark.parametrize("value", ["+0", "-0", "0x0", "0.0", "", "0 0", "zero", "0,0", "0" * 20])
def test_what_is_not_a_number_is_never_read_as_zero(value: str) -> None:
    service = _service(TensorMetadata("x", "FP32", (ANY_SIZE,)))
    fields = [("Inference-Header-Content-Length", value), ("Content-Length", "24")]
    assert post(service, TARGET, VALUES.tobytes(), fields).status == 400
    fields = [("Inference-Header-Content-Length", "0")] * 2
    assert post(service, TARGET, VALUES.tobytes(), fields).status == 400
