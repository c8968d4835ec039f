"""Models: what every server under measurement serves, here for ours.

- `identity`: the FP32 tensor `x`, of any length, back as `x`. `m000` to `m199` do the same, and so do `default` and
  `coroutine`, each as a user would write it: a function, which may run in a thread, and an `async def`.
- `four`, `many`: 4 and 20 such tensors, `x0` and so on. `texts`: BYTES.
- `sink`: the number of its bytes, as `COUNT`; it does not look at them. `default_sink` is a function that may run in a
  thread.
- `windows`: the same count, from a tensor that comes in windows of 1 MiB; it adds up the values, so it looks at them.

But for `default`, `default_sink`, `coroutine` and `windows` they are inline: they take no time to speak of, so they
run where the server runs quick models, on its event loop.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamcodec import Windows
from streamcodec.engine.memory.rows import synchronous
from streamcodec.service import InferenceRequest, Model, TensorMetadata

_X = (TensorMetadata("x", "FP32", (-1,)),)
_COUNT = (TensorMetadata("COUNT", "INT64", (1,)),)
_IDENTITIES = {
    "identity": _X,
    "texts": (TensorMetadata("x", "BYTES", (-1,)),),
    "four": tuple(TensorMetadata(f"x{number}", "FP32", (-1,)) for number in range(4)),
    "many": tuple(TensorMetadata(f"x{number}", "FP32", (-1,)) for number in range(20)),
    **{f"m{number:03}": _X for number in range(200)},
}


def models() -> list[Model]:
    """Return the models; `streamcodec serve` calls this."""
    return [
        *(
            Model(name=name, predict=_identity, inputs=tensors, outputs=tensors, is_inline=True)
            for name, tensors in _IDENTITIES.items()
        ),
        Model(name="default", predict=_identity, inputs=_X, outputs=_X),
        Model(name="coroutine", predict=_coroutine, inputs=_X, outputs=_X),
        Model(name="sink", predict=_sink, inputs=_X, outputs=_COUNT, is_inline=True),
        Model(name="default_sink", predict=_sink, inputs=_X, outputs=_COUNT),
        Model(name="windows", predict=_windows, inputs=_X, outputs=_COUNT, windows=Windows(max_window_bytes=1 << 20)),
    ]


def _identity(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return request.inputs


async def _coroutine(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return request.inputs


def _sink(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return {"COUNT": np.array([request.inputs["x"].nbytes], dtype=np.int64)}


def _windows(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    count, total = 0, 0.0
    for window in synchronous(request.rows["x"]):
        count += window.nbytes
        total += float(window.sum())
    return {"COUNT": np.array([count if np.isfinite(total) else -1], dtype=np.int64)}
