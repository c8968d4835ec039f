"""Demo models: what the bundled server serves when it is given none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamcodec.core.elements import PREFIX_BYTES
from streamcodec.service.models import InferenceRequest, Model, ModelRegistry, TensorMetadata


def demo_models() -> ModelRegistry:
    """Return a registry with `identity` (the inputs back) and `sink` (how many tensor bytes there were)."""
    count = (TensorMetadata("COUNT", "INT64", (1,)),)
    return ModelRegistry.of(
        [
            Model(name="identity", predict=_identity, is_inline=True),
            Model(name="sink", predict=_sink, outputs=count, is_inline=True),
        ]
    )


def _identity(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return request.inputs


def _sink(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    """Count bytes in the form that tensors have on the wire, however they came."""
    sizes = [
        sum(PREFIX_BYTES + len(element) for element in array.reshape(-1)) if array.dtype == object else array.nbytes
        for array in request.inputs.values()
    ]
    return {"COUNT": np.array([sum(sizes)], dtype=np.int64)}
