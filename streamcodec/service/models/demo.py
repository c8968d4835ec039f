"""Demo models: the models that the bundled server serves if no others are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.service.models.model import InferenceRequest, Model, Outputs, TensorMetadata
from streamcodec.service.models.registry import ModelRegistry


def demo_models() -> ModelRegistry:
    """Return a registry with `identity` (returns its inputs) and `sink` (returns the number of tensor bytes)."""
    count = (TensorMetadata("COUNT", "INT64", (1,)),)
    return ModelRegistry.of(
        [
            Model(name="identity", predict=_identity, is_inline=True, takes_elements=True),
            Model(name="sink", predict=_sink, outputs=count, is_inline=True, takes_elements=True),
        ]
    )


def _identity(request: InferenceRequest) -> Outputs:
    return request.values


def _sink(request: InferenceRequest) -> Outputs:
    """Count bytes in the form that tensors have on the wire, even if they came as JSON."""
    return {"COUNT": np.array([sum(map(_nbytes, request.values.values()))], dtype=np.int64)}


def _nbytes(values: np.ndarray[Any, Any] | Elements) -> int:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.nbytes
    return (values if isinstance(values, Elements) else Elements(values)).data.nbytes
