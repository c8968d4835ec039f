"""Missing inputs: a model that declares none asks for one that was not sent; that is the fault of the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import ErrorCode, Tensor, encode_request
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, Service, TensorMetadata
from tests.service.requests import Array, head, infer, run

TARGET = "/v2/models/m/infer"
X = np.arange(4, dtype=np.float32)
BYTES = np.array([b"a", b"bc"], object)
ERROR = "the model needs the input 'z'; the request has {} ($.inputs)"
JSON = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}


def _served(predict: Callable[[InferenceRequest], dict[str, Any]], **options: Any) -> Service:  # noqa: ANN401 - as of a model
    return Service(ModelRegistry.of([Model(name="m", predict=predict, **options)]))


def _ask(request: InferenceRequest) -> dict[str, Array]:
    return {"y": request.inputs["z"]}


def _tensors(*names: str, array: Array = X) -> list[Tensor]:
    return [Tensor(name=name, array=array) for name in names]


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (_tensors("x"), "'x'"),
        (_tensors("x", "a b"), "'x', 'a b'"),
        (_tensors(*"abcdefg"), "'a', 'b', 'c', 'd', 'e'"),
        (_tensors("x", array=BYTES), "'x'"),
        ([], "none"),
    ],
)
@pytest.mark.parametrize("is_inline", [False, True])
def test_the_request_is_refused(tensors: list[Tensor], said: str, is_inline: bool) -> None:
    found = infer(_served(_ask, is_inline=is_inline), TARGET, encode_request(tensors))
    assert (found.status, found.error) == (400, ERROR.format(said))


@pytest.mark.parametrize(
    "predict",
    [
        lambda request: {"y": request.inputs.get("z", X)},
        lambda request: {"y": X if "z" not in request.inputs else None},
        lambda request: {"y": X, **dict.fromkeys(request.inputs.keys() & {"z"})},
    ],
)
@pytest.mark.parametrize("array", [X, BYTES])
def test_models_that_ask_before_are_not_refused(predict: Callable[[InferenceRequest], Any], array: Array) -> None:
    message = encode_request(_tensors("x", array=array))
    assert infer(_served(predict), TARGET, message).outputs["y"].tolist() == X.tolist()


def test_the_error_is_that_of_a_request_that_does_not_fit_its_model() -> None:
    message = encode_request(_tensors("x"))
    service = _served(_ask)
    inference = service.begin(head(TARGET, "POST", message.headers, message.body_length))
    assert isinstance(inference, Inference)
    refusal = run(inference, b"".join(message.buffers)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.path) == (ErrorCode.MODEL_MISMATCH, "$.inputs")


def test_a_model_may_catch_it() -> None:
    def predict(request: InferenceRequest) -> dict[str, Array]:
        try:
            return {"y": request.inputs["z"]}
        except KeyError:
            return {"y": X}

    assert infer(_served(predict), TARGET, encode_request(_tensors("x"))).outputs["y"].tolist() == X.tolist()


def test_what_a_model_does_not_find_elsewhere_is_its_own_fault() -> None:
    def predict(request: InferenceRequest) -> dict[str, Array]:
        return {"y": {"x": request}["z"].inputs["x"]}

    assert infer(_served(predict), TARGET, encode_request(_tensors("x"))).status == 500


def test_a_model_that_declares_its_inputs_knows_them() -> None:
    inputs = (TensorMetadata("x", "FP32", (-1,)), TensorMetadata("z", "FP32", (-1,), optional=True))
    assert infer(_served(_ask, inputs=inputs), TARGET, encode_request(_tensors("x"))).status == 500


def test_inputs_may_be_returned_as_they_are() -> None:
    found = infer(_served(lambda request: request.inputs), TARGET, encode_request(_tensors("x")))  # type: ignore[arg-type, return-value]
    assert found.outputs["x"].tolist() == X.tolist()
