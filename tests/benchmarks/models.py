"""Models: what every server under measurement serves, here for ours.

- `identity`: the FP32 tensor `x`, of any length, back as `x`.
- `sink`: the number of its bytes, as `COUNT`; it does not look at them.
- `windows`: the same count, from a tensor that comes in windows of 1 MiB; it adds up the values, so it looks at them.

The first two take no time to speak of, so they run where the server runs quick models: on its event loop.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamcodec import Windows
from streamcodec.engine.rows import synchronous
from streamcodec.service import InferenceRequest, Model, TensorMetadata

_X = (TensorMetadata("x", "FP32", (-1,)),)
_COUNT = (TensorMetadata("COUNT", "INT64", (1,)),)


def models() -> list[Model]:
    """Return the models; `streamcodec serve` calls this."""
    return [
        Model(name="identity", predict=_identity, inputs=_X, outputs=_X, is_inline=True),
        Model(name="sink", predict=_sink, inputs=_X, outputs=_COUNT, is_inline=True),
        Model(name="windows", predict=_windows, inputs=_X, outputs=_COUNT, windows=Windows(max_window_bytes=1 << 20)),
    ]


def _identity(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return request.inputs


def _sink(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return {"COUNT": np.array([request.inputs["x"].nbytes], dtype=np.int64)}


def _windows(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    count, total = 0, 0.0
    for window in synchronous(request.rows["x"]):
        count += window.nbytes
        total += float(window.sum())
    return {"COUNT": np.array([count if np.isfinite(total) else -1], dtype=np.int64)}
