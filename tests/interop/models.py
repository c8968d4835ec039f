"""What the server under test serves: the demo models, and some that show what a request said.

For `python -m streamcodec serve tests.interop.models:models`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamcodec.service import ANY_SIZE, InferenceRequest, Model, ModelRegistry, TensorMetadata, demo_models
from tests.interop.tensors import Array, elements, fingerprint

FULLY_DECLARED: dict[str, Any] = {
    "name": "calibrate",
    "versions": ["1", "2"],
    "platform": "python",
    "inputs": [
        {"name": "IMAGE", "datatype": "FP32", "shape": [-1, 3]},
        {"name": "GAIN", "datatype": "FP32", "shape": [1]},
    ],
    "outputs": [
        {"name": "SCALED", "datatype": "FP32", "shape": [-1, 3]},
        {"name": "MEAN", "datatype": "FP32", "shape": [3]},
    ],
}
"""Metadata of the model that declares all it takes and gives, as a client must read it."""

NAME_WITH_BLANK = "prüfung 1"

LABELS = ("cat", "dog", "otter", "owl")
"""Of the classes of the model `animals`."""


def models() -> ModelRegistry:
    registry = demo_models()
    registry.add(Model(name="seen", predict=_seen))
    registry.add(Model(name=NAME_WITH_BLANK, predict=_seen))
    registry.add(
        Model(
            name="calibrate",
            predict=_calibrate,
            inputs=(TensorMetadata("IMAGE", "FP32", (ANY_SIZE, 3)), TensorMetadata("GAIN", "FP32", (1,))),
            outputs=(TensorMetadata("SCALED", "FP32", (ANY_SIZE, 3)), TensorMetadata("MEAN", "FP32", (3,))),
            versions=("1", "2"),
        )
    )
    for model in (_passing("single", "FP32", ANY_SIZE), _passing("element", "BYTES", 1), _animals()):
        registry.add(model)
    return registry


def _passing(name: str, datatype: str, *shape: int) -> Model:
    """Make a model that answers its one input, so that a raw binary request has a meaning."""
    metadata = (TensorMetadata("x", datatype, shape),)
    return Model(name=name, predict=_inputs, inputs=metadata, outputs=metadata)


def _animals() -> Model:
    """Make a model that answers its scores, a row for each in the batch, and has labels for classes."""
    metadata = (TensorMetadata("SCORES", "FP32", (ANY_SIZE, len(LABELS))),)
    labels = {"SCORES": LABELS}
    return Model(name="animals", predict=_inputs, inputs=metadata, outputs=metadata, is_batching=True, labels=labels)


def _inputs(request: InferenceRequest) -> Mapping[str, Array]:
    return request.inputs


def _seen(request: InferenceRequest) -> Mapping[str, Array]:
    """Answer what the model was given, as JSON text."""
    seen = {
        "model": request.model_name,
        "version": request.model_version,
        "id": request.header.id,
        "parameters": dict(request.header.parameters),
        "inputs": {name: fingerprint(array) for name, array in request.inputs.items()},
        "binary": [spec.name for spec in request.header.tensors if spec.is_binary],
    }
    return {"SEEN": elements(json.dumps(seen).encode())}


def _calibrate(request: InferenceRequest) -> Mapping[str, Array]:
    scaled = request.inputs["IMAGE"] * request.inputs["GAIN"]
    return {"SCALED": scaled, "MEAN": scaled.mean(axis=0, dtype=np.float32)}
