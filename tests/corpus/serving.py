"""Serving: the models that requests of the corpus are sent to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamcodec.service import ANY_SIZE, InferenceRequest, Model, ModelRegistry, TensorMetadata


def models(*, is_inline: bool = False) -> ModelRegistry:
    """Make the registry: models that answer their inputs, one that raises, those of the specifications' examples."""
    return ModelRegistry.of(
        replace(model, is_inline=is_inline)
        for model in [
            Model(name="any", predict=_inputs, versions=("1", "3")),
            _declared("row", TensorMetadata("x", "FP32", (ANY_SIZE, 2))),
            _declared("fixed", TensorMetadata("x", "INT16", (2,))),
            _declared("free", TensorMetadata("x", "UINT8", (ANY_SIZE, ANY_SIZE))),
            _declared("text", TensorMetadata("x", "BYTES", (1,))),
            _declared("texts", TensorMetadata("x", "BYTES", (2,))),
            _declared("words", TensorMetadata("x", "BYTES", (ANY_SIZE,))),
            _declared("batch", TensorMetadata("x", "FP32", (ANY_SIZE, 2)), is_batching=True),
            _declared("two", TensorMetadata("x", "FP32", (1,)), TensorMetadata("y", "INT8", (ANY_SIZE,))),
            Model(name="broken", predict=_fail),
            Model(name="a b/ü", predict=_inputs),
            Model(name="mymodel", predict=_example),
            Model(name="myrawmodel", predict=_raw_example, inputs=(TensorMetadata("input", "FP32", (2, ANY_SIZE)),)),
            Model(
                name="tuned",
                predict=_inputs,
                inputs=(
                    TensorMetadata("x", "FP32", (1,)),
                    TensorMetadata("words", "BYTES", (ANY_SIZE,), optional=True),
                ),
            ),
        ]
    )


def _declared(name: str, *tensors: TensorMetadata, is_batching: bool = False) -> Model:
    return Model(name=name, predict=_inputs, inputs=tensors, outputs=tensors, is_batching=is_batching)


def _inputs(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return request.inputs


def _example(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    """Answer what KServe's examples "assume that the model returns"."""
    return {"output0": np.ones((3, 2), np.float16), "output1": np.full((2, 2), 0.5, np.float32)}


def _raw_example(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    """Answer what Triton's example of a raw request assumes."""
    return {"output0": np.ones((3, 1), np.float32), "output1": np.zeros((3, 1), np.float32)}


def _fail(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    msg = "the password is swordfish"
    raise ValueError(msg)
