"""Model checks: a request that does not fit the model is refused before memory is taken for its tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    ErrorCode,
    HeaderReceived,
    RemoteProtocolError,
    RequestHeader,
    Tensor,
    TensorSpec,
    encode_request,
    request_decoder,
)
from streamcodec.engine.memory import placement
from streamcodec.engine.memory.pool import Pool
from streamcodec.service import (
    ANY_SIZE,
    Inference,
    InferenceRequest,
    Model,
    ModelRegistry,
    Service,
    TensorMetadata,
    error_reply,
)
from tests.service.requests import Array, answer, head, infer, run

SIZE = 1 << 30
"""Bytes of the tensor that a wrong request declares."""

SHAPE = [SIZE // 4]


def _fail(request: InferenceRequest) -> dict[str, Array]:
    raise AssertionError(request)


MODEL = Model(
    name="m",
    predict=_fail,
    inputs=(TensorMetadata("x", "FP32", (ANY_SIZE,)), TensorMetadata("y", "INT8", (2, ANY_SIZE))),
    outputs=(TensorMetadata("out", "FP32", ()),),
)


def _entry(name: str = "x", datatype: str = "FP32", shape: Any = SHAPE, size: int = SIZE) -> dict[str, Any]:  # noqa: ANN401
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


Y = _entry("y", "INT8", [2, 0], 0)

WRONG: dict[str, tuple[dict[str, list[dict[str, Any]]], str, str]] = {
    "missing input": ({"inputs": [_entry()]}, "$.inputs", "'y'"),
    "no input at all": ({"inputs": []}, "$.inputs", "'x'"),
    "unknown input": ({"inputs": [_entry(), Y, _entry("z", "INT8", [1], 1)]}, "$.inputs[2].name", "'z'"),
    "datatype": ({"inputs": [_entry(datatype="INT32"), Y]}, "$.inputs[0].datatype", "takes FP32"),
    "rank": ({"inputs": [_entry(shape=[*SHAPE, 1]), Y]}, "$.inputs[0].shape", "[-1]"),
    "fixed size": ({"inputs": [_entry(), _entry("y", "INT8", [3, 0], 0)]}, "$.inputs[1].shape", "[2, -1]"),
    "unknown output": ({"inputs": [_entry(), Y], "outputs": [{"name": "no"}]}, "$.outputs[0].name", "'no'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_request_that_does_not_fit_takes_no_memory(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document, path, named = WRONG[case]
    text = json.dumps(document).encode()
    taken: list[TensorSpec] = []
    monkeypatch.setattr(Pool, "slabs", _spy(taken))
    inference = _begin(text, sum(entry["parameters"]["binary_data_size"] for entry in document["inputs"]))
    assert inference.decoder.feed(text + bytes(1000)) == len(text)
    with pytest.raises(RemoteProtocolError) as caught:
        inference.decoder.next_event()
    assert (caught.value.code, caught.value.path, caught.value.status_hint) == (ErrorCode.MODEL_MISMATCH, path, 400)
    assert named in answer(error_reply(caught.value)).error
    assert taken == []
    assert inference.decoder.offset == len(text)


def test_the_spy_above_sees_memory_being_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test above: a fitting request does ask for memory."""
    text = json.dumps({"inputs": [_entry(), Y]}).encode()
    taken: list[TensorSpec] = []
    monkeypatch.setattr(Pool, "slabs", _spy(taken))
    inference = _begin(text, SIZE)
    inference.decoder.feed(text)
    assert isinstance(inference.decoder.next_event(), HeaderReceived)
    assert len(taken) == 1


@pytest.mark.parametrize("case", WRONG)
def test_place_is_never_called(case: str) -> None:
    """The same on the codec alone, where a caller's own `place` would be asked."""
    document, path, _ = WRONG[case]
    text = json.dumps(document).encode()
    total = len(text) + sum(entry["parameters"]["binary_data_size"] for entry in document["inputs"])
    decoder = request_decoder(header_length=len(text), body_length=total, check=MODEL.check, place=_place)
    assert decoder.feed(text + bytes(1000)) == len(text)
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_event()
    assert caught.value.path == path


def test_inputs_may_come_in_any_order_and_as_json() -> None:
    seen: list[list[str]] = []

    def predict(request: InferenceRequest) -> dict[str, Array]:
        seen.append(list(request.inputs))
        return {"out": request.inputs["x"].sum()}

    model = Model(name="m", predict=predict, inputs=MODEL.inputs, outputs=MODEL.outputs)
    message = encode_request(
        [
            Tensor(name="y", array=np.zeros((2, 4), np.int8), is_binary=False),
            Tensor(name="x", array=np.arange(3, dtype=np.float32)),
        ]
    )
    reply = infer(Service(ModelRegistry.of([model])), "/v2/models/m/infer", message)
    assert reply.status == 200
    assert reply.outputs["out"] == 3
    assert seen == [["y", "x"]]


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "path"),
    [
        ("x", "FP32", (3,), None),
        ("z", "FP32", (3,), "$.inputs[0].name"),
        ("x", "INT32", (3,), "$.inputs[0].datatype"),
        ("x", "FP32", (4,), "$.inputs[0].shape"),
    ],
)
def test_one_input_is_compared_in_each_respect(
    name: str, datatype: str, shape: tuple[int, ...], path: str | None
) -> None:
    model = Model(name="m", predict=_fail, inputs=(TensorMetadata("x", "FP32", (3,)),))
    spec = TensorSpec(name=name, datatype=DATATYPES[datatype], shape=shape, nbytes=4 * shape[0])
    header = RequestHeader(tensors=(spec,))
    if path is None:
        model.check(header)
    else:
        with pytest.raises(RemoteProtocolError) as caught:
            model.check(header)
        assert caught.value.path == path


class _Awaited:
    """A model that is an object."""

    async def __call__(self, request: InferenceRequest) -> dict[str, Array]:
        return _fail(request)


@pytest.mark.parametrize(("predict", "is_async"), [(_fail, False), (_Awaited(), True), (_Awaited().__call__, True)])
def test_a_model_knows_whether_it_has_to_be_awaited(predict: Any, *, is_async: bool) -> None:  # noqa: ANN401
    assert Model(name="m", predict=predict).is_async is is_async


def test_known_outputs_may_be_asked_for() -> None:
    document = {"inputs": [_entry(shape=[0], size=0), Y], "outputs": [{"name": "out"}]}
    text = json.dumps(document).encode()
    inference = _begin(text, 0)
    inference.decoder.feed(text)
    assert isinstance(inference.decoder.next_event(), HeaderReceived)


def test_run_before_the_end_is_misuse() -> None:
    text = b'{"inputs": []}'
    inference = _begin(text, 0)
    with pytest.raises(Exception, match="after the last event"):
        inference.run()
    with pytest.raises(RemoteProtocolError):
        run(inference, text)


def _spy(taken: list[TensorSpec]) -> Callable[[Pool, TensorSpec], Iterator[placement.Slab]]:
    def slabs(_: Pool, spec: TensorSpec) -> Iterator[placement.Slab]:
        taken.append(spec)
        return iter(())

    return slabs


def _place(spec: TensorSpec) -> placement.Placement:
    pytest.fail(f"asked for memory for {spec.name}")


def _begin(text: bytes, nbytes: int) -> Inference:
    service = Service(ModelRegistry.of([MODEL]))
    fields = [("Inference-Header-Content-Length", str(len(text)))]
    inference = service.begin(head("/v2/models/m/infer", "POST", fields, len(text) + nbytes))
    assert isinstance(inference, Inference)
    return inference
